//! The memory of a queue: pages of the process's own that the device reads or writes.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sys::{Kernel, Memory};

/// Elements of one size, as many as a power of two, somewhere in memory that may hold other queues.
#[derive(Debug, Clone)]
pub(super) struct QueueMemory {
    first: NonNull<u8>,
    mask: u32,
    shift: u32,
    /// Keeps `first` valid.
    _memory: Arc<Memory>,
}

// SAFETY: a `QueueMemory` is an address in memory that it keeps mapped. Who may touch which element
// is for those to say who do.
unsafe impl Send for QueueMemory {}
// SAFETY: as above.
unsafe impl Sync for QueueMemory {}

impl QueueMemory {
    /// `count` elements of 2^`shift` bytes, from `offset` on. The memory must have so many bytes: who
    /// allocated it for this knows.
    pub(super) fn new(memory: &Arc<Memory>, offset: usize, count: u32, shift: u32) -> Self {
        assert!(count.is_power_of_two());
        let end = offset + ((count as usize) << shift);
        assert!(end <= memory.length(), "a queue reaches beyond its memory");
        Self {
            // SAFETY: the offset was just seen to lie in the memory.
            first: unsafe { memory.address().add(offset) },
            mask: count - 1,
            shift,
            _memory: Arc::clone(memory),
        }
    }

    /// How many elements there are.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.mask + 1
    }

    /// The place of a counter.
    #[inline(always)]
    pub(super) fn index(&self, counter: u32) -> usize {
        (counter & self.mask) as usize
    }

    /// The element that a counter leads to. Aligned to its size, up to a page: the memory begins at a
    /// page, and what is before the queue in it is a multiple of the size, or of 64.
    #[inline(always)]
    pub(super) fn at(&self, counter: u32) -> NonNull<u8> {
        let offset = self.index(counter) << self.shift;
        // SAFETY: `new` saw that all elements lie in the memory.
        unsafe { self.first.add(offset) }
    }

    /// Bytes of an element.
    pub(super) fn stride(&self) -> usize {
        1 << self.shift
    }

    /// What the kernel is told.
    pub(super) fn address(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    /// A copy of all of it.
    ///
    /// # Safety
    ///
    /// Nobody may write to the memory meanwhile.
    #[cfg(test)]
    pub(super) unsafe fn bytes(&self) -> Vec<u8> {
        let length = (self.count() as usize) << self.shift;
        // SAFETY: by the caller; the memory has so many bytes.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), length) }.to_vec()
    }
}

/// Pages for a queue.
pub(super) fn pages(kernel: &Arc<dyn Kernel>, bytes: usize) -> Result<Arc<Memory>> {
    Memory::new(kernel, bytes)
        .map(Arc::new)
        .map_err(|error| Error::from_os("map_queue", &error))
}
