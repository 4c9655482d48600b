//! Requests as the device reads them.

use std::ptr::NonNull;

use rdmacm_kernel_abi::mlx5::{
    AtomicSeg, CtrlFlags, CtrlSeg, DataSeg, DatagramSeg, INLINE_SEG, InlDataSeg, Opcode, RaddrSeg,
    WqeAv,
};
use rdmacm_kernel_abi::uverbs::WcOpcode;

use super::sizes::SEGMENT;
use super::umr;
use crate::fastpath::request::{
    Operation, Payload, PostError, RemoteAddress, Request, Segment, SendFlags,
};

/// What stands at the beginning of a request besides its place and its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub opcode: Opcode,
    /// Immediate data or a key, as it is to stand there.
    pub word: u32,
    /// What the completion is to say, where the device's does not tell it.
    pub completion: u32,
    /// Whether the request changes a memory key, which the next one has to wait for.
    pub changes_key: bool,
}

/// What the device is to do for an operation.
#[inline(always)]
pub(super) fn head(operation: &Operation<'_>) -> Result<Head, PostError> {
    let plain = |opcode, word| {
        Ok(Head {
            opcode,
            word,
            completion: 0,
            changes_key: false,
        })
    };
    match *operation {
        Operation::Send | Operation::Datagram(_) => plain(Opcode::SEND, 0),
        Operation::SendImmediate(data) | Operation::DatagramImmediate(_, data) => {
            plain(Opcode::SEND_IMM, data)
        }
        Operation::SendInvalidate(key) => plain(Opcode::SEND_INVAL, key),
        Operation::Write(_) => plain(Opcode::RDMA_WRITE, 0),
        Operation::WriteImmediate(_, data) => plain(Opcode::RDMA_WRITE_IMM, data),
        Operation::Read(_) => plain(Opcode::RDMA_READ, 0),
        Operation::CompareSwap { .. } => plain(Opcode::ATOMIC_CS, 0),
        Operation::FetchAdd { .. } => plain(Opcode::ATOMIC_FA, 0),
        Operation::BindWindow(bind) => Ok(change_of_key(bind.old_rkey, WcOpcode::BIND_MW)),
        Operation::LocalInvalidate(key) => Ok(change_of_key(key, WcOpcode::LOCAL_INV)),
        Operation::AtomicWrite(_) => Err(PostError::NotOnDevice {
            what: "atomic write",
        }),
        Operation::Flush(_) => Err(PostError::NotOnDevice { what: "flush" }),
    }
}

#[cold]
fn change_of_key(key: u32, completion: WcOpcode) -> Head {
    Head {
        opcode: Opcode::UMR,
        word: key,
        completion: completion.0,
        changes_key: true,
    }
}

/// The flags of a request, besides those of the request before it.
#[inline(always)]
pub(super) fn flags(flags: SendFlags, signal_all: bool, wait_for_key: bool) -> CtrlFlags {
    let mut bits = CtrlFlags::empty();
    bits.set(
        CtrlFlags::CQ_UPDATE,
        signal_all || flags.contains(SendFlags::SIGNALED),
    );
    bits.set(CtrlFlags::SOLICITED, flags.contains(SendFlags::SOLICITED));
    // The greater fence includes the smaller.
    match flags.contains(SendFlags::FENCE) {
        true => bits.insert(CtrlFlags::FENCE),
        false => bits.set(CtrlFlags::INITIATOR_SMALL_FENCE, wait_for_key),
    }
    bits
}

/// Writes a request from `first` on and returns its length in units of 16 bytes.
///
/// # Safety
///
/// `first` must be valid for writes of the longest request of the queue, 8-aligned, and the request
/// be within the limits of the queue.
#[inline(always)]
pub(super) unsafe fn write(
    first: NonNull<u8>,
    head: &Head,
    flags: CtrlFlags,
    place: u16,
    qp_num: u32,
    request: &Request<'_>,
) -> u32 {
    let mut to = Writer(first);
    // SAFETY: by the caller there is room for all of the request.
    unsafe {
        to.skip::<CtrlSeg>();
        match request.operation {
            Operation::Write(at) | Operation::WriteImmediate(at, _) | Operation::Read(at) => {
                to.put(remote(at));
            }
            Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => {}
            other => to = write_rare(to, other, qp_num),
        }
        let is_atomic = matches!(
            request.operation,
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        );
        to.payload(&request.payload, is_atomic);
        let length = (to.0.as_ptr() as usize - first.as_ptr() as usize) as u32 / SEGMENT;
        let control = CtrlSeg {
            opmod_idx_opcode: (u32::from(place) << 8 | u32::from(head.opcode.0)).into(),
            qpn_ds: (qp_num << 8 | length).into(),
            signature: 0,
            dci_stream_channel_id: 0.into(),
            fm_ce_se: flags.bits(),
            imm: head.word.into(),
        };
        first.cast::<CtrlSeg>().write(control);
        length
    }
}

