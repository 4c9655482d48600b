//! The send queue, and requests as they stand in it.

use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, WrOpcode};

use super::memory::{message, write_segments};
use super::ring::Producer;
use crate::error::Error;
use crate::fastpath::Doorbell;
use crate::fastpath::copy::copy_bytes;
use crate::fastpath::request::{
    Datagram, Flush, Operation, Payload, PostError, RemoteAddress, Request, Segment, WindowBind,
    total_length,
};
use crate::sys::Mapping;

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Producer,
    doorbell: Doorbell,
    max_segments: u32,
    max_inline: u32,
}

impl SendQueue {
    /// Takes the ring over. `max_segments` and `max_inline` are what the kernel granted.
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        doorbell: Doorbell,
        max_segments: u32,
        max_inline: u32,
    ) -> Result<Self, Error> {
        let segments = max_segments as usize * size_of::<rxe::Sge>();
        // An atomic write has room for its value whatever else was granted.
        let payload = segments.max(max_inline as usize).max(size_of::<u64>());
        let ring = Producer::new(mapping, size_of::<rxe::SendWqe>() + payload)?;
        let room = ring.slot_size() - size_of::<rxe::SendWqe>();
        debug_assert!(payload <= room);
        Ok(Self {
            ring,
            doorbell,
            max_segments,
            max_inline,
        })
    }

    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Builds a request in the ring, without telling the kernel.
    #[inline(always)]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let Some(slot) = self.ring.free_slot() else {
            return Err(self.full());
        };
        let at = self.ring.address(&slot);
        let inline = match request.payload {
            Payload::Inline(_) => uverbs::SendFlags::INLINE.bits(),
            // The kernel looks for a value in the place of inline bytes without a flag.
            _ => 0,
        };
        let (opcode, extra, target) = encode(request.operation);
        let wqe = at.cast::<rxe::SendWqe>().as_ptr();
        // SAFETY: the slot is ours until `advance` and `publish`; `new` checked that it holds a
        // `SendWqe` with the payload behind it. Slots are 8-aligned: the ring starts 384 bytes into a
        // page and slots are powers of two of 64 bytes and more.
        unsafe {
            self.write_payload(at, request.payload)?;
            (&raw mut (*wqe).wr.wr_id).write(request.wr_id);
            (&raw mut (*wqe).wr.opcode).write(opcode);
            (&raw mut (*wqe).wr.send_flags).write(request.flags.bits() | inline);
            (&raw mut (*wqe).wr.ex).write(extra);
            write_target(&raw mut (*wqe).wr.wr, target);
            // The kernel resets the other working fields itself, but a stale status would be
            // reported as this request's.
            (&raw mut (*wqe).status).write(0);
            (&raw mut (*wqe).state).write(0);
            // This is the remote address that is used; the one in `wr` is not.
            (&raw mut (*wqe).iova).write(target.address());
        }
        self.ring.advance(slot);
        Ok(())
    }

    /// Writes the segments or the inline bytes of a request, and how many there are.
    ///
    /// # Safety
    ///
    /// `wqe` must be a slot of the ring.
    #[inline(always)]
    unsafe fn write_payload(
        &self,
        wqe: NonNull<u8>,
        payload: Payload<'_>,
    ) -> Result<(), PostError> {
        // SAFETY: a slot has room for so much behind the element.
        let to = unsafe { wqe.add(size_of::<rxe::SendWqe>()) };
        let message = match payload {
            Payload::Segments([segment]) => {
                if self.max_segments == 0 {
                    return Err(self.too_many_segments(1));
                }
                // SAFETY: there is room for a segment.
                unsafe { write_segments(to, &[*segment]) };
                message(segment.length, 1)
            }
            // Apart: the loop would cost requests of one segment, which need none.
            // SAFETY: by the caller.
            Payload::Segments(segments) => return unsafe { self.write_segments(wqe, segments) },
            Payload::Inline(bytes) => {
                if bytes.len() > self.max_inline as usize {
                    return Err(PostError::InlineTooLong {
                        length: bytes.len(),
                        max: self.max_inline,
                    });
                }
                // SAFETY: there is room for `max_inline` bytes; it is in the ring, and thus apart
                // from the caller's bytes.
                unsafe { copy_bytes(to, bytes) };
                message(bytes.len() as u32, 1)
            }
            Payload::Value(bytes) => {
                // SAFETY: there is room for a value.
                unsafe { to.cast::<[u8; 8]>().write(bytes) };
                message(bytes.len() as u32, 0)
            }
            Payload::Remote(length) => message(length, 0),
        };
        // SAFETY: by the caller.
        unsafe { write_message(wqe, message) };
        Ok(())
    }

    /// The same for any number of segments.
    ///
    /// # Safety
    ///
    /// As [`SendQueue::write_payload`].
    #[cold]
    #[inline(never)]
    unsafe fn write_segments(
        &self,
        wqe: NonNull<u8>,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        if segments.len() > self.max_segments as usize {
            return Err(self.too_many_segments(segments.len()));
        }
        let length = total_length(segments)?;
        // SAFETY: by the caller; behind the element is room for `max_segments`.
        unsafe {
            write_segments(wqe.add(size_of::<rxe::SendWqe>()), segments);
            write_message(wqe, message(length, segments.len() as u32));
        }
        Ok(())
    }

    #[cold]
    fn too_many_segments(&self, segments: usize) -> PostError {
        PostError::TooManySegments {
            segments,
            max: self.max_segments,
        }
    }

    #[cold]
    fn full(&self) -> PostError {
        PostError::QueueFull {
            depth: self.ring.depth(),
        }
    }

    /// Forgets the requests that were pushed since the last doorbell.
    #[inline]
    pub(crate) fn discard(&mut self) {
        self.ring.discard();
    }

    /// Hands the pushed requests to the kernel and rings the doorbell, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) -> Result<(), PostError> {
        if !self.ring.has_unpublished() {
            return Ok(());
        }
        self.ring.publish();
        self.doorbell
            .ring()
            .map_err(|errno| PostError::Doorbell { errno })
    }
}

