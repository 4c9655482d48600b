//! The queues of rxe, software RoCE.
//!
//! The kernel carries requests out of the mapped ring itself; the doorbell is a `write()`.
//! Receives need none.

use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, WrOpcode};

use super::completion::Completion;
use super::request::{
    Datagram, Operation, Payload, PostError, RemoteAddress, Request, Segment, total_length,
};
use super::ring::{BadRing, Consumer, Producer};
use crate::device::Context;
use crate::error::{Error, ErrorKind};
use crate::sys::{Mapping, WriteCommand};

impl From<BadRing> for Error {
    fn from(bad: BadRing) -> Self {
        Error::new("map_queue", ErrorKind::Protocol, bad.0)
    }
}

/// The most bytes that one request can carry inline.
pub(crate) const MAX_INLINE: u32 = 512;

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
    #[inline]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let (length, count, inline) = match request.payload {
            Payload::Segments(segments) => {
                if segments.len() > self.max_segments as usize {
                    return Err(PostError::TooManySegments {
                        segments: segments.len(),
                        max: self.max_segments,
                    });
                }
                (total_length(segments)?, segments.len() as u32, 0)
            }
            Payload::Inline(bytes) => {
                if bytes.len() > self.max_inline as usize {
                    return Err(PostError::InlineTooLong {
                        length: bytes.len(),
                        max: self.max_inline,
                    });
                }
                (bytes.len() as u32, 1, uverbs::SendFlags::INLINE.bits())
            }
            // The kernel looks for it in this place without a flag.
            Payload::Value(bytes) => (bytes.len() as u32, 0, 0),
        };
        let depth = self.ring.depth();
        let slot = self
            .ring
            .free_slot()
            .ok_or(PostError::QueueFull { depth })?;
        let (opcode, immediate, target) = encode(request.operation);
        let wqe = slot.cast::<rxe::SendWqe>().as_ptr();
        // SAFETY: the slot is ours until `advance` and `publish`; `new` checked that it holds a
        // `SendWqe` with the payload behind it, for as many segments or inline bytes as were
        // checked above. Slots are 8-aligned: the ring starts 384 bytes into a page and slots are
        // powers of two of 64 bytes and more.
        unsafe {
            (&raw mut (*wqe).wr.wr_id).write(request.wr_id);
            (&raw mut (*wqe).wr.opcode).write(opcode);
            (&raw mut (*wqe).wr.send_flags).write(request.flags.bits() | inline);
            (&raw mut (*wqe).wr.ex).write(immediate);
            write_target(&raw mut (*wqe).wr.wr, target);
            // The kernel resets the other working fields itself, but a stale status would be
            // reported as this request's.
            (&raw mut (*wqe).status).write(0);
            (&raw mut (*wqe).state).write(0);
            // This is the remote address that is used; the one in `wr` is not.
            (&raw mut (*wqe).iova).write(target.address());
            (&raw mut (*wqe).dma).write(dma(length, count));
            write_payload(slot.add(size_of::<rxe::SendWqe>()), request.payload);
        }
        self.ring.advance();
        Ok(())
    }

    /// Forgets the requests that were pushed since the last doorbell.
    pub(crate) fn discard(&mut self) {
        self.ring.discard();
    }

    /// Hands the pushed requests to the kernel and rings the doorbell, if there are any.
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

/// Where a request goes besides to the queue pair's own peer.
#[derive(Clone, Copy)]
enum Target {
    Memory(RemoteAddress),
    Atomic(Atomic),
    Receiver(Datagram),
}

/// The operands of an atomic, and what it works on.
#[derive(Clone, Copy)]
struct Atomic {
    at: RemoteAddress,
    /// What to compare with, or what to add.
    compare_add: u64,
    swap: u64,
}

impl Target {
    /// The target of a plain send.
    const NONE: Self = Self::Memory(RemoteAddress {
        address: 0,
        rkey: 0,
    });

    /// The address in the peer's memory; 0 without one.
    #[inline]
    fn address(self) -> u64 {
        match self {
            Self::Memory(remote) => remote.address,
            Self::Atomic(atomic) => atomic.at.address,
            Self::Receiver(_) => 0,
        }
    }
}

/// The kernel's opcode, the immediate data as it lies in the request, and the target.
#[inline]
fn encode(operation: Operation) -> (u32, u32, Target) {
    use Target::{Memory, Receiver};
    let atomic = |at, compare_add, swap| {
        Target::Atomic(Atomic {
            at,
            compare_add,
            swap,
        })
    };
    let (opcode, immediate, target) = match operation {
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
    };
    (opcode.0, immediate, target)
}

/// Writes the part of a request that depends on its kind.
///
/// # Safety
///
/// `to` must be valid for writes.
#[inline]
unsafe fn write_target(to: *mut [u64; 15], target: Target) {
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
                (&raw mut (*ud).ah_num).write(datagram.handle_number);
            }
        }
    }
}

#[inline]
fn dma(length: u32, num_sge: u32) -> rxe::DmaInfo {
    rxe::DmaInfo {
        length,
        resid: length,
        num_sge,
        ..Default::default()
    }
}

