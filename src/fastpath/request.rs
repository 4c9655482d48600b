//! What can be posted to a queue pair.

use std::fmt;

use bitflags::bitflags;
use rdmacm_kernel_abi::mlx5::WqeAv;
use rdmacm_kernel_abi::uverbs;

use super::QpType;
use crate::error::{Error, ErrorKind};

/// A piece of registered memory: one scatter/gather element.
///
/// Made by [`Buffer::slice`](crate::Buffer::slice), or by hand with
/// [`Segment::from_raw`] for memory that the program manages itself.
#[doc(alias = "ibv_sge")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

impl Segment {
    /// A segment of memory that was registered by [`Pd::register_raw`](crate::Pd::register_raw).
    ///
    /// # Safety
    ///
    /// While a request with this segment is outstanding the memory must stay mapped and
    /// registered under `lkey`, and the program must not hold references to it that contradict
    /// what the device does: none to memory the device writes, no mutable ones to memory it reads.
    pub unsafe fn from_raw(address: u64, length: u32, lkey: u32) -> Self {
        Self {
            address,
            length,
            lkey,
        }
    }

    /// A segment of a buffer that this crate owns.
    pub(crate) fn of_buffer(address: u64, length: u32, lkey: u32) -> Self {
        Self {
            address,
            length,
            lkey,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the segment has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// A place in a peer's registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in the peer's address space.
    pub address: u64,
    /// The key that the peer gave for it.
    pub rkey: u32,
}

impl RemoteAddress {
    /// The place `offset` bytes further on (wrapping, as addresses do).
    pub fn at(self, offset: u64) -> Self {
        Self {
            address: self.address.wrapping_add(offset),
            ..self
        }
    }
}

bitflags! {
    /// How a request is carried out.
    #[doc(alias = "ibv_send_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Wait for earlier reads and atomics of this queue first.
        const FENCE = uverbs::SendFlags::FENCE.bits();
        /// Report the completion of this request.
        const SIGNALED = uverbs::SendFlags::SIGNALED.bits();
        /// Raise the peer's completion event for solicited messages.
        const SOLICITED = uverbs::SendFlags::SOLICITED.bits();
    }
}

/// How far a flush reaches at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushPlacement {
    /// Everybody on the peer's machine can see what was written.
    #[doc(alias = "IBV_FLUSH_GLOBAL")]
    Global,
    /// What was written outlives a loss of power.
    #[doc(alias = "IBV_FLUSH_PERSISTENT")]
    Persistent,
    /// Both.
    GlobalAndPersistent,
}

impl FlushPlacement {
    /// The kernel's bits.
    pub(crate) fn to_kernel(self) -> uverbs::FlushPlacement {
        use uverbs::FlushPlacement as Bits;
        match self {
            Self::Global => Bits::GLOBAL,
            Self::Persistent => Bits::PERSISTENT,
            Self::GlobalAndPersistent => Bits::GLOBAL | Bits::PERSISTENT,
        }
    }
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Send,
    SendImmediate(u32),
    Write(RemoteAddress),
    WriteImmediate(RemoteAddress, u32),
    Read(RemoteAddress),
    CompareSwap {
        at: RemoteAddress,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        at: RemoteAddress,
        add: u64,
    },
    AtomicWrite(RemoteAddress),
    Datagram(Datagram<'a>),
    DatagramImmediate(Datagram<'a>, u32),
    /// A send that invalidates a key of the peer's.
    SendInvalidate(u32),
    /// Invalidates a key of this side's.
    LocalInvalidate(u32),
    BindWindow(WindowBind),
    Flush(Flush),
}

/// What a memory window is to open from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WindowBind {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes; none closes the window.
    pub length: u64,
    /// Local key of the region; 0 without one.
    pub lkey: u32,
    /// The window's key until now.
    pub old_rkey: u32,
    /// The window's key from now on.
    pub new_rkey: u32,
    /// What peers may do there, in the kernel's bits.
    pub access: u32,
    /// Whether the window belongs to a queue pair while it is open.
    pub is_of_type_2: bool,
}

/// What the peer is to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flush {
    pub at: RemoteAddress,
    /// Bytes from there on; none flushes the whole region.
    pub length: Option<u32>,
    pub placement: FlushPlacement,
}

