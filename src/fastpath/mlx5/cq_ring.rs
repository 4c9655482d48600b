//! The memory of a completion queue, and whose each entry is.
//!
//! The device writes entries one after the other. Each has a bit that flips with every lap around the
//! queue: an entry is the program's while the bit is that of the lap which the program is in. No
//! index has to be read from the device.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rdmacm_kernel_abi::mlx5::{CQE_OWNER_MASK, Cqe64, CqeOpcode};

use super::doorbell;
use super::queue_memory::{QueueMemory, pages};
use super::send_entry::{Key, Look, Tail, Word};
use crate::error::Result;
use crate::sys::Kernel;

/// What an entry that was never written has for kind and owner.
const NEVER_WRITTEN: u8 = CqeOpcode::INVALID.0 << 4;

/// The entries.
#[derive(Debug)]
pub(super) struct CqRing {
    memory: QueueMemory,
}

/// An entry that is the program's. Of entries of 128 bytes this is the second half.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    at: NonNull<Cqe64>,
    /// Kind, format and owner, as they were when the entry was seen to be the program's.
    pub(super) op_own: u8,
    /// Whether there is a first half, of 64 bytes as well.
    is_wide: bool,
}

/// The place of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(NonNull<Cqe64>);

impl Place {
    /// Looks whose the entry is, if those with this owner are the program's.
    ///
    /// # Safety
    ///
    /// The ring must be there.
    #[inline(always)]
    pub(super) unsafe fn look(self, owner: Tail) -> Look {
        // SAFETY: by the caller.
        unsafe { Tail::of(self.0) }.against(owner)
    }

    /// Of which request the entry is, which must be the program's.
    ///
    /// # Safety
    ///
    /// The ring must be there.
    #[inline(always)]
    pub(super) unsafe fn word(self) -> Word {
        // SAFETY: by the caller.
        unsafe { Word::at(self.0) }
    }

    /// Whether the entry is of the queue pair that has `key` in the word at an offset.
    ///
    /// # Safety
    ///
    /// As for [`Place::word`], after which this is to be called; the offset must be that of a word.
    #[inline(always)]
    pub(super) unsafe fn has_key(self, key: Key, offset: usize) -> bool {
        // SAFETY: by the caller.
        unsafe { key.is_at(self.0, offset) }
    }
}

/// The place of the next entry, worked out in advance.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) counter: u32,
    /// Entries from here to the end of the memory.
    left: u32,
    at: NonNull<Cqe64>,
    /// Bytes from one entry to the next.
    stride: usize,
    /// The owner that entries have here which are the program's.
    owner: Tail,
}

// SAFETY: an address in the memory of a ring, which the completion queue keeps beside it.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}

impl Cursor {
    pub(super) fn new(ring: &CqRing, counter: u32) -> Self {
        Self {
            counter,
            at: ring.cqe(counter),
            left: ring.count() - ring.memory.index(counter) as u32,
            stride: ring.memory.stride(),
            owner: Tail::of_lap(counter & ring.count() != 0),
        }
    }

    /// The place of the next entry.
    #[inline(always)]
    pub(super) fn place(&self) -> Place {
        Place(self.at)
    }

    /// Looks whose the next entry is.
    ///
    /// # Safety
    ///
    /// The ring must be there.
    #[inline(always)]
    pub(super) unsafe fn look(&self) -> Look {
        // SAFETY: by the caller.
        unsafe { Tail::of(self.at) }.against(self.owner)
    }

    /// The owner that entries have up to the end of the memory which are the program's.
    #[inline(always)]
    pub(super) fn owner(&self) -> Tail {
        self.owner
    }

    /// The places from here to the end of the memory.
    #[inline(always)]
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let (first, stride) = (self.at, self.stride);
        // SAFETY: there are so many entries.
        (0..self.left as usize).map(move |number| Place(unsafe { first.byte_add(number * stride) }))
    }

    /// Goes on so many entries, at most to the end of the memory.
    #[inline(always)]
    pub(super) fn skip(&mut self, ring: &CqRing, count: u32) {
        self.counter = self.counter.wrapping_add(count);
        self.left -= count;
        if self.left == 0 {
            return self.begin_lap(ring);
        }
        // SAFETY: there is one more entry.
        self.at = unsafe { self.at.byte_add(count as usize * self.stride) };
    }

    /// Goes on to the next entry.
    #[inline(always)]
    pub(super) fn advance(&mut self, ring: &CqRing) {
        self.skip(ring, 1);
    }

    #[cold]
    fn begin_lap(&mut self, ring: &CqRing) {
        *self = Self::new(ring, self.counter);
    }
}

impl CqRing {
    /// Allocates `count` entries, a power of two, of `bytes` bytes: 64 or 128.
    pub(super) fn new(kernel: &Arc<dyn Kernel>, count: u32, bytes: u32) -> Result<Self> {
        let memory = pages(kernel, count as usize * bytes as usize)?;
        let memory = QueueMemory::new(&memory, 0, count, bytes.trailing_zeros());
        let ring = Self { memory };
        for index in 0..count {
            // The device does not know the queue yet.
            ring.op_own(index).store(NEVER_WRITTEN, Ordering::Relaxed);
        }
        Ok(ring)
    }

