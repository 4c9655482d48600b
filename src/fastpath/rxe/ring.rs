//! The ring that rxe shares with the kernel: a header with two indices, then power-of-two many
//! slots.
//!
//! One side produces, the other consumes; each stores its own index only, already reduced to the
//! number of slots. One slot stays empty, so that equal indices mean an empty ring.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rdmacm_kernel_abi::rxe::QueueHeader;

use super::cursor::{ConsumerCursor, FreeSlot, ProducerCursor};
use crate::sys::Mapping;

/// Why a mapping is no ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRing(pub String);

/// A mapped ring with its geometry, which was read once and checked against the mapping.
#[derive(Debug)]
struct Ring {
    /// Address of the header.
    base: NonNull<u8>,
    slot_size: usize,
    mask: u32,
    /// Keeps `base` valid.
    _mapping: Arc<Mapping>,
}

// SAFETY: a `Ring` is an address into a mapping that it keeps alive. The indices are atomics, and
// the slots are reached only through `Producer` and `Consumer`, of which each ring has one, used
// by `&mut`.
unsafe impl Send for Ring {}
// SAFETY: as above; a shared reference gives access to the atomics only.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(mapping: Arc<Mapping>, least_slot_size: usize) -> Result<Self, BadRing> {
        let base = mapping.address();
        let length = mapping.length();
        if length < size_of::<QueueHeader>() {
            return Err(BadRing(format!("{length} bytes are too few for a ring")));
        }
        // SAFETY: the mapping is page aligned and at least as long as the header, every bit
        // pattern of which is valid. The kernel fills these two words before it hands the ring out
        // and never changes them.
        let (log2_slot_size, mask) = unsafe {
            let header = base.cast::<QueueHeader>().as_ptr();
            (
                (&raw const (*header).log2_elem_size).read(),
                (&raw const (*header).index_mask).read(),
            )
        };
        let slots = u64::from(mask) + 1;
        let fits = log2_slot_size < 32
            && least_slot_size <= 1 << log2_slot_size
            && slots.is_power_of_two()
            && size_of::<QueueHeader>() as u64 + (slots << log2_slot_size) <= length as u64;
        if !fits {
            return Err(BadRing(format!(
                "a ring of {slots} slots of 2^{log2_slot_size} bytes does not fit {length} bytes \
                 or elements of {least_slot_size} bytes"
            )));
        }
        Ok(Self {
            base,
            slot_size: 1 << log2_slot_size,
            mask,
            _mapping: mapping,
        })
    }

    #[inline(always)]
    fn producer_index(&self) -> &AtomicU32 {
        // SAFETY: the header is mapped for as long as `self` lives and the field is aligned. Both
        // sides treat it as an atomic.
        unsafe {
            let header = self.base.cast::<QueueHeader>().as_ptr();
            AtomicU32::from_ptr(&raw mut (*header).producer_index)
        }
    }

    #[inline(always)]
    fn consumer_index(&self) -> &AtomicU32 {
        // SAFETY: as for `producer_index`.
        unsafe {
            let header = self.base.cast::<QueueHeader>().as_ptr();
            AtomicU32::from_ptr(&raw mut (*header).consumer_index)
        }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index <= self.mask);
        // SAFETY: `new` checked that `mask + 1` slots lie in the mapping behind the header. The
        // indices are those of the cursors, which are masked wherever they come from.
        unsafe {
            self.base
                .add(size_of::<QueueHeader>() + index as usize * self.slot_size)
        }
    }

    /// Calls `visit` with each of `count` slots from `first` on, of which the last is none beyond
    /// the ring's last.
    #[inline(always)]
    fn each(&self, first: u32, count: usize, mut visit: impl FnMut(usize, NonNull<u8>)) {
        let mut slot = self.slot(first);
        for number in 0..count {
            visit(number, slot);
            // SAFETY: the next slot is one of the ring, or right behind it and not used.
            slot = unsafe { slot.add(self.slot_size) };
        }
    }
}

/// The end of a ring that this process fills.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    cursor: ProducerCursor,
}