/// Who receives a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// The way there.
    pub handle: &'a Handle,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// The key that the queue pair wants.
    pub qkey: u32,
}

/// An address handle, as the requests of its device name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// By a number.
    Rxe(u32),
    /// By all of it.
    Mlx5(WqeAv),
}

impl Datagram<'_> {
    /// The number of the handle, for devices that know it by one.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self.handle {
            Handle::Rxe(number) => *number,
            Handle::Mlx5(_) => 0,
        }
    }

    /// The way there, for devices that are told it with each request.
    #[inline]
    pub(crate) fn vector(&self) -> Option<&WqeAv> {
        match self.handle {
            Handle::Rxe(_) => None,
            Handle::Mlx5(vector) => Some(vector),
        }
    }
}

/// The local side of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    Segments(&'a [Segment]),
    /// Copied into the queue when posted.
    Inline(&'a [u8]),
    /// The value of an atomic write.
    Value([u8; 8]),
    /// So many bytes of the peer's memory, none of which move.
    Remote(u32),
}

/// One send work request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub wr_id: u64,
    pub operation: Operation<'a>,
    pub flags: SendFlags,
    pub payload: Payload<'a>,
}

/// Why a request was not posted. The queue is as it was before, except after
/// [`PostError::Doorbell`], which leaves the requests in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// All slots are in use; poll for completions and try again.
    QueueFull {
        /// Number of slots.
        depth: u32,
    },
    /// The request has more segments than the queue pair was made for.
    TooManySegments {
        /// Segments in the request.
        segments: usize,
        /// The most a request may have (`max_send_sge`, `max_recv_sge`).
        max: u32,
    },
    /// The inline data is longer than the queue pair was made for.
    InlineTooLong {
        /// Bytes in the request.
        length: usize,
        /// The most a request may carry (`max_inline_data`).
        max: u32,
    },
    /// The segments together are longer than a message can be (2^32 − 1 bytes).
    MessageTooLong,
    /// A datagram is longer than a packet, and would be lost without a word.
    DatagramTooLong {
        /// Bytes in the request.
        length: usize,
        /// The most a datagram may have: the path MTU of the port when the queue pair was moved to
        /// INIT.
        max: u32,
    },
    /// A queue pair of this type cannot do what the request asks for.
    WrongQpType {
        /// The type of the queue pair.
        qp_type: QpType,
    },
    /// The address handle was made in another protection domain than the queue pair.
    ForeignAddressHandle,
    /// The queue pair takes its receives from a shared receive queue: post them there.
    SharedReceiveQueue,
    /// The queue pair was made without such a queue (`max_send_wr` or `max_recv_wr` of 0).
    NoQueue,
    /// The number of the request is one that an endpoint uses itself.
    NumberTaken {
        /// The number.
        wr_id: u64,
    },
    /// The two sides agreed on no reads and atomics: on an initiator depth of 0 here, or on responder
    /// resources of 0 at the peer.
    NoReads,
    /// The place for an atomic's answer does not have 8 bytes.
    AtomicLength {
        /// Bytes of the segment.
        length: usize,
    },
    /// An atomic works on 8 bytes at a multiple of 8, and the peer's address is none.
    AtomicUnaligned {
        /// The peer's address.
        address: u64,
    },
    /// The device has no atomic write
    /// ([`DeviceAttr::has_atomic_write`](crate::DeviceAttr::has_atomic_write)).
    NoAtomicWrite,
    /// The device has no flush that reaches so far
    /// ([`DeviceAttr::has_flush_global`](crate::DeviceAttr::has_flush_global),
    /// [`DeviceAttr::has_flush_persistent`](crate::DeviceAttr::has_flush_persistent)).
    NoFlush,
    /// The memory window was destroyed together with the queue pair that it was last bound through.
    WindowDestroyed,
    /// The memory window was not bound through this queue pair since it was made or last invalidated,
    /// or the queue pair was reset since: there is nothing to close. rxe must not be asked to, since its kernel crashes then.
    WindowClosed,
    /// The memory window or the region was made in another protection domain than the queue pair.
    ForeignWindow,
    /// The range of a memory window has no bytes, or reaches beyond the region.
    WindowRange {
        /// Where it begins in the region.
        offset: usize,
        /// Its bytes.
        length: usize,
    },
    /// The region was registered without [`Access::MW_BIND`](crate::Access::MW_BIND).
    NoWindowsInRegion,
    /// The window is to allow what only local access can mean, or writing and atomics in a region
    /// that was registered without [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    WindowAccess,
    /// A window of type 1 cannot be invalidated, and its key cannot be chosen.
    WindowOfType1,
    /// A window of type 2 is not closed by a bind.
    WindowOfType2,
    /// The device has no such requests, whatever its queue pair.
    NotOnDevice {
        /// What it does not have.
        what: &'static str,
    },
    /// The device takes no receive without a segment, as for a message of no bytes; give it one of no
    /// bytes.
    NoSegments,
    /// The queue pair is not connected yet: sends need the state RTS.
    NotConnected,
    /// The connection has ended, and the device would not even report the request as flushed.
    Disconnected,
    /// The queue pair was destroyed.
    Destroyed,
    /// The queue pair is that of the process which this one was forked from.
    Inherited,
    /// The requests are in the queue but the kernel refused the doorbell, with this errno. The
    /// next successful doorbell starts them.
    Doorbell {
        /// The kernel's error number.
        errno: i32,
    },
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { depth } => write!(
                f,
                "all {depth} slots of the queue are in use; poll for completions and try again"
            ),
            Self::TooManySegments { segments, max } => write!(
                f,
                "{segments} segments, but the queue pair takes {max} (max_send_sge, max_recv_sge)"
            ),
            Self::InlineTooLong { length, max } => write!(
                f,
                "{length} bytes inline, but the queue pair takes {max} (max_inline_data)"
            ),
            Self::MessageTooLong => f.write_str("a message has at most 2^32 - 1 bytes"),
            Self::DatagramTooLong { length, max } => write!(
                f,
                "a datagram of {length} bytes, but the port's packets carry {max}"
            ),
            Self::WrongQpType { qp_type } => f.write_str(match qp_type {
                QpType::Rc => "an RC queue pair sends no datagrams; they need a UD queue pair",
                QpType::Uc => {
                    "a UC queue pair can send, write and bind windows, but neither read, flush, \
                     invalidate nor use atomics nor send datagrams"
                }
                QpType::Ud => {
                    "a UD queue pair sends datagrams only; name the receiver with send_datagram"
                }
                QpType::XrcSend => {
                    "an XRC_SEND queue pair has no receive queue, and its requests must name a \
                     shared receive queue of the peer, which this crate cannot yet"
                }
                QpType::XrcRecv => {
                    "an XRC_RECV queue pair has no queues; receives are posted to the shared \
                     receive queues of its XRC domain"
                }
            }),
            Self::ForeignAddressHandle => f.write_str(
                "the address handle is of another protection domain than the queue pair",
            ),
            Self::NoQueue => f.write_str(
                "the queue pair was made without this queue: with a max_send_wr or max_recv_wr of 0",
            ),
            Self::SharedReceiveQueue => f.write_str(
                "the queue pair takes its receives from a shared receive queue; post them with \
                 Srq::post",
            ),
            Self::NumberTaken { wr_id } => write!(
                f,
                "the number {wr_id} is taken; an endpoint's requests have numbers below 2^62"
            ),
            Self::NoReads => f.write_str(
                "the two sides agreed on no reads and atomics; raise initiator_depth here and \
                 responder_resources at the peer",
            ),
            Self::AtomicLength { length } => write!(
                f,
                "an atomic answers with 8 bytes, but the segment has {length}"
            ),
            Self::AtomicUnaligned { address } => write!(
                f,
                "an atomic works on 8 bytes at a multiple of 8, which the peer's address \
                 {address:#x} is not"
            ),
            Self::NoAtomicWrite => {
                f.write_str("the device has no atomic write; rxe has it with Linux 6.2 and newer")
            }
            Self::NoFlush => f.write_str(
                "the device has no flush that reaches so far; rxe has flushes with Linux 6.2 and newer",
            ),
            Self::WindowDestroyed => f.write_str(
                "the memory window was destroyed with the queue pair that it was bound through; \
                 make a new one",
            ),
            Self::WindowClosed => f.write_str(
                "the memory window was not bound through this queue pair since it was made or last \
                 invalidated",
            ),
            Self::ForeignWindow => f.write_str(
                "the memory window or its region is of another protection domain than the queue \
                 pair",
            ),
            Self::WindowRange { offset, length } => write!(
                f,
                "{length} bytes from {offset} on are no window of the region: none, or not in it"
            ),
            Self::NoWindowsInRegion => f.write_str(
                "memory windows need a region that was registered with MW_BIND",
            ),
            Self::WindowAccess => f.write_str(
                "a memory window allows what peers do (REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, \
                 FLUSH_GLOBAL, FLUSH_PERSISTENT), and writing and atomics only in a region with \
                 LOCAL_WRITE",
            ),
            Self::WindowOfType1 => f.write_str(
                "a memory window of type 1 cannot be invalidated and its key cannot be chosen; \
                 bind it again, or unbind it",
            ),
            Self::WindowOfType2 => f.write_str(
                "a memory window of type 2 is closed by invalidating it, not by a bind",
            ),
            Self::NotOnDevice { what } => write!(f, "the device has no {what}"),
            Self::NoSegments => f.write_str(
                "the device takes no receive without a segment; give it one, if of no bytes",
            ),
            Self::NotConnected => f.write_str("the queue pair is not connected yet"),
            Self::Disconnected => f.write_str(
                "the connection has ended, and the device completes no more requests on it",
            ),
            Self::Destroyed => f.write_str("the queue pair was destroyed"),
            Self::Inherited => f.write_str(
                "the queue pair was made before a fork, by the parent; make a new one here",
            ),
            Self::Doorbell { errno } => write!(
                f,
                "the request is queued but the kernel refused the doorbell: {} (errno {errno})",
                nix::errno::Errno::from_raw(*errno).desc()
            ),
        }
    }
}

