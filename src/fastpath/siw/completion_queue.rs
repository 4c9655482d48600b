//! The completion queue.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use rdmacm_kernel_abi::siw::{CqCtrl, Cqe, NotifyFlags, Opcode, WcStatus, WqeFlags};
use rdmacm_kernel_abi::uverbs;
use zerocopy::FromZeros;

use super::elements::Elements;
use crate::error::Result;
use crate::fastpath::completion::Completion;
use crate::fastpath::provider::bad_queue;
use crate::sys::Mapping;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    elements: Elements<Cqe>,
    next: u32,
}

impl CompletionQueue {
    /// The bytes of a queue of `count` elements, with the word behind them.
    pub(super) fn length(count: u32) -> usize {
        count as usize * size_of::<Cqe>() + size_of::<CqCtrl>()
    }

    /// Takes over the memory of `count` elements.
    pub(crate) fn new(mapping: Arc<Mapping>, count: u32) -> Result<Self> {
        if mapping.length() < Self::length(count) {
            let bytes = mapping.length();
            return Err(bad_queue(format!(
                "{bytes} bytes are too few for {count} completions"
            )));
        }
        Ok(Self {
            elements: Elements::new(mapping, count)?,
            next: 0,
        })
    }

    /// How many completions fit.
    pub(crate) fn depth(&self) -> u32 {
        self.elements.count()
    }

    /// Takes out as many completions as there are, up to the length of `entries`, and returns them.
    #[inline(never)]
    pub(crate) fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        let mut taken = 0;
        for entry in &mut *entries {
            let element = self.elements.at(self.next);
            // SAFETY: the element is in the mapping for as long as `self` lives, and its flags are
            // accessed as an atomic only.
            let flags = unsafe { AtomicU8::from_ptr(&raw mut (*element.as_ptr()).flags) };
            // Acquire pairs with the kernel's store of the flag: the element is in memory before.
            let seen = u16::from(flags.load(Ordering::Acquire));
            if seen & WqeFlags::VALID.bits() == 0 {
                break;
            }
            // SAFETY: the element is in the mapping, and ours while its flag is set.
            *entry = Completion(unsafe { translate(element, seen) });
            // Release: the element is copied out before the kernel may overwrite it.
            flags.store(0, Ordering::Release);
            self.next = self.next.wrapping_add(1);
            taken += 1;
        }
        &entries[..taken]
    }

    /// Where completions end at the latest: each slot is looked at once.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.next.wrapping_add(self.depth())
    }

    /// Takes the next completion before `end`. Its slot is the kernel's again at once.
    #[inline]
    pub(crate) fn next_before(&mut self, end: u32) -> Option<Completion> {
        let mut entry = [Completion::default()];
        match self.next != end {
            true => self.poll(&mut entry).first().copied(),
            false => None,
        }
    }

    /// Asks for an event at the next completion. There is no asking for solicited ones only: the
    /// kernel does not tell those apart when it receives, and would never raise the event.
    pub(crate) fn arm(&self) {
        let behind = self.elements.at(0).as_ptr();
        // SAFETY: `new` checked that the word lies in the mapping behind the elements; it is
        // aligned as they are, and both sides treat it as an atomic.
        let word = unsafe {
            let control = behind.add(self.depth() as usize).cast::<CqCtrl>();
            AtomicU32::from_ptr(&raw mut (*control).flags)
        };
        let any = NotifyFlags::SOLICITED | NotifyFlags::NEXT_COMPLETION;
        word.store(any.bits(), Ordering::Release);
        // The caller polls next. The kernel writes a completion and then reads this word, we write
        // the word and then read completions: with a full barrier between the two on both sides one
        // of them sees what the other did. On x86-64 `mfence`, on aarch64 `dmb ish`.
        fence(Ordering::SeqCst);
    }
}

/// The completion in the form that all providers share.
///
/// # Safety
///
/// The element must be valid for reads, and not be written to meanwhile.
#[inline]
unsafe fn translate(element: NonNull<Cqe>, flags: u16) -> uverbs::Wc {
    let from = element.as_ptr();
    let mut wc = uverbs::Wc::new_zeroed();
    // SAFETY: by the caller; every bit pattern is a value of these fields.
    unsafe {
        wc.wr_id = (&raw const (*from).id).read();
        wc.status = status((&raw const (*from).status).read());
        wc.opcode = opcode((&raw const (*from).opcode).read());
        wc.byte_len = (&raw const (*from).bytes).read();
        wc.qp_num = (&raw const (*from).qp_id).read() as u32;
        if flags & WqeFlags::REM_INVAL.bits() != 0 {
            wc.wc_flags = uverbs::WcFlags::WITH_INVALIDATE.bits();
            wc.ex = (&raw const (*from).imm_data).read() as u32;
        }
    }
    wc
}

/// What the driver's numbers that this crate does not know are raised by, to keep them apart from
/// those that all drivers share.
const UNKNOWN: u32 = 1 << 16;

#[inline]
fn opcode(siw: u8) -> u32 {
    use uverbs::WcOpcode;
    match Opcode(siw) {
        Opcode::SEND | Opcode::SEND_WITH_IMM | Opcode::SEND_REMOTE_INV => WcOpcode::SEND.0,
        Opcode::WRITE => WcOpcode::RDMA_WRITE.0,
        Opcode::READ | Opcode::READ_LOCAL_INV => WcOpcode::RDMA_READ.0,
        Opcode::RECEIVE => WcOpcode::RECV.0,
        Opcode(other) => UNKNOWN + u32::from(other),
    }
}

#[inline]
fn status(siw: u16) -> u32 {
    use uverbs::WcStatus as Wc;
    match WcStatus(siw) {
        WcStatus::SUCCESS => Wc::SUCCESS.0,
        WcStatus::LOC_LEN_ERR => Wc::LOC_LEN_ERR.0,
        WcStatus::LOC_PROT_ERR => Wc::LOC_PROT_ERR.0,
        WcStatus::LOC_QP_OP_ERR => Wc::LOC_QP_OP_ERR.0,
        WcStatus::WR_FLUSH_ERR => Wc::WR_FLUSH_ERR.0,
        WcStatus::BAD_RESP_ERR => Wc::BAD_RESP_ERR.0,
        WcStatus::LOC_ACCESS_ERR => Wc::LOC_ACCESS_ERR.0,
        WcStatus::REM_ACCESS_ERR => Wc::REM_ACCESS_ERR.0,
        WcStatus::REM_INV_REQ_ERR => Wc::REM_INV_REQ_ERR.0,
        WcStatus::GENERAL_ERR => Wc::GENERAL_ERR.0,
        WcStatus(other) => UNKNOWN + u32::from(other),
    }
}
