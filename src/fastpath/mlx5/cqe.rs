//! What a completion says.

use rdmacm_kernel_abi::mlx5::{
    Cqe64, CqeOpcode, CqeSyndrome, ErrCqe, INLINE_SCATTER_32, INLINE_SCATTER_64, NUMBER_MASK,
    Opcode,
};
use rdmacm_kernel_abi::uverbs::{Wc, WcFlags, WcOpcode, WcStatus};
use zerocopy::FromZeros;

use std::sync::Arc;

use super::cq_ring::Entry;
use super::posted::{Incoming, QueuePair, SharedReceives};
use super::scatter::{self, KnownRegions};

/// Which queue a completion is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Requester,
    Responder,
    FailedRequester,
    FailedResponder,
}

/// The side of a kind of completion; `None` for those of neither.
#[inline(always)]
pub(super) fn side(kind: CqeOpcode) -> Option<Side> {
    match kind {
        CqeOpcode::REQ => Some(Side::Requester),
        CqeOpcode::RESP_WR_IMM
        | CqeOpcode::RESP_SEND
        | CqeOpcode::RESP_SEND_IMM
        | CqeOpcode::RESP_SEND_INV => Some(Side::Responder),
        CqeOpcode::REQ_ERR => Some(Side::FailedRequester),
        CqeOpcode::RESP_ERR => Some(Side::FailedResponder),
        _ => None,
    }
}

/// What a number that is not of the kernel's is raised by, to keep it apart from those that are.
const UNKNOWN: u32 = 1 << 16;

/// A kind that is of no queue: reported, except the mark of a queue that was resized.
#[cold]
pub(super) fn is_unknown(entry: Entry, wc: &mut Wc) -> bool {
    of_nobody(entry, wc);
    entry.kind() != CqeOpcode::RESIZE_CQ
}

/// Whether the entry is the last of a queue that was resized.
pub(super) fn is_end_of_old_queue(entry: Entry) -> bool {
    entry.kind() == CqeOpcode::RESIZE_CQ
}

/// A completion of a queue pair that there is not, or of a kind that there is not: no program waits
/// for it, but it must hear that something is wrong.
#[cold]
pub(super) fn of_nobody(entry: Entry, wc: &mut Wc) {
    *wc = Wc {
        wr_id: u64::MAX,
        status: WcStatus::FATAL_ERR.0,
        vendor_err: u32::from(entry.kind().0),
        qp_num: qp_num(sop_drop_qpn(entry)),
        ..Wc::new_zeroed()
    };
}

/// Whether what came, a message or an answer, is within the entry and is to be copied to where it belongs.
#[inline(always)]
pub(super) fn carries_data(entry: Entry) -> bool {
    entry.op_own & (INLINE_SCATTER_32 | INLINE_SCATTER_64) != 0
}

/// What an entry is told by: its queue pair, the memory it may be about, and whether the queue pair is
/// still as it was when the entry was seen. That is asked when the request has been found: of a queue
/// pair that was reset meanwhile it may be another, which was posted since.
pub(super) struct Telling<'t, F> {
    pub pair: &'t QueuePair,
    pub regions: &'t mut KnownRegions,
    pub is_current: F,
}

/// A request that is done. False where the queue pair was reset, and nothing is told.
#[inline(always)]
pub(super) fn requester(
    entry: Entry,
    telling: Telling<'_, impl Fn() -> bool>,
    wc: &mut Wc,
) -> bool {
    let pair = telling.pair;
    let sop_drop_qpn = sop_drop_qpn(entry);
    let counter = wqe_counter(entry);
    let noted = pair.sends.as_ref().and_then(|sends| sends.find(counter));
    if !(telling.is_current)() {
        return false;
    }
    let (Some(sends), Some(noted)) = (&pair.sends, noted) else {
        of_nobody(entry, wc);
        return true;
    };
    *wc = Wc {
        wr_id: noted.wr_id,
        qp_num: qp_num(sop_drop_qpn),
        ..Wc::new_zeroed()
    };
    match Opcode((sop_drop_qpn >> 24) as u8) {
        Opcode::SEND | Opcode::SEND_INVAL => wc.opcode = WcOpcode::SEND.0,
        Opcode::RDMA_WRITE => wc.opcode = WcOpcode::RDMA_WRITE.0,
        other => answered(other, noted.opcode, entry, wc),
    }
    if carries_data(entry) {
        wc.status = scatter::to_request(entry, counter, sends, wc.byte_len, telling.regions).0;
    }
    sends.progress.finish(noted.number);
    true
}