impl std::error::Error for PostError {}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        let kind = match error {
            PostError::QueueFull { .. } => ErrorKind::QueueFull,
            PostError::NoReads | PostError::NotConnected => ErrorKind::InvalidState,
            PostError::Destroyed | PostError::WindowDestroyed => ErrorKind::Destroyed,
            PostError::Disconnected => ErrorKind::Disconnected,
            PostError::Inherited => ErrorKind::PermissionDenied,
            PostError::NoAtomicWrite | PostError::NoFlush | PostError::NotOnDevice { .. } => {
                ErrorKind::NotSupported
            }
            PostError::Doorbell { errno } => {
                return Error::from_errno("post", errno).because(error.to_string());
            }
            PostError::TooManySegments { .. }
            | PostError::InlineTooLong { .. }
            | PostError::MessageTooLong
            | PostError::DatagramTooLong { .. }
            | PostError::WrongQpType { .. }
            | PostError::ForeignAddressHandle
            | PostError::SharedReceiveQueue
            | PostError::NoQueue
            | PostError::NoSegments
            | PostError::AtomicLength { .. }
            | PostError::AtomicUnaligned { .. }
            | PostError::ForeignWindow
            | PostError::WindowRange { .. }
            | PostError::NoWindowsInRegion
            | PostError::WindowClosed
            | PostError::WindowAccess
            | PostError::WindowOfType1
            | PostError::WindowOfType2
            | PostError::NumberTaken { .. } => ErrorKind::InvalidInput,
        };
        Error::new("post", kind, error.to_string())
    }
}

impl From<PostError> for std::io::Error {
    fn from(error: PostError) -> Self {
        Error::from(error).into()
    }
}

impl Payload<'_> {
    /// How many bytes the message has.
    pub(crate) fn length(&self) -> Result<usize, PostError> {
        match self {
            Self::Segments(segments) => total_length(segments).map(|length| length as usize),
            Self::Inline(bytes) => Ok(bytes.len()),
            Self::Value(bytes) => Ok(bytes.len()),
            Self::Remote(length) => Ok(*length as usize),
        }
    }
}

/// The bytes of a message made of `segments`.
pub(super) fn total_length(segments: &[Segment]) -> Result<u32, PostError> {
    let total: u64 = segments
        .iter()
        .map(|segment| u64::from(segment.length))
        .sum();
    u32::try_from(total).map_err(|_| PostError::MessageTooLong)
}