/// Writes the segments or the inline bytes.
///
/// # Safety
///
/// `to` must be valid for writes of the payload's size and aligned to 8.
#[inline]
unsafe fn write_payload(to: NonNull<u8>, payload: Payload<'_>) {
    match payload {
        Payload::Segments(segments) => {
            let to = to.cast::<rxe::Sge>();
            for (index, segment) in segments.iter().enumerate() {
                let Segment {
                    address: addr,
                    length,
                    lkey,
                } = *segment;
                // SAFETY: the caller vouches for the room.
                unsafe { to.add(index).write(rxe::Sge { addr, length, lkey }) };
            }
        }
        Payload::Inline(bytes) => {
            // SAFETY: the caller vouches for the room, which is in the ring and thus apart from
            // the caller's bytes.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        }
        Payload::Value(bytes) => {
            // SAFETY: the caller vouches for the room.
            unsafe { to.cast::<[u8; 8]>().write(bytes) };
        }
    }
}

/// The `write()` that makes the kernel look at a send queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    context: Context,
    command: [u8; Self::LENGTH],
}

impl Doorbell {
    const LENGTH: usize = size_of::<uverbs::CmdHeader>() + size_of::<uverbs::PostSend>();
    /// What the kernel takes as the size of a request; it must be at least 56 and is not used.
    const WQE_SIZE: u32 = 128;

    pub(crate) fn new(context: &Context, qp_handle: u32) -> Self {
        use zerocopy::IntoBytes;
        let header = uverbs::CmdHeader {
            command: uverbs::Command::POST_SEND.0,
            in_words: (Self::LENGTH / 4) as u16,
            out_words: (size_of::<uverbs::PostSendResp>() / 4) as u16,
        };
        let body = uverbs::PostSend {
            qp_handle,
            wqe_size: Self::WQE_SIZE,
            ..Default::default()
        };
        let mut command = [0; Self::LENGTH];
        let (head, tail) = command.split_at_mut(size_of_val(&header));
        head.copy_from_slice(header.as_bytes());
        tail.copy_from_slice(body.as_bytes());
        Self {
            context: context.clone(),
            command,
        }
    }

    /// Rings; the errno when the kernel refuses. Repeated when a signal interrupts it.
    fn ring(&mut self) -> Result<(), i32> {
        loop {
            let mut response = [0; size_of::<uverbs::PostSendResp>()];
            let command = WriteCommand {
                request: &mut self.command,
                response: Some((size_of::<uverbs::CmdHeader>(), &mut response)),
                indirect: None,
            };
            match self
                .context
                .kernel()
                .write_command(self.context.fd(), command)
            {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }
}

/// The receive queue of one queue pair, or one that several share.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    ring: Producer,
    max_segments: u32,
}

impl RecvQueue {
    /// Takes the ring over. `max_segments` is what the kernel granted.
    pub(crate) fn new(mapping: Arc<Mapping>, max_segments: u32) -> Result<Self, Error> {
        let element = size_of::<rxe::RecvWqe>() + max_segments as usize * size_of::<rxe::Sge>();
        Ok(Self {
            ring: Producer::new(mapping, element)?,
            max_segments,
        })
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Posts a receive into `segments`; the kernel sees it at once.
    #[inline]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments {
                segments: segments.len(),
                max: self.max_segments,
            });
        }
        let length = total_length(segments)?;
        let depth = self.ring.depth();
        let slot = self
            .ring
            .free_slot()
            .ok_or(PostError::QueueFull { depth })?;
        let wqe = rxe::RecvWqe {
            wr_id,
            dma: dma(length, segments.len() as u32),
            ..Default::default()
        };
        // SAFETY: the slot is ours until `publish`, and `new` checked that it holds a `RecvWqe`
        // with `max_segments` segments behind it; aligned as for the send queue.
        unsafe {
            slot.cast::<rxe::RecvWqe>().write(wqe);
            write_payload(
                slot.add(size_of::<rxe::RecvWqe>()),
                Payload::Segments(segments),
            );
        }
        self.ring.advance();
        self.ring.publish();
        Ok(())
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: Consumer,
}

impl CompletionQueue {
    /// Takes the ring over.
    pub(crate) fn new(mapping: Arc<Mapping>) -> Result<Self, Error> {
        Ok(Self {
            ring: Consumer::new(mapping, size_of::<uverbs::Wc>())?,
        })
    }

    /// How many completions fit.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Takes out as many completions as there are, up to the length of `entries`.
    #[inline]
    pub(crate) fn poll(&mut self, entries: &mut [Completion]) -> usize {
        self.ring.drain(entries.len(), |index, slot| {
            // SAFETY: `new` checked that a slot holds a `Wc`, every bit pattern of which is valid,
            // and the kernel does not touch the slot before `drain` gives it back. The index is
            // below `entries.len()`.
            entries[index] = Completion(unsafe { slot.cast::<uverbs::Wc>().read() });
        })
    }
}