impl Producer {
    pub(super) fn new(mapping: Arc<Mapping>, least_slot_size: usize) -> Result<Self, BadRing> {
        let ring = Ring::new(mapping, least_slot_size)?;
        let (produced, consumed) = (ring.producer_index(), ring.consumer_index());
        let cursor = ProducerCursor::new(ring.mask, produced, consumed);
        Ok(Self { ring, cursor })
    }

    /// How many elements fit the ring.
    pub(super) fn depth(&self) -> u32 {
        self.ring.mask
    }

    /// Bytes in a slot.
    pub(super) fn slot_size(&self) -> usize {
        self.ring.slot_size
    }

    /// The next slot, if one is free. It may be filled until the next call, and counts from
    /// [`Producer::advance`] on.
    #[inline(always)]
    pub(super) fn free_slot(&mut self) -> Option<FreeSlot> {
        self.cursor.free(self.ring.consumer_index())
    }

    /// Where a slot is.
    #[inline(always)]
    pub(super) fn address(&self, slot: &FreeSlot) -> NonNull<u8> {
        self.ring.slot(slot.index())
    }

    /// Takes the slot that [`Producer::free_slot`] gave.
    #[inline(always)]
    pub(super) fn advance(&mut self, slot: FreeSlot) {
        self.cursor.advance(slot);
    }

    /// Whether slots were filled that the kernel was not told of.
    #[inline]
    pub(super) fn has_unpublished(&self) -> bool {
        self.cursor.has_unpublished()
    }

    /// Hands the filled slots to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.cursor.publish(self.ring.producer_index());
    }

    /// How many published elements the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.cursor.waiting(self.ring.consumer_index())
    }

    /// Forgets the filled slots that were not published.
    #[inline]
    pub(super) fn discard(&mut self) {
        self.cursor.discard();
    }
}

/// The end of a ring that this process empties.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    cursor: ConsumerCursor,
}

impl Consumer {
    pub(super) fn new(mapping: Arc<Mapping>, least_slot_size: usize) -> Result<Self, BadRing> {
        let ring = Ring::new(mapping, least_slot_size)?;
        let cursor = ConsumerCursor::new(ring.mask, ring.consumer_index());
        Ok(Self { ring, cursor })
    }

    /// How many elements fit the ring.
    pub(super) fn depth(&self) -> u32 {
        self.ring.mask
    }

    /// How many slots are full.
    #[inline(always)]
    pub(super) fn full(&self) -> usize {
        self.cursor.full(self.ring.producer_index())
    }

    /// Calls `take` with the next slot, which must be full, and gives it back to the kernel.
    #[inline(always)]
    pub(super) fn take_one(&mut self, take: impl FnOnce(NonNull<u8>)) {
        take(self.ring.slot(self.cursor.next()));
        self.cursor.skip(1);
        self.cursor.give_back(self.ring.consumer_index());
    }

    /// Calls `take` with each of the next `count` slots in order, which must be full, and gives them
    /// back to the kernel.
    #[inline(always)]
    pub(super) fn take(&mut self, count: usize, mut take: impl FnMut(usize, NonNull<u8>)) {
        let first = self.cursor.next();
        let up_to_the_end = (self.ring.mask - first) as usize + 1;
        let straight = count.min(up_to_the_end);
        self.ring.each(first, straight, &mut take);
        if straight < count {
            let rest = count - straight;
            self.ring
                .each(0, rest, |number, slot| take(straight + number, slot));
        }
        self.cursor.skip(count as u32);
        self.cursor.give_back(self.ring.consumer_index());
    }

    /// How far the kernel has come.
    #[inline]
    pub(super) fn produced(&self) -> u32 {
        self.cursor.produced(self.ring.producer_index())
    }

    /// The next full slot, if it lies before `produced`, which [`Consumer::produced`] said. It is
    /// the caller's until [`Consumer::give_back`].
    #[inline]
    pub(super) fn next_before(&mut self, produced: u32) -> Option<NonNull<u8>> {
        let next = self.cursor.next_before(produced)?;
        Some(self.ring.slot(next))
    }

    /// Gives the slots that were taken one by one to the kernel.
    #[inline]
    pub(super) fn give_back(&mut self) {
        self.cursor.give_back(self.ring.consumer_index());
    }
}
