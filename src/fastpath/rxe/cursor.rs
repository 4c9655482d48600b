//! Where each side of a ring stands, and the order in which the two tell each other.
//!
//! Apart from the memory that the ring is in: the tests let a model checker go through all orders
//! in which the steps of both sides can follow each other.

use std::sync::atomic::{AtomicU32, Ordering};

/// An index that the two sides share: in a ring's header, or the model checker's.
pub(super) trait Index {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
}

impl Index for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }
}

/// Where the side that fills a ring stands.
#[derive(Debug)]
pub(super) struct ProducerCursor {
    mask: u32,
    /// The next slot to fill.
    next: u32,
    /// What the other side was told of: `next` as of the last publication.
    published: u32,
    /// The other side's index as last seen; the free slots up to it need no look at shared memory.
    consumed: u32,
}

impl ProducerCursor {
    /// Begins where the shared indices stand; `mask` is the number of slots less one.
    pub(super) fn new(mask: u32, producer: &impl Index, consumer: &impl Index) -> Self {
        let next = producer.load(Ordering::Relaxed) & mask;
        Self {
            mask,
            next,
            published: next,
            // Acquire as in `free`: the other side may be at work already.
            consumed: consumer.load(Ordering::Acquire) & mask,
        }
    }

    /// The next slot, if one is free.
    #[inline(always)]
    pub(super) fn free(&mut self, consumer: &impl Index) -> Option<FreeSlot> {
        let index = self.next;
        let after = (index + 1) & self.mask;
        match after != self.consumed || self.has_moved(consumer) {
            true => Some(FreeSlot { index, after }),
            false => None,
        }
    }

    /// Looks where the other side is, and says whether it has left a slot free.
    #[cold]
    fn has_moved(&mut self, consumer: &impl Index) -> bool {
        // Acquire pairs with the other side's release of the slots it is done with: what we write
        // there cannot become visible before it stopped reading.
        let consumed = consumer.load(Ordering::Acquire) & self.mask;
        let given = self.published.wrapping_sub(consumed) & self.mask;
        let taken = self.next.wrapping_sub(self.published) & self.mask;
        // More than fits the ring is what an index says that lies beyond what was published.
        let is_free = given + taken < self.mask;
        if is_free {
            self.consumed = consumed;
        }
        is_free
    }

    /// Takes the slot that [`ProducerCursor::free`] gave.
    #[inline(always)]
    pub(super) fn advance(&mut self, slot: FreeSlot) {
        self.next = slot.after;
    }

    /// Whether slots were taken that the other side was not told of.
    #[inline]
    pub(super) fn has_unpublished(&self) -> bool {
        self.next != self.published
    }

    /// Hands the slots that were taken to the other side.
    #[inline]
    pub(super) fn publish(&mut self, producer: &impl Index) {
        // Release: the elements are in memory before the index that covers them. On x86-64 an
        // ordinary store, on aarch64 `stlr`; the other side loads with acquire.
        let next = self.next;
        producer.store(next, Ordering::Release);
        self.published = next;
    }

    /// How many published elements the other side has not taken yet.
    pub(super) fn waiting(&self, consumer: &impl Index) -> u32 {
        let consumed = consumer.load(Ordering::Acquire);
        self.published.wrapping_sub(consumed) & self.mask
    }

    /// Forgets the slots that were taken and not published.
    #[inline]
    pub(super) fn discard(&mut self) {
        self.next = self.published;
    }
}

/// A slot that may be filled.
#[derive(Debug)]
pub(super) struct FreeSlot {
    index: u32,
    /// The slot behind it.
    after: u32,
}

impl FreeSlot {
    /// The slot's number, less than the number of slots.
    #[inline(always)]
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

/// Where the side that empties a ring stands.
#[derive(Debug)]
pub(super) struct ConsumerCursor {
    mask: u32,
    next: u32,
}

impl ConsumerCursor {
    /// Begins where the shared index stands; `mask` is the number of slots less one.
    pub(super) fn new(mask: u32, consumer: &impl Index) -> Self {
        Self {
            mask,
            next: consumer.load(Ordering::Relaxed) & mask,
        }
    }

    /// How many slots are full, from [`ConsumerCursor::next`] on.
    #[inline(always)]
    pub(super) fn full(&self, producer: &impl Index) -> usize {
        // Acquire as in `produced`.
        let produced = producer.load(Ordering::Acquire) as usize;
        produced.wrapping_sub(self.next as usize) & self.mask as usize
    }

    /// The slot to be emptied next.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Counts slots as taken, no more than are full.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.next = (self.next + count) & self.mask;
    }

    /// How far the other side has come.
    #[inline]
    pub(super) fn produced(&self, producer: &impl Index) -> u32 {
        // Acquire pairs with the other side's release: the elements are in memory before the index
        // that covers them. Masked at once, so that no value leads outside the ring.
        producer.load(Ordering::Acquire) & self.mask
    }

    /// The next full slot, if it lies before `produced`, which [`ConsumerCursor::produced`] said.
    #[inline]
    pub(super) fn next_before(&mut self, produced: u32) -> Option<u32> {
        if self.next == produced {
            return None;
        }
        let slot = self.next;
        self.next = (slot + 1) & self.mask;
        Some(slot)
    }

    /// Gives the slots that were taken to the other side.
    #[inline(always)]
    pub(super) fn give_back(&self, consumer: &impl Index) {
        // Release: the elements are copied out before the other side may overwrite them.
        consumer.store(self.next, Ordering::Release);
    }
}
