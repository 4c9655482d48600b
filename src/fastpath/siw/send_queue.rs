//! The send queue, and requests as they stand in it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use rdmacm_kernel_abi::siw::{MAX_SGE, Opcode, Sge, Sqe, WqeFlags};
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;

use super::elements::Elements;
use super::{MAX_INLINE, recv_queue::sge};
use crate::error::Result;
use crate::fastpath::Doorbell;
use crate::fastpath::request::{
    Operation, Payload, PostError, RemoteAddress, Request, SendFlags, total_length,
};
use crate::sys::Mapping;

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    elements: Elements<Sqe>,
    doorbell: Doorbell,
    /// The next element to fill.
    next: u32,
    /// The first element that the kernel was not given yet.
    given: u32,
    /// Whether the kernel has requests of which it was not told: it refused the last doorbell.
    pub(super) untold: bool,
    max_segments: u32,
    max_inline: u32,
    signal_all: bool,
}

impl SendQueue {
    /// Takes over the memory of `count` elements. `cap` is what the kernel granted.
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        count: u32,
        doorbell: Doorbell,
        cap: &QpCap,
        signal_all: bool,
    ) -> Result<Self> {
        Ok(Self {
            elements: Elements::new(mapping, count)?,
            doorbell,
            next: 0,
            given: 0,
            untold: false,
            max_segments: cap.max_send_sge.min(MAX_SGE as u32),
            max_inline: cap.max_inline_data.min(MAX_INLINE),
            signal_all,
        })
    }

    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        self.elements.count()
    }

    /// Builds a request in the queue, without giving it to the kernel.
    #[inline(never)]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let (opcode, remote) = encode(&request.operation)?;
        check_flags(opcode, request)?;
        self.check_payload(opcode, request.payload)?;
        let element = self.free_element()?;
        let to = element.as_ptr();
        let flags = self.flags(request);
        // SAFETY: the element is in the mapping, and it is ours: the kernel has cleared its flag
        // and does not look at it again before `ring_doorbell` sets it.
        unsafe {
            (&raw mut (*to).id).write(request.wr_id);
            (&raw mut (*to).opcode).write(opcode.0);
            (&raw mut (*to).rkey).write(remote.rkey);
            (&raw mut (*to).raddr).write(remote.address);
            let segments = write_payload(element, request.payload);
            (&raw mut (*to).num_sge).write(segments);
            flags_of(element).store(flags.bits(), Ordering::Relaxed);
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Forgets the requests that were pushed since the last doorbell.
    #[inline(never)]
    pub(crate) fn discard(&mut self) {
        self.next = self.given;
    }

    /// Gives the pushed requests to the kernel and rings the doorbell, if there are any.
    #[inline(never)]
    pub(crate) fn ring_doorbell(&mut self) -> Result<(), PostError> {
        if self.next == self.given {
            return Ok(());
        }
        let before = self.given.wrapping_sub(1);
        let fresh = self.next.wrapping_sub(self.given);
        while self.given != self.next {
            // SAFETY: the element is in the mapping, for as long as `self` lives.
            let flags = unsafe { flags_of(self.elements.at(self.given)) };
            let own = flags.load(Ordering::Relaxed);
            // Release: the element is in memory before the flag that gives it away. On x86-64 an
            // ordinary store, on aarch64 `stlr`.
            flags.store(own | WqeFlags::VALID.bits(), Ordering::Release);
            self.given = self.given.wrapping_add(1);
        }
        if fresh < self.depth() && !self.untold && self.is_busy_with(before) {
            return Ok(());
        }
        let rung = self.doorbell.ring();
        self.untold = rung.is_err();
        rung.map_err(|errno| PostError::Doorbell { errno })
    }

    /// Whether the kernel is yet to take the request before the new ones. It then finds these as
    /// well, without a doorbell.
    fn is_busy_with(&self, before: u32) -> bool {
        // Sequentially consistent: the flags of the new elements are visible before this one is
        // read. The kernel clears this one with a full barrier before it looks at the next, so one
        // of the two sides sees what the other did. On x86-64 `mfence`, on aarch64 `dmb ish`.
        fence(Ordering::SeqCst);
        // SAFETY: as in `ring_doorbell`.
        let flags = unsafe { flags_of(self.elements.at(before)) };
        flags.load(Ordering::Relaxed) & WqeFlags::VALID.bits() != 0
    }

    /// The next element, if the kernel is done with it.
    #[inline]
    fn free_element(&self) -> Result<NonNull<Sqe>, PostError> {
        let depth = self.depth();
        let element = self.elements.at(self.next);
        // Acquire pairs with the kernel's clearing of the flag: it read the element before.
        // SAFETY: the element is in the mapping, for as long as `self` lives.
        let flags = unsafe { flags_of(element) }.load(Ordering::Acquire);
        let is_given = flags & WqeFlags::VALID.bits() != 0;
        match is_given || self.next.wrapping_sub(self.given) >= depth {
            true => Err(PostError::QueueFull { depth }),
            false => Ok(element),
        }
    }

    #[inline]
    fn check_payload(&self, opcode: Opcode, payload: Payload<'_>) -> Result<(), PostError> {
        match payload {
            Payload::Segments(segments) => {
                // The kernel places what it reads into one segment, whatever the request says.
                let max = match opcode {
                    Opcode::READ => self.max_segments.min(1),
                    _ => self.max_segments,
                };
                if segments.len() > max as usize {
                    let segments = segments.len();
                    return Err(PostError::TooManySegments { segments, max });
                }
                total_length(segments).map(drop)
            }
            Payload::Inline(bytes) if bytes.len() > self.max_inline as usize => {
                Err(PostError::InlineTooLong {
                    length: bytes.len(),
                    max: self.max_inline,
                })
            }
            Payload::Inline(_) => Ok(()),
            Payload::Value(_) => Err(lacks("atomic write")),
            Payload::Remote(_) => Err(lacks("flush")),
        }
    }

    #[inline]
    fn flags(&self, request: &Request<'_>) -> WqeFlags {
        let mut flags = WqeFlags::empty();
        let signaled = self.signal_all || request.flags.contains(SendFlags::SIGNALED);
        flags.set(WqeFlags::SIGNALLED, signaled);
        let solicited = request.flags.contains(SendFlags::SOLICITED);
        flags.set(WqeFlags::SOLICITED, solicited);
        let fence = request.flags.contains(SendFlags::FENCE);
        flags.set(WqeFlags::READ_FENCE, fence);
        let inline = matches!(request.payload, Payload::Inline(_));
        flags.set(WqeFlags::INLINE, inline);
        flags
    }
}