/// What is to be said of the operations that bring an answer, and of the rest.
#[inline(never)]
fn answered(opcode: Opcode, noted: u32, entry: Entry, wc: &mut Wc) {
    match opcode {
        Opcode::SEND_IMM => {
            wc.opcode = WcOpcode::SEND.0;
            wc.wc_flags = WcFlags::WITH_IMM.bits();
        }
        Opcode::RDMA_WRITE_IMM => {
            wc.opcode = WcOpcode::RDMA_WRITE.0;
            wc.wc_flags = WcFlags::WITH_IMM.bits();
        }
        Opcode::RDMA_READ => {
            wc.opcode = WcOpcode::RDMA_READ.0;
            wc.byte_len = byte_count(entry);
        }
        Opcode::ATOMIC_CS => {
            wc.opcode = WcOpcode::COMP_SWAP.0;
            wc.byte_len = 8;
        }
        Opcode::ATOMIC_FA => {
            wc.opcode = WcOpcode::FETCH_ADD.0;
            wc.byte_len = 8;
        }
        Opcode::TSO => wc.opcode = WcOpcode::TSO.0,
        Opcode::UMR | Opcode::NOP => wc.opcode = noted,
        Opcode(other) => wc.opcode = UNKNOWN + u32::from(other),
    }
}

/// A receive that a message came for. False as for [`requester`].
#[inline(always)]
pub(super) fn responder(
    entry: Entry,
    telling: Telling<'_, impl Fn() -> bool>,
    wc: &mut Wc,
) -> bool {
    let pair = telling.pair;
    let counter = wqe_counter(entry);
    let received = receive(counter, pair);
    if is_of_pair(received.as_ref()) && !(telling.is_current)() {
        return false;
    }
    let Some(received) = received else {
        of_nobody(entry, wc);
        return true;
    };
    let byte_len = byte_count(entry);
    // SAFETY: the fields are aligned words of the entry.
    let (flags_rqpn, immediate) = unsafe {
        (
            u32::from_be(entry.read(|at| (&raw const (*at).flags_rqpn).cast::<u32>())),
            entry.read(|at| (&raw const (*at).imm_inval_pkey).cast::<u32>()),
        )
    };
    *wc = Wc {
        wr_id: received.wr_id,
        byte_len,
        qp_num: qp_num(sop_drop_qpn(entry)),
        opcode: WcOpcode::RECV.0,
        src_qp: flags_rqpn & NUMBER_MASK,
        sl: (flags_rqpn >> 24 & 0xf) as u8,
        pkey_index: u32::from_be(immediate) as u16,
        ..Wc::new_zeroed()
    };
    if flags_rqpn >> 28 & 3 != 0 {
        wc.wc_flags = WcFlags::GRH.bits();
    }
    match entry.kind() {
        CqeOpcode::RESP_SEND => {}
        CqeOpcode::RESP_SEND_INV => {
            wc.wc_flags |= WcFlags::WITH_INVALIDATE.bits();
            wc.ex = u32::from_be(immediate);
        }
        kind => {
            if kind == CqeOpcode::RESP_WR_IMM {
                wc.opcode = WcOpcode::RECV_RDMA_WITH_IMM.0;
            }
            wc.wc_flags |= WcFlags::WITH_IMM.bits();
            wc.ex = immediate;
        }
    }
    // SAFETY: the fields are an aligned half word and a byte of the entry.
    unsafe {
        let slid = entry.read(|at| (&raw const (*at).slid).cast::<u16>());
        wc.slid = u16::from_be(slid);
        wc.dlid_path_bits = entry.read(|at| &raw const (*at).ml_path) & 0x7f;
    }
    if carries_data(entry) {
        wc.status =
            scatter::to_receive(entry, counter, &pair.incoming, byte_len, telling.regions).0;
        if wc.status != WcStatus::SUCCESS.0 {
            // What failed tells no more.
            wc.wc_flags = 0;
        }
    }
    received.finish();
    true
}

/// Whether a receive that was found, or was not, may be another once the queue pair was reset. That of a
/// shared queue has been taken out of it, and is what the entry is of.
#[inline(always)]
fn is_of_pair(received: Option<&Received<'_>>) -> bool {
    !matches!(
        received.map(|received| received.incoming),
        Some(Incoming::Shared(_))
    )
}

/// A receive that a completion has come for.
struct Received<'p> {
    wr_id: u64,
    /// In its queue: the number, or the place in a shared one.
    number: u64,
    incoming: &'p Incoming,
}

/// The receive at a place, if one is posted there.
#[inline(always)]
fn receive(counter: u32, pair: &QueuePair) -> Option<Received<'_>> {
    let incoming = &pair.incoming;
    let (number, wr_id) = match incoming {
        Incoming::Own(receives) => receives.find(counter)?,
        Incoming::Shared(receives) => (u64::from(counter), receives.take(counter)?),
        Incoming::None => return None,
    };
    Some(Received {
        wr_id,
        number,
        incoming,
    })
}

