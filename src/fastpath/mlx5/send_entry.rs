//! Completions of sends and writes: the ones that come most, read with the fewest steps.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmacm_kernel_abi::mlx5::{
    CQE_OWNER_MASK, CQE_SOLICITED, Cqe64, CqeOpcode, NUMBER_MASK, Opcode,
};

use super::doorbell;

/// The last four bytes of an entry: the counter of the request, a signature, and `op_own`, which says
/// whose the entry is. They are loaded together, so that the counter is as old as the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail(u32);

const _: () = assert!(offset_of!(Cqe64, wqe_counter) == size_of::<Cqe64>() - size_of::<u32>());
const _: () = assert!(offset_of!(Cqe64, op_own) == size_of::<Cqe64>() - 1);
const _: () = assert!(CqeOpcode::REQ.0 == 0);

impl Tail {
    /// That of an entry.
    ///
    /// # Safety
    ///
    /// The entry must be in memory that is there, and nobody write to this part of it but the device,
    /// and this process as a whole or as an atomic.
    #[inline(always)]
    pub(super) unsafe fn of(at: NonNull<Cqe64>) -> Self {
        // SAFETY: by the caller; the four bytes are aligned, as was asserted.
        let tail = unsafe { AtomicU32::from_ptr((&raw mut (*at.as_ptr()).wqe_counter).cast()) };
        Self(tail.load(Ordering::Relaxed))
    }

    /// What the entries that are the program's have for an owner, in a lap whose bit is `lap`.
    pub(super) fn of_lap(lap: bool) -> Self {
        Self(u32::from(lap).to_be())
    }

    /// What tells whose the entry is, if those with this owner are the program's.
    #[inline(always)]
    pub(super) fn against(self, owner: Self) -> Look {
        Look(self.0 ^ owner.0)
    }
}

/// The end of an entry, with the bit of its owner 0 where it is the program's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look(u32);

impl Look {
    /// The bits of `op_own` that a send has like its owner: all but the one that is of receives only.
    const SEND: u32 = ((!CQE_SOLICITED) as u32).to_be();
    const OWNER: u32 = (CQE_OWNER_MASK as u32).to_be();
    /// The kind of one that the device has never written, which is the largest.
    const INVALID: u32 = ((CqeOpcode::INVALID.0 as u32) << 4).to_be();

    /// Whether the entry is the program's, and of a request that succeeded, without data: neither an
    /// error nor a receive.
    #[inline(always)]
    pub(super) fn is_send(self) -> bool {
        self.0 & Self::SEND == 0
    }

    /// Whether the entry is of the lap before: the device's still.
    #[inline(always)]
    pub(super) fn is_of_other_lap(self) -> bool {
        self.0 & Self::OWNER != 0
    }

    /// Whether the device has never written the entry.
    #[inline(always)]
    pub(super) fn is_never_written(self) -> bool {
        self.0 & Self::INVALID == Self::INVALID
    }

    /// The block at which the request began.
    #[inline(always)]
    pub(super) fn block(self) -> u32 {
        u32::from_be(self.0) >> 16
    }
}

/// The word of an entry that says which kind of request it is of, and by its number of which queue
/// pair. Both are mostly those of the entry before, and this is one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u32);

impl Word {
    /// That of the requests of a queue pair with this opcode.
    pub(super) fn of(opcode: Opcode, number: u32) -> Self {
        Self((u32::from(opcode.0) << 24 | number & NUMBER_MASK).to_be())
    }

    /// That of an entry.
    ///
    /// # Safety
    ///
    /// The entry must be the program's, and in memory that is there.
    #[inline(always)]
    pub(super) unsafe fn at(at: NonNull<Cqe64>) -> Self {
        // The device wrote the rest of the entry before the owner.
        doorbell::order_loads();
        // SAFETY: by the caller; an aligned word. Volatile: a device gone wild may write meanwhile, and
        // what was checked must be what is used.
        let word = unsafe {
            (&raw const (*at.as_ptr()).sop_drop_qpn)
                .cast::<u32>()
                .read_volatile()
        };
        Self(word)
    }
}

/// The number that completions name a queue pair by, as it stands in their word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u32);

impl Key {
    /// The three bytes that are the number.
    const MASK: u32 = NUMBER_MASK.to_be();

    pub(super) fn new(number: u32) -> Self {
        Self(number.to_be() & Self::MASK)
    }

    /// Whether an entry has it in the word at an offset in it.
    ///
    /// # Safety
    ///
    /// As for [`Word::at`], after which this is to be called; the offset must be that of a word.
    #[inline(always)]
    pub(super) unsafe fn is_at(self, at: NonNull<Cqe64>, offset: usize) -> bool {
        // SAFETY: by the caller; volatile as there.
        let word = unsafe { at.as_ptr().byte_add(offset).cast::<u32>().read_volatile() };
        (word ^ self.0) & Self::MASK == 0
    }
}