/// The flags of an element, which say whose it is.
///
/// # Safety
///
/// The element must be valid for `'a`, and its flags be accessed as atomics only.
#[inline]
unsafe fn flags_of<'a>(element: NonNull<Sqe>) -> &'a AtomicU16 {
    // SAFETY: by the caller; the field is aligned as the element is.
    unsafe { AtomicU16::from_ptr(&raw mut (*element.as_ptr()).flags) }
}

/// The kernel's opcode and the place at the peer.
#[inline]
fn encode(operation: &Operation<'_>) -> Result<(Opcode, RemoteAddress), PostError> {
    const NOWHERE: RemoteAddress = RemoteAddress {
        address: 0,
        rkey: 0,
    };
    match *operation {
        Operation::Send => Ok((Opcode::SEND, NOWHERE)),
        Operation::Write(to) => Ok((Opcode::WRITE, to)),
        Operation::Read(from) => Ok((Opcode::READ, from)),
        Operation::SendImmediate(_) | Operation::WriteImmediate(..) => Err(lacks("immediate data")),
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => Err(lacks("atomics")),
        Operation::AtomicWrite(_) => Err(lacks("atomic write")),
        Operation::Datagram(_) | Operation::DatagramImmediate(..) => Err(lacks("datagrams")),
        // The key lies where that of a place at the peer does.
        Operation::SendInvalidate(rkey) => {
            Ok((Opcode::SEND_REMOTE_INV, RemoteAddress { address: 0, rkey }))
        }
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) => Err(lacks("memory windows")),
        Operation::Flush(_) => Err(lacks("flush")),
    }
}

/// Refuses what would stop the queue for ever: the kernel takes no request behind one that it
/// cannot make sense of.
#[inline]
fn check_flags(opcode: Opcode, request: &Request<'_>) -> Result<(), PostError> {
    let is_fenced = request.flags.contains(SendFlags::FENCE);
    let is_inline = matches!(request.payload, Payload::Inline(_));
    match opcode {
        Opcode::READ if is_fenced => Err(lacks("fenced reads")),
        Opcode::SEND_REMOTE_INV if is_inline => Err(lacks("inline sends with invalidation")),
        _ => Ok(()),
    }
}

#[cold]
fn lacks(what: &'static str) -> PostError {
    PostError::NotOnDevice { what }
}

/// Writes the segments or the inline bytes, and returns the number of segments. Those of no bytes are
/// left out: the kernel (6.12) looks up no memory for them and then reads through a null pointer.
///
/// # Safety
///
/// The element must be valid for writes, and the payload within the limits of an element.
#[inline]
unsafe fn write_payload(element: NonNull<Sqe>, payload: Payload<'_>) -> u8 {
    // SAFETY: the field is in the element.
    let first: *mut Sge = unsafe { (&raw mut (*element.as_ptr()).sge).cast() };
    match payload {
        Payload::Segments(segments) => {
            // The kernel looks at the first segment of a read in any case.
            // SAFETY: an element has six segments.
            unsafe { first.write(Sge::default()) };
            let mut count = 0;
            for segment in segments.iter().filter(|segment| !segment.is_empty()) {
                // SAFETY: by the caller there are no more segments than an element has.
                unsafe { first.add(usize::from(count)).write(sge(segment)) };
                count += 1;
            }
            count
        }
        Payload::Inline(bytes) => {
            let head = Sge {
                length: bytes.len() as u32,
                ..Default::default()
            };
            // SAFETY: by the caller the bytes fit the segments behind the first, and they are not
            // in the queue.
            unsafe {
                first.write(head);
                first
                    .add(1)
                    .cast::<u8>()
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            1
        }
        // Refused before.
        Payload::Value(_) | Payload::Remote(_) => 0,
    }
}