impl Received<'_> {
    /// Gives its place back: nothing of it is read any more.
    #[inline(always)]
    fn finish(self) {
        match self.incoming {
            Incoming::Own(receives) => receives.progress.finish(self.number),
            Incoming::Shared(receives) => receives.give_back(self.number as u32),
            Incoming::None => {}
        }
    }
}

/// A request or a receive that failed. What the completion says besides has no meaning. False as for
/// [`requester`].
#[cold]
pub(super) fn failure(
    entry: Entry,
    telling: Telling<'_, impl Fn() -> bool>,
    side: Side,
    wc: &mut Wc,
) -> bool {
    let pair = telling.pair;
    let counter = wqe_counter(entry);
    let wr_id = match (side, &pair.sends) {
        (Side::FailedRequester, sends) => {
            let noted = sends.as_ref().and_then(|sends| sends.find(counter));
            if !(telling.is_current)() {
                return false;
            }
            if let (Some(sends), Some(noted)) = (sends, noted) {
                sends.progress.finish(noted.number);
            }
            noted.map(|noted| noted.wr_id)
        }
        _ => {
            let received = receive(counter, pair);
            if is_of_pair(received.as_ref()) && !(telling.is_current)() {
                return false;
            }
            received.map(|received| {
                let wr_id = received.wr_id;
                received.finish();
                wr_id
            })
        }
    };
    let Some(wr_id) = wr_id else {
        of_nobody(entry, wc);
        return true;
    };
    // SAFETY: the fields are bytes of the entry, which is of this form.
    let (syndrome, vendor) = unsafe {
        (
            entry.read(|at| &raw const (*at.cast::<ErrCqe>()).syndrome),
            entry.read(|at| &raw const (*at.cast::<ErrCqe>()).vendor_err_synd),
        )
    };
    *wc = Wc {
        wr_id,
        status: status(CqeSyndrome(syndrome)).0,
        vendor_err: u32::from(vendor),
        qp_num: qp_num(sop_drop_qpn(entry)),
        ..Wc::new_zeroed()
    };
    true
}

/// Forgets a completion that nobody is to see. The place of a shared receive becomes free.
pub(super) fn forget(entry: Entry, shared: Option<&Arc<SharedReceives>>) {
    let is_receive = matches!(
        side(entry.kind()),
        Some(Side::Responder | Side::FailedResponder)
    );
    let counter = wqe_counter(entry);
    if let Some(receives) = shared.filter(|_| is_receive)
        && receives.take(counter).is_some()
    {
        receives.give_back(counter);
    }
}

fn status(syndrome: CqeSyndrome) -> WcStatus {
    match syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR => WcStatus::LOC_LEN_ERR,
        CqeSyndrome::LOCAL_QP_OP_ERR => WcStatus::LOC_QP_OP_ERR,
        CqeSyndrome::LOCAL_PROT_ERR => WcStatus::LOC_PROT_ERR,
        CqeSyndrome::WR_FLUSH_ERR => WcStatus::WR_FLUSH_ERR,
        CqeSyndrome::MW_BIND_ERR => WcStatus::MW_BIND_ERR,
        CqeSyndrome::BAD_RESP_ERR => WcStatus::BAD_RESP_ERR,
        CqeSyndrome::LOCAL_ACCESS_ERR => WcStatus::LOC_ACCESS_ERR,
        CqeSyndrome::REMOTE_INVAL_REQ_ERR => WcStatus::REM_INV_REQ_ERR,
        CqeSyndrome::REMOTE_ACCESS_ERR => WcStatus::REM_ACCESS_ERR,
        CqeSyndrome::REMOTE_OP_ERR => WcStatus::REM_OP_ERR,
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => WcStatus::RETRY_EXC_ERR,
        CqeSyndrome::RNR_RETRY_EXC_ERR => WcStatus::RNR_RETRY_EXC_ERR,
        CqeSyndrome::REMOTE_ABORTED_ERR => WcStatus::REM_ABORT_ERR,
        _ => WcStatus::GENERAL_ERR,
    }
}

/// Opcode of a request, and number of the queue pair.
#[inline(always)]
fn sop_drop_qpn(entry: Entry) -> u32 {
    // SAFETY: the field is an aligned word of the entry.
    let word = unsafe { entry.read(|at| (&raw const (*at).sop_drop_qpn).cast::<u32>()) };
    u32::from_be(word)
}

#[inline(always)]
fn qp_num(sop_drop_qpn: u32) -> u32 {
    sop_drop_qpn & NUMBER_MASK
}

