//! Completions of sends and writes: the ones that come most, read with the fewest steps.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rdmacm_kernel_abi::mlx5::{CQE_SOLICITED, Cqe64, CqeOpcode, NUMBER_MASK, Opcode};
use rdmacm_kernel_abi::uverbs::WcOpcode;

use super::doorbell;

/// An entry of a request that succeeded and whose data is not in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendEntry(NonNull<Cqe64>);

/// What such an entry says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    /// The block at which the request began.
    pub block: u32,
    /// The opcode of the completion.
    pub completion: u32,
}

const _: () = assert!(CqeOpcode::REQ.0 == 0);

/// The opcode of the completion of each kind of request, and `OTHER` where the completion says more.
static COMPLETIONS: [u8; 256] = {
    let mut table = [OTHER; 256];
    table[Opcode::SEND.0 as usize] = WcOpcode::SEND.0 as u8;
    table[Opcode::SEND_INVAL.0 as usize] = WcOpcode::SEND.0 as u8;
    table[Opcode::RDMA_WRITE.0 as usize] = WcOpcode::RDMA_WRITE.0 as u8;
    table
};
const OTHER: u8 = 1 << 7;

impl SendEntry {
    /// The entry, if it is the program's, with this owner, and of this form: neither an error nor
    /// a receive, and without data.
    ///
    /// # Safety
    ///
    /// The entry must be in memory that outlives the result, and its owner be accessed as an atomic.
    #[inline(always)]
    pub(super) unsafe fn of(at: NonNull<Cqe64>, owner: u8) -> Option<Self> {
        // SAFETY: by the caller.
        let op_own = unsafe { AtomicU8::from_ptr(&raw mut (*at.as_ptr()).op_own) };
        // All bits but one are to be as they are of such entries: the kind is 0.
        let is_it = op_own.load(Ordering::Relaxed) & !CQE_SOLICITED == owner;
        // The device wrote the rest of the entry before the owner.
        doorbell::order_loads();
        is_it.then_some(Self(at))
    }

    /// What it says, if it is of the queue pair that has `key` in the word at an offset in the entry.
    #[inline(always)]
    pub(super) fn read(self, place_of_key: usize, key: Key) -> Option<Said> {
        let at = self.0.as_ptr();
        // SAFETY: the fields are an aligned word, a half word, and a byte of the entry. Volatile: a
        // device gone wild may write meanwhile, and what was checked must be what is used.
        let (word, counter, opcode) = unsafe {
            (
                at.byte_add(place_of_key).cast::<u32>().read_volatile(),
                (&raw const (*at).wqe_counter).cast::<u16>().read_volatile(),
                (&raw const (*at).sop_drop_qpn).cast::<u8>().read_volatile(),
            )
        };
        if (word ^ key.0) & Key::MASK != 0 {
            return None;
        }
        let completion = COMPLETIONS[usize::from(opcode)];
        (completion & OTHER == 0).then_some(Said {
            block: u32::from(u16::from_be(counter)),
            completion: u32::from(completion),
        })
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
}