/// Writes how much a request has to carry.
///
/// # Safety
///
/// `wqe` must be a slot of the ring.
#[inline(always)]
unsafe fn write_message(wqe: NonNull<u8>, message: rxe::DmaInfo) {
    let wqe = wqe.cast::<rxe::SendWqe>().as_ptr();
    // SAFETY: by the caller.
    unsafe { (&raw mut (*wqe).dma).write(message) };
}

/// Where a request goes besides to the queue pair's own peer.
#[derive(Clone, Copy)]
enum Target<'a> {
    Memory(RemoteAddress),
    Atomic(Atomic),
    Receiver(Datagram<'a>),
    Window(WindowBind),
    Flush(Flush),
}

/// The operands of an atomic, and what it works on.
#[derive(Clone, Copy)]
struct Atomic {
    at: RemoteAddress,
    /// What to compare with, or what to add.
    compare_add: u64,
    swap: u64,
}

impl Target<'_> {
    /// The target of a plain send.
    const NONE: Self = Self::Memory(RemoteAddress {
        address: 0,
        rkey: 0,
    });

    /// The address in the peer's memory; 0 without one.
    #[inline(always)]
    fn address(self) -> u64 {
        match self {
            Self::Memory(remote) => remote.address,
            Self::Atomic(atomic) => atomic.at.address,
            Self::Flush(flush) => flush.at.address,
            Self::Receiver(_) | Self::Window(_) => 0,
        }
    }
}

