//! Requests as the device reads them.

use std::mem::offset_of;
use std::ptr::NonNull;

use rdmacm_kernel_abi::mlx5::{
    AtomicSeg, CtrlFlags, CtrlSeg, DataSeg, DatagramSeg, INLINE_SEG, InlDataSeg, NUMBER_MASK,
    Opcode, RaddrSeg, WqeAv,
};
use rdmacm_kernel_abi::uverbs::WcOpcode;

use super::sizes::SEGMENT;
use super::umr;
use crate::fastpath::copy::copy_bytes;
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

/// Whether a request is one of those that are posted most, and within the limits of the queue: to send,
/// to write or to read, one segment or inline.
#[inline(always)]
pub(super) fn is_usual(request: &Request<'_>, max_inline: u32) -> bool {
    let is_usual = matches!(
        request.operation,
        Operation::Send
            | Operation::SendImmediate(_)
            | Operation::SendInvalidate(_)
            | Operation::Write(_)
            | Operation::WriteImmediate(..)
            | Operation::Read(_)
    );
    is_usual
        && match request.payload {
            Payload::Segments([segment]) => !segment.is_empty(),
            Payload::Inline(bytes) => !bytes.is_empty() && bytes.len() <= max_inline as usize,
            _ => false,
        }
}

/// A queue pair's number as it stands in requests.
pub(super) fn qpn(qp_num: u32) -> u32 {
    qp_num << 8
}

/// Writes such a request from `first` on and returns its length in units of 16 bytes. Of one segment
/// that is known when the program is compiled. `qpn` is as [`qpn`] says.
///
/// # Safety
///
/// As for [`write`].
#[inline(always)]
pub(super) unsafe fn write_usual(
    first: NonNull<u8>,
    head: &Head,
    flags: CtrlFlags,
    place: u16,
    qpn: u32,
    request: &Request<'_>,
) -> u32 {
    let mut to = Writer(first);
    let mut length = size_of::<CtrlSeg>() as u32 / SEGMENT;
    // SAFETY: by the caller there is room for all of the request.
    unsafe {
        to.skip::<CtrlSeg>();
        if let Operation::Write(at) | Operation::WriteImmediate(at, _) | Operation::Read(at) =
            request.operation
        {
            to.put(remote(at));
            length += size_of::<RaddrSeg>() as u32 / SEGMENT;
        }
        match request.payload {
            Payload::Segments([segment]) => {
                to.data(segment, segment.length);
                length += 1;
            }
            Payload::Inline(bytes) => length += to.inline_usual(bytes),
            _ => {}
        }
        write_control(first, head, flags, place, qpn, length);
    }
    length
}

/// Writes the beginning of a request of so many units of 16 bytes.
///
/// # Safety
///
/// There must be room.
#[inline(always)]
unsafe fn write_control(
    first: NonNull<u8>,
    head: &Head,
    flags: CtrlFlags,
    place: u16,
    qpn: u32,
    length: u32,
) {
    let control = CtrlSeg {
        opmod_idx_opcode: (u32::from(place) << 8 | u32::from(head.opcode.0)).into(),
        qpn_ds: (qpn | length).into(),
        signature: 0,
        dci_stream_channel_id: 0.into(),
        fm_ce_se: flags.bits(),
        imm: head.word.into(),
    };
    // SAFETY: by the caller; requests begin at multiples of 64.
    unsafe { first.cast().write(control.to_words()) };
}

/// Writes a request from `first` on and returns its length in units of 16 bytes.
///
/// # Safety
///
/// `first` must be valid for writes of the longest request of the queue, 8-aligned, and the request
/// be within the limits of the queue.
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
            other => write_rare(&mut to, other, qp_num),
        }
        let is_atomic = matches!(
            request.operation,
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        );
        to.payload(&request.payload, is_atomic);
        let length = (to.0.as_ptr() as usize - first.as_ptr() as usize) as u32 / SEGMENT;
        write_control(first, head, flags, place, qpn(qp_num), length);
        length
    }
}

/// Writes what stands before the segments of operations that are not the most frequent.
///
/// # Safety
///
/// There must be room.
unsafe fn write_rare(to: &mut Writer, operation: Operation<'_>, qp_num: u32) {
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
                        dqp_dct: (av.dqp_dct.get() | receiver.qp_num & NUMBER_MASK).into(),
                        ..av
                    },
                });
            }
            Operation::BindWindow(bind) => umr::write_bind(to, &bind, qp_num),
            Operation::LocalInvalidate(_) => umr::write_invalidate(to),
            _ => {}
        }
    }
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
    unsafe fn payload(&mut self, payload: &Payload<'_>, is_atomic: bool) {
        // SAFETY: by the caller.
        unsafe {
            match *payload {
                Payload::Segments(segments) => self.segments(segments, is_atomic),
                Payload::Inline([]) => {}
                Payload::Inline(bytes) => drop(self.inline_usual(bytes)),
                // Refused before.
                Payload::Value(_) | Payload::Remote(_) => {}
            }
        }
    }

    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    unsafe fn data(&mut self, segment: &Segment, length: u32) {
        // SAFETY: by the caller; segments begin at multiples of 16.
        unsafe {
            write_data(self.0.cast(), segment, length);
            self.skip::<DataSeg>();
        }
    }

    /// Segments of no bytes are left out: to the device their length would be 2 GiB.
    ///
    /// # Safety
    ///
    /// There must be room.
    unsafe fn segments(&mut self, segments: &[Segment], is_atomic: bool) {
        for segment in segments.iter().filter(|segment| !segment.is_empty()) {
            let length = if is_atomic { 8 } else { segment.length };
            // SAFETY: by the caller.
            unsafe { self.data(segment, length) };
        }
    }

    /// Writes bytes, at least one, and returns what they take in units of 16 bytes.
    ///
    /// # Safety
    ///
    /// There must be room.
    #[inline(always)]
    unsafe fn inline_usual(&mut self, bytes: &[u8]) -> u32 {
        let head = InlDataSeg {
            byte_count: (bytes.len() as u32 | INLINE_SEG).into(),
        };
        let length = (size_of::<InlDataSeg>() + bytes.len()).div_ceil(SEGMENT as usize);
        // SAFETY: by the caller there is room for the bytes and for what rounds them up; they are
        // the program's, and not in the queue.
        unsafe {
            self.0.cast::<InlDataSeg>().write(head);
            let to = self.0.add(size_of::<InlDataSeg>());
            copy_bytes(to, bytes);
            self.0 = self.0.add(length * SEGMENT as usize);
        }
        length as u32
    }
}

/// Writes a piece of memory, of so many bytes.
///
/// # Safety
///
/// There must be room, 8-aligned.
#[inline(always)]
pub(super) unsafe fn write_data(to: NonNull<DataSeg>, segment: &Segment, length: u32) {
    // Two words: the length and the key are swapped together.
    let first = (u64::from(length) << 32 | u64::from(segment.lkey)).to_be();
    // SAFETY: by the caller.
    unsafe {
        to.cast::<[u64; 2]>()
            .write([first, segment.address.to_be()])
    };
}

const _: () = assert!(
    size_of::<DataSeg>() == 16
        && offset_of!(DataSeg, byte_count) == 0
        && offset_of!(DataSeg, lkey) == 4
        && offset_of!(DataSeg, addr) == 8
);
