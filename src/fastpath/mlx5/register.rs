//! Doorbell registers: pages of the device, and which queue pair rings where.
//!
//! A page (a UAR, of 4096 bytes) has two BlueFlame registers that a program can use, each of two
//! halves. A doorbell is 8 bytes; a whole request, if it is short, can be stored into a register
//! instead, so that the device need not fetch it (BlueFlame). The halves take turns: a store to one
//! does not wait for the one before to be taken out of the other.
//!
//! A queue pair has a register to itself while there are enough. After that queue pairs share, and
//! a lock keeps their stores apart.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdmacm_kernel_abi::mlx5::{BF_OFFSET, CQ_DOORBELL, UAR_SIZE};

use super::doorbell;
use crate::sys::Mapping;

/// A register that send queues ring.
#[derive(Debug)]
pub(super) struct Register {
    first: NonNull<u64>,
    /// Bytes of each half; 0 where there is only one place, for doorbells.
    half: u32,
    /// The half whose turn it is: its offset.
    turn: AtomicU32,
    /// Held while ringing, where queue pairs share the register.
    shared: Option<Mutex<()>>,
    /// What the kernel knows the page, or the register, by.
    index: u32,
    /// Keeps `first` valid.
    _page: Arc<Mapping>,
}

// SAFETY: a `Register` is an address into a page that it keeps mapped. It is only stored to, and by
// one thread at a time: the one that owns the send queue, or the one that holds the lock; doorbells
// to a register without halves are single stores of 8 bytes, which the device takes from anybody.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

/// How a register is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Doorbells of anybody: each is one store.
    Doorbells,
    /// BlueFlame, by one queue pair.
    Alone,
    /// BlueFlame, by several.
    Shared,
}

impl Register {
    /// The register `number` of the doorbell page that begins `uar` bytes into `page`. Its halves
    /// have `half` bytes each, unless it is for doorbells.
    ///
    /// `None` when it does not lie in the page.
    pub(super) fn new(
        page: &Arc<Mapping>,
        uar: usize,
        number: u32,
        half: u32,
        how: Use,
        index: u32,
    ) -> Option<Self> {
        let size = 2 * half as usize;
        let offset = BF_OFFSET.checked_add((number as usize).checked_mul(size)?)?;
        let end = offset.checked_add(size.max(8))?;
        let is_inside = end <= UAR_SIZE && uar.checked_add(end)? <= page.length();
        let is_sound = half.is_multiple_of(64) && (half == 0 || half.is_power_of_two());
        if !is_inside || !is_sound {
            return None;
        }
        Some(Self {
            // SAFETY: the register was just seen to lie in the mapping.
            first: unsafe { page.address().add(uar + offset) }.cast(),
            half: match how {
                Use::Doorbells => 0,
                Use::Alone | Use::Shared => half,
            },
            turn: AtomicU32::new(0),
            shared: (how == Use::Shared).then(|| Mutex::new(())),
            index,
            _page: Arc::clone(page),
        })
    }

    /// What the kernel knows the page, or the register, by.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Where the register begins in its page.
    #[cfg(test)]
    pub(super) fn offset(&self) -> usize {
        self.first.as_ptr() as usize % UAR_SIZE
    }

    /// Whether several queue pairs ring it.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Bytes of the longest request that can be stored instead of a doorbell; 0 for none.
    #[inline(always)]
    pub(super) fn half(&self) -> u32 {
        self.half
    }

    /// Rings, with the first 8 bytes of a request as they stand in memory.
    #[inline(always)]
    pub(super) fn ring(&self, bytes: u64) {
        let guard = self.begin();
        // SAFETY: each half is in the mapping and 64-aligned.
        unsafe { doorbell::store(self.place(), bytes) };
        self.end(guard);
    }