/// The kernel's opcode, the immediate data or key as it lies in the request, and the target.
#[inline(always)]
fn encode(operation: Operation<'_>) -> (u32, u32, Target<'_>) {
    use Target::{Memory, Receiver};
    let atomic = |at, compare_add, swap| {
        Target::Atomic(Atomic {
            at,
            compare_add,
            swap,
        })
    };
    let (opcode, extra, target) = match operation {
        Operation::Send => (WrOpcode::SEND, 0, Target::NONE),
        Operation::SendImmediate(data) => (WrOpcode::SEND_WITH_IMM, data.to_be(), Target::NONE),
        Operation::Write(to) => (WrOpcode::RDMA_WRITE, 0, Memory(to)),
        Operation::WriteImmediate(to, data) => {
            (WrOpcode::RDMA_WRITE_WITH_IMM, data.to_be(), Memory(to))
        }
        Operation::Read(from) => (WrOpcode::RDMA_READ, 0, Memory(from)),
        Operation::CompareSwap { at, compare, swap } => {
            (WrOpcode::ATOMIC_CMP_AND_SWP, 0, atomic(at, compare, swap))
        }
        Operation::FetchAdd { at, add } => (WrOpcode::ATOMIC_FETCH_AND_ADD, 0, atomic(at, add, 0)),
        Operation::AtomicWrite(to) => (WrOpcode::ATOMIC_WRITE, 0, Memory(to)),
        Operation::Datagram(to) => (WrOpcode::SEND, 0, Receiver(to)),
        Operation::DatagramImmediate(to, data) => {
            (WrOpcode::SEND_WITH_IMM, data.to_be(), Receiver(to))
        }
        Operation::SendInvalidate(rkey) => (WrOpcode::SEND_WITH_INV, rkey, Target::NONE),
        Operation::LocalInvalidate(rkey) => (WrOpcode::LOCAL_INV, rkey, Target::NONE),
        Operation::BindWindow(bind) => (WrOpcode::BIND_MW, 0, Target::Window(bind)),
        Operation::Flush(flush) => (WrOpcode::FLUSH, 0, Target::Flush(flush)),
    };
    (opcode.0, extra, target)
}

/// Writes the part of a request that depends on its kind.
///
/// # Safety
///
/// `to` must be valid for writes.
#[inline(always)]
unsafe fn write_target(to: *mut [u64; 15], target: Target<'_>) {
    match target {
        Target::Memory(remote) => {
            let rdma = to.cast::<rxe::SendWrRdma>();
            // SAFETY: the caller vouches for the room, of which this kind is a part.
            unsafe {
                (&raw mut (*rdma).remote_addr).write(remote.address);
                (&raw mut (*rdma).rkey).write(remote.rkey);
            }
        }
        Target::Atomic(operands) => {
            let atomic = to.cast::<rxe::SendWrAtomic>();
            // SAFETY: as above.
            unsafe {
                atomic.write(rxe::SendWrAtomic {
                    remote_addr: operands.at.address,
                    compare_add: operands.compare_add,
                    swap: operands.swap,
                    rkey: operands.at.rkey,
                    reserved: 0,
                });
            }
        }
        Target::Receiver(datagram) => {
            let ud = to.cast::<rxe::SendWrUd>();
            // The kernel knows the way from the handle's number; it looks at the address vector
            // only where that is 0.
            // SAFETY: as above.
            unsafe {
                (&raw mut (*ud).remote_qpn).write(datagram.qp_num);
                (&raw mut (*ud).remote_qkey).write(datagram.qkey);
                (&raw mut (*ud).pkey_index).write(0);
                (&raw mut (*ud).reserved).write(0);
                (&raw mut (*ud).ah_num).write(datagram.number());
            }
        }
        Target::Window(bind) => {
            let mw = to.cast::<rxe::SendWrMw>();
            // SAFETY: as above.
            unsafe {
                mw.write(rxe::SendWrMw {
                    addr: bind.address,
                    length: bind.length,
                    mr_lkey: bind.lkey,
                    mw_rkey: bind.old_rkey,
                    rkey: bind.new_rkey,
                    access: bind.access,
                });
            }
        }
        Target::Flush(Flush {
            at,
            length,
            placement,
        }) => {
            let level = match length {
                Some(_) => uverbs::FlushSelectivity::RANGE,
                None => uverbs::FlushSelectivity::MR,
            };
            let flush = to.cast::<rxe::SendWrFlush>();
            // SAFETY: as above.
            unsafe {
                flush.write(rxe::SendWrFlush {
                    remote_addr: at.address,
                    length: length.unwrap_or(0),
                    rkey: at.rkey,
                    type_: placement.to_kernel().bits(),
                    level: level.0,
                    reserved: [0; 6],
                });
            }
        }
    }
}