/// Where in its queue the request or the receive stands.
#[inline(always)]
fn wqe_counter(entry: Entry) -> u32 {
    // SAFETY: the field is an aligned half word of the entry.
    let word =
        unsafe { entry.read(|at: *const Cqe64| (&raw const (*at).wqe_counter).cast::<u16>()) };
    u32::from(u16::from_be(word))
}

#[inline(always)]
fn byte_count(entry: Entry) -> u32 {
    // SAFETY: the field is an aligned word of the entry.
    let word = unsafe { entry.read(|at| (&raw const (*at).byte_cnt).cast::<u32>()) };
    u32::from_be(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::mem::offset_of;

    use crate::fastpath::mlx5::cq_ring::CqRing;
    use crate::fastpath::mlx5::posted::{FIRST, Receives, Sends};
    use crate::fastpath::mlx5::queue_memory::{QueueMemory, pages};
    use crate::sys::hostile::Hostile;
    use crate::sys::{Kernel, page_size};

    const OLD: u64 = 7;
    const NEW: u64 = 8;

    /// A queue pair with one send and one receive under way, and a ring with an entry of the first block.
    fn pair_and_ring(kind: CqeOpcode) -> (QueuePair, CqRing) {
        let kernel: Arc<dyn Kernel> = Hostile::new();
        let memory = pages(&kernel, page_size()).unwrap();
        let queue = || QueueMemory::new(&memory, 0, 4, 6);
        let (sends, receives) = (Sends::new(queue(), true), Receives::new(queue()));
        sends.note(0, FIRST, OLD, 0);
        receives.note(FIRST, OLD);
        let pair = QueuePair {
            key: 3,
            number: 3,
            sends: Some(Arc::new(sends)),
            incoming: Incoming::Own(Arc::new(receives)),
        };
        let ring = CqRing::new(&kernel, 8, 64).unwrap();
        let mut bytes = [0; 64];
        bytes[offset_of!(Cqe64, sop_drop_qpn)] = Opcode::SEND.0;
        bytes[offset_of!(Cqe64, op_own)] = kind.0 << 4;
        ring.put(0, &bytes);
        (pair, ring)
    }

    fn done(pair: &QueuePair) -> [u64; 2] {
        let Incoming::Own(receives) = &pair.incoming else {
            unreachable!("see `pair_and_ring`");
        };
        let sends = pair.sends.as_ref().unwrap();
        [sends.progress.done(), receives.progress.done()]
    }

    /// What an entry of this kind tells if the queue pair is reset, and used again, as soon as its request
    /// has been found.
    fn told_in_between(kind: CqeOpcode, is_current: bool) -> (bool, Wc, [u64; 2]) {
        let (pair, ring) = pair_and_ring(kind);
        let entry = ring.get(0).unwrap();
        let asked = Cell::new(0);
        let telling = Telling {
            pair: &pair,
            regions: &mut KnownRegions::new(Arc::default()),
            is_current: || {
                asked.set(asked.get() + 1);
                pair.sends.as_ref().unwrap().note(0, FIRST + 1, NEW, 0);
                if let Incoming::Own(receives) = &pair.incoming {
                    receives.forget();
                    receives.note(FIRST + 4, NEW);
                }
                is_current
            },
        };
        let mut wc = Wc::default();
        let is_told = match side(kind).unwrap() {
            Side::Requester => requester(entry, telling, &mut wc),
            Side::Responder => responder(entry, telling, &mut wc),
            failed => failure(entry, telling, failed, &mut wc),
        };
        assert_eq!(asked.get(), 1, "of {kind:?}");
        (is_told, wc, done(&pair))
    }

    const KINDS: [CqeOpcode; 4] = [
        CqeOpcode::REQ,
        CqeOpcode::RESP_SEND,
        CqeOpcode::REQ_ERR,
        CqeOpcode::RESP_ERR,
    ];

    #[test]
    fn an_entry_of_a_life_before_a_reset_finishes_nothing() {
        for kind in KINDS {
            let (is_told, _, done) = told_in_between(kind, false);
            assert!(!is_told, "{kind:?}");
            assert_eq!(done, [FIRST; 2], "{kind:?}");
        }
    }

    #[test]
    fn a_request_is_found_before_it_is_asked_whether_the_queue_pair_is_as_it_was() {
        for kind in KINDS {
            let (is_told, wc, done) = told_in_between(kind, true);
            assert!(is_told, "{kind:?}");
            assert_eq!(wc.wr_id, OLD, "{kind:?}");
            let finished = done.iter().filter(|done| **done == FIRST + 1).count();
            assert_eq!(finished, 1, "{kind:?}");
        }
    }
}
