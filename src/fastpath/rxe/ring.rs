//! The ring that rxe shares with the kernel: a header with two indices, then power-of-two many
//! slots.
//!
//! One side produces, the other consumes; each stores its own index only, already reduced to the
//! number of slots. One slot stays empty, so that equal indices mean an empty ring.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmacm_kernel_abi::rxe::QueueHeader;

use crate::sys::Mapping;

/// Why a mapping is no ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRing(pub String);

/// A mapped ring with its geometry, which was read once and checked against the mapping.
#[derive(Debug)]
struct Ring {
    /// Address of the header.
    base: NonNull<u8>,
    log2_slot_size: u32,
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
            log2_slot_size,
            mask,
            _mapping: mapping,
        })
    }

    #[inline]
    fn producer_index(&self) -> &AtomicU32 {
        // SAFETY: the header is mapped for as long as `self` lives and the field is aligned. Both
        // sides treat it as an atomic.
        unsafe {
            let header = self.base.cast::<QueueHeader>().as_ptr();
            AtomicU32::from_ptr(&raw mut (*header).producer_index)
        }
    }

    #[inline]
    fn consumer_index(&self) -> &AtomicU32 {
        // SAFETY: as for `producer_index`.
        unsafe {
            let header = self.base.cast::<QueueHeader>().as_ptr();
            AtomicU32::from_ptr(&raw mut (*header).consumer_index)
        }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<u8> {
        let index = (index & self.mask) as usize;
        // SAFETY: `new` checked that `mask + 1` slots lie in the mapping behind the header.
        unsafe {
            self.base
                .add(size_of::<QueueHeader>() + (index << self.log2_slot_size))
        }
    }

    /// Calls `take` with each of `count` slots from `index` on, which must not go beyond the last.
    #[inline(always)]
    fn run(&self, index: u32, count: usize, mut take: impl FnMut(usize, NonNull<u8>)) {
        debug_assert!(index as usize + count <= self.mask as usize + 1);
        let mut slot = self.slot(index);
        for index in 0..count {
            take(index, slot);
            // SAFETY: there are as many slots, and an address right behind the last one is not
            // used.
            slot = unsafe { slot.add(1 << self.log2_slot_size) };
        }
    }
}

/// A slot to fill.
#[derive(Debug)]
pub(super) struct FreeSlot {
    // No `NonNull`, which would be compared with null to tell whether there is a slot.
    at: *mut u8,
    /// The slot behind it.
    after: u32,
}

impl FreeSlot {
    /// A part of the slot.
    ///
    /// # Safety
    ///
    /// The offset must be less than the slot's size.
    #[inline(always)]
    pub(super) unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: by the caller.
        unsafe { self.at.add(offset) }
    }
}

/// The end of a ring that this process fills.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    /// The next slot to fill.
    next: u32,
    /// What the kernel was told of: `next` as of the last publication.
    published: u32,
    /// The kernel's index as last seen; the free slots up to it need no look at shared memory.
    consumed: u32,
}

impl Producer {
    pub(super) fn new(mapping: Arc<Mapping>, least_slot_size: usize) -> Result<Self, BadRing> {
        let ring = Ring::new(mapping, least_slot_size)?;
        let next = ring.producer_index().load(Ordering::Relaxed) & ring.mask;
        let consumed = ring.consumer_index().load(Ordering::Relaxed) & ring.mask;
        Ok(Self {
            ring,
            next,
            published: next,
            consumed,
        })
    }

    /// How many elements fit the ring.
    pub(super) fn depth(&self) -> u32 {
        self.ring.mask
    }

    /// Bytes in a slot.
    pub(super) fn slot_size(&self) -> usize {
        1 << self.ring.log2_slot_size
    }

    /// The next slot, if one is free. It may be filled until the next call, and counts from
    /// [`Producer::advance`] on.
    #[inline(always)]
    pub(super) fn free_slot(&mut self) -> Option<FreeSlot> {
        let after = (self.next + 1) & self.ring.mask;
        if after == self.consumed {
            // Acquire pairs with the kernel's release of the slots it is done with: what we write
            // there cannot become visible before it stopped reading.
            self.consumed = self.ring.consumer_index().load(Ordering::Acquire) & self.ring.mask;
            if after == self.consumed {
                return None;
            }
        }
        let at = self.ring.slot(self.next).as_ptr();
        Some(FreeSlot { at, after })
    }

    /// Takes the slot that [`Producer::free_slot`] gave.
    #[inline(always)]
    pub(super) fn advance(&mut self, slot: FreeSlot) {
        self.next = slot.after;
    }

    /// Whether slots were filled that the kernel was not told of.
    #[inline]
    pub(super) fn has_unpublished(&self) -> bool {
        self.next != self.published
    }

    /// Hands the filled slots to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        // Release: the elements are in memory before the index that covers them. On x86-64 an
        // ordinary store, on aarch64 `stlr`; the kernel loads with acquire.
        let next = self.next;
        self.ring.producer_index().store(next, Ordering::Release);
        self.published = next;
    }

    /// Forgets the filled slots that were not published.
    #[inline]
    pub(super) fn discard(&mut self) {
        self.next = self.published;
    }
}

/// The end of a ring that this process empties.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    next: u32,
}

impl Consumer {
    pub(super) fn new(mapping: Arc<Mapping>, least_slot_size: usize) -> Result<Self, BadRing> {
        let ring = Ring::new(mapping, least_slot_size)?;
        let next = ring.consumer_index().load(Ordering::Relaxed) & ring.mask;
        Ok(Self { ring, next })
    }

    /// How many elements fit the ring.
    pub(super) fn depth(&self) -> u32 {
        self.ring.mask
    }

    /// Calls `take` with each full slot in order, at most `limit` of them, then gives them back to
    /// the kernel. Returns how many there were.
    #[inline(always)]
    pub(super) fn drain(
        &mut self,
        limit: usize,
        mut take: impl FnMut(usize, NonNull<u8>),
    ) -> usize {
        // Acquire pairs with the kernel's release: the elements are in memory before the index
        // that covers them. Masked at once, so that no value leads outside the ring.
        let produced = self.ring.producer_index().load(Ordering::Acquire) & self.ring.mask;
        let full = produced.wrapping_sub(self.next) & self.ring.mask;
        let count = limit.min(full as usize);
        if count == 0 {
            return 0;
        }
        let up_to_the_end = (self.ring.mask - self.next) as usize + 1;
        let first = count.min(up_to_the_end);
        self.ring
            .run(self.next, first, |index, slot| take(index, slot));
        self.ring
            .run(0, count - first, |index, slot| take(first + index, slot));
        // Release: the elements are copied out before the kernel may overwrite them.
        self.next = (self.next + count as u32) & self.ring.mask;
        self.ring
            .consumer_index()
            .store(self.next, Ordering::Release);
        count
    }
}