/// Writes what stands before the segments of operations that are not the most frequent.
///
/// # Safety
///
/// There must be room.
#[inline(never)]
unsafe fn write_rare(mut to: Writer, operation: Operation<'_>, qp_num: u32) -> Writer {
    // SAFETY: by the caller.
    unsafe {
        match operation {
            Operation::CompareSwap { at, compare, swap } => {
                to.put(remote(at));
                to.put(AtomicSeg {
                    swap_add: swap.into(),
                    compare: compare.into(),
                });
            }
            Operation::FetchAdd { at, add } => {
                to.put(remote(at));
                to.put(AtomicSeg {
                    swap_add: add.into(),
                    compare: 0.into(),
                });
            }
            Operation::Datagram(receiver) | Operation::DatagramImmediate(receiver, _) => {
                let av = receiver.vector().copied().unwrap_or_default();
                to.put(DatagramSeg {
                    av: WqeAv {
                        qkey: receiver.qkey.into(),
                        dqp_dct: (av.dqp_dct.get() | receiver.qp_num).into(),
                        ..av
                    },
                });
            }
            Operation::BindWindow(bind) => umr::write_bind(&mut to, &bind, qp_num),
            Operation::LocalInvalidate(_) => umr::write_invalidate(&mut to),
            _ => {}
        }
    }
    to
}

#[inline(always)]
fn remote(at: RemoteAddress) -> RaddrSeg {
    RaddrSeg {
        raddr: at.address.into(),
        rkey: at.rkey.into(),
        reserved: 0.into(),
    }
}

/// Where the next segment goes.
#[derive(Clone, Copy)]
pub(super) struct Writer(NonNull<u8>);

impl Writer {
    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    pub(super) unsafe fn put<T>(&mut self, segment: T) {
        // SAFETY: by the caller; requests begin at multiples of 64 and segments at multiples of 16.
        unsafe {
            self.0.cast::<T>().write(segment);
            self.skip::<T>();
        }
    }

    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    unsafe fn skip<T>(&mut self) {
        // SAFETY: by the caller.
        self.0 = unsafe { self.0.add(size_of::<T>()) };
    }

    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    unsafe fn payload(&mut self, payload: &Payload<'_>, is_atomic: bool) {
        // SAFETY: by the caller.
        unsafe {
            match *payload {
                Payload::Segments([segment]) if !segment.is_empty() && !is_atomic => {
                    self.put(data(segment, segment.length));
                }
                Payload::Segments(segments) => *self = self.segments(segments, is_atomic),
                Payload::Inline(bytes) => self.inline(bytes),
                // Refused before.
                Payload::Value(_) | Payload::Remote(_) => {}
            }
        }
    }

    /// Segments of no bytes are left out: to the device their length would be 2 GiB.
    ///
    /// # Safety
    ///
    /// There must be room.
    #[inline(never)]
    unsafe fn segments(mut self, segments: &[Segment], is_atomic: bool) -> Self {
        for segment in segments.iter().filter(|segment| !segment.is_empty()) {
            let length = if is_atomic { 8 } else { segment.length };
            // SAFETY: by the caller.
            unsafe { self.put(data(segment, length)) };
        }
        self
    }

    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    unsafe fn inline(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let head = InlDataSeg {
            byte_count: (bytes.len() as u32 | INLINE_SEG).into(),
        };
        let total = (size_of::<InlDataSeg>() + bytes.len()).next_multiple_of(SEGMENT as usize);
        // SAFETY: by the caller there is room for the bytes and for what rounds them up; they are
        // the program's, and not in the queue.
        unsafe {
            self.0.cast::<InlDataSeg>().write(head);
            let to = self.0.add(size_of::<InlDataSeg>());
            to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            self.0 = self.0.add(total);
        }
    }
}

/// A piece of memory.
#[inline(always)]
pub(super) fn data(segment: &Segment, length: u32) -> DataSeg {
    DataSeg {
        byte_count: length.into(),
        lkey: segment.lkey.into(),
        addr: segment.address.into(),
    }
}
