//! Memory of the program's.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

/// Memory that is never given back, so that the card may look at it at any time.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub address: u64,
    pub length: usize,
}

impl Area {
    pub fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.next_multiple_of(4096), 4096).unwrap();
        // SAFETY: the size is not zero.
        let address = unsafe { alloc_zeroed(layout) } as u64;
        Self { address, length }
    }

    pub fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.length);
        // SAFETY: it is in our memory, which is never given back.
        unsafe { AtomicU8::from_ptr((self.address + at as u64) as *mut u8) }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (index, value) in bytes.iter().enumerate() {
            self.byte(at + index).store(*value, Ordering::Relaxed);
        }
    }

    pub fn get(&self, at: usize, length: usize) -> Vec<u8> {
        fence(Ordering::Acquire);
        let read = |at| self.byte(at).load(Ordering::Relaxed);
        (at..at + length).map(read).collect()
    }

    /// Stores a word in big-endian order, after all that was stored before.
    pub fn put_be32(&self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4) && at + 4 <= self.length);
        // SAFETY: as above, and it is aligned.
        let word = unsafe { AtomicU32::from_ptr((self.address + at as u64) as *mut u32) };
        word.store(value.to_be(), Ordering::Release);
    }
}