    /// Stores a request of `blocks` times 64 bytes, given how to find each block.
    ///
    /// # Safety
    ///
    /// `block` must return addresses that are valid for reads of 64 bytes, and 8-aligned. There must
    /// be no more than half a register of blocks.
    #[inline(always)]
    pub(super) unsafe fn store(&self, blocks: u32, block: impl Fn(u32) -> NonNull<u64>) {
        debug_assert!(blocks * 64 <= self.half);
        let guard = self.begin();
        let place = self.place();
        for number in 0..blocks {
            // SAFETY: by the caller; the half has room for the blocks, and is 64-aligned.
            unsafe { doorbell::store_block(place.add(number as usize * 8), block(number)) };
        }
        self.end(guard);
    }

    /// The same for a register that only one queue pair rings, and a request of so many bytes whose
    /// blocks follow one another.
    ///
    /// # Safety
    ///
    /// `from` must be valid for reads of as many blocks of 64 bytes as `bytes` reach into, and
    /// 8-aligned. They must be no more than half a register, and not none; the register must not be
    /// shared.
    #[inline(always)]
    pub(super) unsafe fn store_alone(&self, bytes: u32, from: NonNull<u64>) {
        const BLOCK: u32 = 64;
        const WORDS: usize = 8;
        debug_assert!(bytes.next_multiple_of(BLOCK) <= self.half && !self.is_shared());
        doorbell::flush();
        let turn = self.turn.load(Ordering::Relaxed);
        // SAFETY: the turn is 0 or one half: both are in the register. By the caller; the half has room
        // for the blocks, and is 64-aligned.
        unsafe {
            let place = self.first.byte_add(turn as usize);
            doorbell::store_block(place, from);
            // Two are what most messages take that are longer, without a loop.
            if bytes > BLOCK {
                doorbell::store_block(place.add(WORDS), from.add(WORDS));
            }
            if bytes > 2 * BLOCK {
                for number in 2..bytes.div_ceil(BLOCK) as usize {
                    doorbell::store_block(place.add(number * WORDS), from.add(number * WORDS));
                }
            }
        }
        doorbell::flush();
        self.turn.store(turn ^ self.half, Ordering::Relaxed);
    }

    /// The doorbell record is on its way before the register is touched.
    #[inline(always)]
    fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = self.shared.as_ref();
        let guard = lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        doorbell::flush();
        guard
    }

    /// What was stored is on its way before the other half is used, and before another thread uses
    /// the register: its store could overtake ours, which waits in this processor's buffers.
    #[inline(always)]
    fn end(&self, guard: Option<MutexGuard<'_, ()>>) {
        doorbell::flush();
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn ^ self.half, Ordering::Relaxed);
        drop(guard);
    }

    #[inline(always)]
    fn place(&self) -> NonNull<u64> {
        let turn = self.turn.load(Ordering::Relaxed) as usize;
        // SAFETY: the turn is 0 or one half: both are in the register.
        unsafe { self.first.byte_add(turn) }
    }
}

/// The register that arms completion queues.
#[derive(Debug, Clone)]
pub(super) struct ArmRegister {
    at: NonNull<u64>,
    /// What the kernel knows the page by.
    index: u32,
    _page: Arc<Mapping>,
}

// SAFETY: as for `Register`; each use is one store of 8 bytes.
unsafe impl Send for ArmRegister {}
// SAFETY: as above.
unsafe impl Sync for ArmRegister {}

impl ArmRegister {
    /// That of a doorbell page. `None` when it does not lie in the mapping.
    pub(super) fn new(page: &Arc<Mapping>, index: u32) -> Option<Self> {
        if page.length() < UAR_SIZE {
            return None;
        }
        Some(Self {
            // SAFETY: the register is in the page, whose length was checked.
            at: unsafe { page.address().add(CQ_DOORBELL as usize) }.cast(),
            index,
            _page: Arc::clone(page),
        })
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Arms: the command in the upper half, the queue's number in the lower.
    #[inline]
    pub(super) fn arm(&self, word: u64) {
        // The doorbell record of the queue says the same, and the device reads it.
        doorbell::flush();
        // SAFETY: the register is in the mapping and 8-aligned.
        unsafe { doorbell::store(self.at, word.to_be()) };
        doorbell::flush();
    }
}