    pub(super) fn count(&self) -> u32 {
        self.memory.count()
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(super) fn bytes_per_entry(&self) -> u32 {
        self.memory.stride() as u32
    }

    /// The entry at a counter, if it is the program's.
    #[inline(always)]
    pub(super) fn get(&self, counter: u32) -> Option<Entry> {
        let op_own = self.op_own(counter).load(Ordering::Relaxed);
        let lap = counter & self.count() != 0;
        if op_own >> 4 == CqeOpcode::INVALID.0 || (op_own & CQE_OWNER_MASK != 0) != lap {
            return None;
        }
        // The device wrote the rest of the entry before the owner.
        doorbell::order_loads();
        Some(Entry {
            at: self.cqe(counter),
            op_own,
            is_wide: self.memory.stride() > size_of::<Cqe64>(),
        })
    }

    /// Where the entries end that are the program's from `counter` on: at most one lap further.
    pub(super) fn end(&self, counter: u32) -> u32 {
        let mut end = counter;
        while end.wrapping_sub(counter) < self.count() && self.get(end).is_some() {
            end = end.wrapping_add(1);
        }
        end
    }

    /// Copies the entry at one counter to another of the same queue, which keeps its owner.
    ///
    /// # Safety
    ///
    /// Both must be the program's, and nobody else may read them.
    pub(super) unsafe fn copy_within(&self, from: u32, to: u32) {
        let owner = self.op_own(to).load(Ordering::Relaxed) & CQE_OWNER_MASK;
        // SAFETY: by the caller.
        unsafe { self.copy(self, from, to, owner) };
    }

    /// Copies the entry at a counter of another queue to this one, where it is the program's.
    ///
    /// # Safety
    ///
    /// The device must not write to this queue's entry, and nobody else read it.
    pub(super) unsafe fn copy_from(&self, other: &Self, from: u32, to: u32) {
        let owner = u8::from(to & self.count() != 0);
        // SAFETY: by the caller.
        unsafe { self.copy(other, from, to, owner) };
    }

    /// # Safety
    ///
    /// As the callers.
    unsafe fn copy(&self, other: &Self, from: u32, to: u32, owner: u8) {
        let op_own = other.op_own(from).load(Ordering::Relaxed) & !CQE_OWNER_MASK | owner;
        let bytes = self.memory.stride().min(other.memory.stride());
        // SAFETY: both entries lie in their memory and have so many bytes at their end; by the caller
        // nobody else uses them. They are apart, or the same.
        unsafe {
            let end = other.memory.at(from).add(other.memory.stride() - bytes);
            let to = self.memory.at(to).add(self.memory.stride() - bytes);
            to.copy_from(end, bytes);
        }
        self.op_own(to).store(op_own, Ordering::Relaxed);
    }

    #[inline(always)]
    fn cqe(&self, counter: u32) -> NonNull<Cqe64> {
        let half = self.memory.stride() - size_of::<Cqe64>();
        // SAFETY: an entry has 64 bytes, or 128, the second half of which counts.
        unsafe { self.memory.at(counter).add(half).cast() }
    }

    #[inline(always)]
    fn op_own(&self, counter: u32) -> &AtomicU8 {
        let at = self.cqe(counter).as_ptr();
        // SAFETY: the entry lies in memory that `self` keeps alive, and this byte of it is accessed
        // as an atomic, or as part of a copy that nobody else reads.
        unsafe { AtomicU8::from_ptr(&raw mut (*at).op_own) }
    }

    /// A copy of the queue's memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        // SAFETY: tests have no device that writes meanwhile.
        unsafe { self.memory.bytes() }
    }

    /// Writes an entry as the device does, with its owner in it.
    #[cfg(any(test, fuzzing))]
    pub(super) fn put(&self, index: u32, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.memory.stride());
        let (body, last) = bytes.split_at(bytes.len() - 1);
        // SAFETY: the entry has so many bytes; tests are their own device.
        unsafe {
            let to = self.memory.at(index);
            to.copy_from_nonoverlapping(NonNull::from(body).cast(), body.len());
        }
        self.op_own(index).store(last[0], Ordering::Release);
    }
}

impl Entry {
    pub(super) fn kind(self) -> CqeOpcode {
        CqeOpcode(self.op_own >> 4)
    }

    /// A field of the entry, read once.
    ///
    /// # Safety
    ///
    /// `field` must lead to a field of the entry that is aligned for `T`, every bit pattern of which
    /// is a value.
    #[inline(always)]
    pub(super) unsafe fn read<T: Copy>(self, field: impl Fn(*const Cqe64) -> *const T) -> T {
        // SAFETY: by the caller; the entry is in memory that the queue keeps alive. Volatile: a device
        // gone wild may write meanwhile, and what was checked must be what is used.
        unsafe { field(self.at.as_ptr()).read_volatile() }
    }

    /// The bytes of a message, in an entry that holds them: in this half, or in the one before. `None`
    /// when there is no such half.
    pub(super) fn data(self, is_before: bool) -> Option<[u8; 64]> {
        let at = self.at.cast::<[u8; 64]>();
        // SAFETY: the half before is there in wide entries; otherwise as in `read`.
        unsafe {
            match is_before {
                true if self.is_wide => Some(at.sub(1).as_ptr().read_volatile()),
                true => None,
                false => Some(at.as_ptr().read_volatile()),
            }
        }
    }
}
