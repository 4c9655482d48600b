//! The program's memory, as the card sees it: by address, at any time.
//!
//! All `unsafe` of the card is here. What makes it sound enough for tests: the program named the
//! memory to the kernel, which looked whether it is mapped, and must keep it mapped until it takes
//! the name back; `Card::note_unmap` finds out when it does not. Both sides write at the same time,
//! as the program and a real card do, so that everything shared goes through atomic accesses.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A piece of the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Memory {
    pub(crate) fn new(address: u64, length: u64) -> Self {
        Self { address, length }
    }

    /// Whether it shares a byte with the range.
    pub(crate) fn overlaps(self, address: u64, length: u64) -> bool {
        self.address < address.saturating_add(length)
            && address < self.address.saturating_add(self.length)
    }

    /// Whether all of it is mapped, the first and the last page and those between.
    pub(crate) fn is_mapped(self) -> bool {
        let start = self.address & !(PAGE - 1);
        let Some(end) = self.address.checked_add(self.length) else {
            return false;
        };
        if self.address < PAGE {
            return false;
        }
        let length = end.next_multiple_of(PAGE) - start;
        // SAFETY: flushing asynchronously changes nothing; unmapped memory is an error.
        unsafe { libc::msync(start as *mut _, length as usize, libc::MS_ASYNC) == 0 }
    }

    pub(crate) fn read(self, offset: u64, bytes: &mut [u8]) {
        assert!(offset + bytes.len() as u64 <= self.length, "inside");
        read(self.address + offset, bytes);
    }

    pub(crate) fn write(self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.length, "inside");
        write(self.address + offset, bytes);
    }

    /// A word that is big-endian in memory.
    pub(crate) fn be32(self, offset: u64) -> u32 {
        assert!(offset + 4 <= self.length, "inside");
        u32::from_be(word(self.address + offset).load(Ordering::Acquire))
    }

    pub(crate) fn byte(self, offset: u64) -> u8 {
        assert!(offset < self.length, "inside");
        byte(self.address + offset).load(Ordering::Acquire)
    }

    /// Writes a byte after everything that was written before.
    pub(crate) fn publish(self, offset: u64, value: u8) {
        assert!(offset < self.length, "inside");
        byte(self.address + offset).store(value, Ordering::Release);
    }
}

pub(crate) const PAGE: u64 = 4096;

/// Takes what was stored at the address: zero is there afterwards.
pub(crate) fn take(address: u64) -> u64 {
    let value = long(address);
    match value.load(Ordering::Relaxed) {
        0 => 0,
        _ => u64::from_be(value.swap(0, Ordering::AcqRel)),
    }
}

/// Carries an atomic operation out, and returns what was there before. All numbers in the order of
/// this machine, as is usual for memory that programs look at.
pub(crate) fn compare_swap(address: u64, compare: u64, swap: u64) -> u64 {
    let found = long(address).compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
    found.unwrap_or_else(|other| other)
}

pub(crate) fn fetch_add(address: u64, add: u64) -> u64 {
    long(address).fetch_add(add, Ordering::AcqRel)
}

pub(crate) fn read(address: u64, bytes: &mut [u8]) {
    fence(Ordering::Acquire);
    let mut at = address;
    let mut rest = bytes;
    while !rest.is_empty() {
        if at.is_multiple_of(8) && rest.len() >= 8 {
            let (now, later) = rest.split_at_mut(8);
            now.copy_from_slice(&long(at).load(Ordering::Relaxed).to_ne_bytes());
            (rest, at) = (later, at + 8);
        } else {
            let (now, later) = rest.split_at_mut(1);
            now[0] = byte(at).load(Ordering::Relaxed);
            (rest, at) = (later, at + 1);
        }
    }
    fence(Ordering::Acquire);
}

pub(crate) fn write(address: u64, bytes: &[u8]) {
    fence(Ordering::Release);
    let mut at = address;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rest.split_first_chunk::<8>() {
            Some((now, later)) if at.is_multiple_of(8) => {
                long(at).store(u64::from_ne_bytes(*now), Ordering::Relaxed);
                (rest, at) = (later, at + 8);
            }
            _ => {
                byte(at).store(rest[0], Ordering::Relaxed);
                (rest, at) = (&rest[1..], at + 1);
            }
        }
    }
    fence(Ordering::Release);
}

fn byte(address: u64) -> &'static AtomicU8 {
    // SAFETY: the program named the memory to the kernel, see the module's description. A byte
    // needs no alignment.
    unsafe { AtomicU8::from_ptr(address as *mut u8) }
}

fn word(address: u64) -> &'static AtomicU32 {
    assert!(address.is_multiple_of(4), "doorbell records are aligned");
    // SAFETY: as above; the alignment was checked.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

fn long(address: u64) -> &'static AtomicU64 {
    assert!(address.is_multiple_of(8), "atomics are aligned");
    // SAFETY: as above; the alignment was checked.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

/// A new page that the program and the card share.
pub(crate) fn new_page() -> Option<u64> {
    // SAFETY: new memory at a place of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (page != libc::MAP_FAILED).then_some(page as u64)
}
