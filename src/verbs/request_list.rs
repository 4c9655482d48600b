//! Requests as values, for lists of them.

use std::fmt;
use std::ops::Range;

use super::{Access, Batch, Destination, Mr, Mw};
use crate::error::Error;
use crate::fastpath::{FlushPlacement, PostError, RemoteAddress, Segment, SendFlags};

/// A request for [`SendHalf::post_list`](super::SendHalf::post_list).
#[doc(alias = "ibv_send_wr")]
#[derive(Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// How it is carried out.
    pub flags: SendFlags,
    /// What it does.
    pub work: Work<'a>,
}

/// A receive for [`RecvHalf::post_list`](super::RecvHalf::post_list) and
/// [`Srq::post_list`](super::Srq::post_list).
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug, Clone, Copy)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message is placed, one after the other.
    pub segments: &'a [Segment],
}

/// The bytes of a message.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// In registered memory, which must keep them until the request completes.
    Segments(&'a [Segment]),
    /// Copied into the queue when the request is posted.
    #[doc(alias = "IBV_SEND_INLINE")]
    Inline(&'a [u8]),
}

/// What a request does. The methods of [`Batch`] of the same names tell more.
#[doc(alias = "ibv_wr_opcode")]
#[non_exhaustive]
#[derive(Debug)]
pub enum Work<'a> {
    /// [`Batch::send`].
    #[doc(alias = "IBV_WR_SEND")]
    Send(Data<'a>),
    /// [`Batch::send_immediate`].
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImmediate {
        /// The message.
        data: Data<'a>,
        /// The number.
        immediate: u32,
    },
    /// [`Batch::send_invalidate`].
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInvalidate {
        /// The message.
        data: Data<'a>,
        /// Key of the peer's window.
        rkey: u32,
    },
    /// [`Batch::send_datagram`].
    SendDatagram {
        /// The receiver.
        to: Destination<'a>,
        /// The message.
        data: Data<'a>,
    },
    /// [`Batch::send_datagram_immediate`].
    SendDatagramImmediate {
        /// The receiver.
        to: Destination<'a>,
        /// The message.
        data: Data<'a>,
        /// The number.
        immediate: u32,
    },
    /// [`Batch::write`].
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write {
        /// Where to.
        to: RemoteAddress,
        /// The bytes.
        data: Data<'a>,
    },
    /// [`Batch::write_immediate`].
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImmediate {
        /// Where to.
        to: RemoteAddress,
        /// The bytes.
        data: Data<'a>,
        /// The number.
        immediate: u32,
    },
    /// [`Batch::read`].
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read {
        /// Where from.
        from: RemoteAddress,
        /// Where to, on this side.
        into: &'a [Segment],
    },
    /// [`Batch::compare_swap`].
    CompareSwap {
        /// The 8 bytes at the peer.
        at: RemoteAddress,
        /// What they are compared with.
        compare: u64,
        /// What is put in their place.
        swap: u64,
        /// Where to put what was there before.
        into: Segment,
    },
    /// [`Batch::fetch_add`].
    FetchAdd {
        /// The 8 bytes at the peer.
        at: RemoteAddress,
        /// What is added.
        add: u64,
        /// Where to put what was there before.
        into: Segment,
    },
    /// [`Batch::atomic_write`].
    AtomicWrite {
        /// The 8 bytes at the peer.
        to: RemoteAddress,
        /// What they become.
        bytes: [u8; 8],
    },
    /// [`Batch::flush`].
    Flush {
        /// Where it begins.
        at: RemoteAddress,
        /// How many bytes; `None` for the whole region.
        length: Option<u32>,
        /// How far it reaches.
        placement: FlushPlacement,
    },
    /// [`Batch::bind_window`] to a region. [`Mw::rkey`] is the new key afterwards.
    BindWindow {
        /// The window.
        window: &'a mut Mw,
        /// What it is bound to: an [`Mr`], or a [`Buffer`](crate::Buffer) by its `as_ref`.
        region: &'a Mr,
        /// Which bytes of it.
        range: Range<usize>,
        /// What peers may do there.
        access: Access,
    },
    /// [`Batch::invalidate`].
    Invalidate {
        /// The window.
        window: &'a Mw,
    },
}

impl SendRequest<'_> {
    pub(super) fn add_to(self, batch: &mut Batch<'_>) -> Result<(), PostError> {
        let Self { wr_id, flags, work } = self;
        match work {
            Work::Send(data) => batch.send(wr_id).flags(flags).data(data),
            Work::SendImmediate { data, immediate } => batch
                .send_immediate(wr_id, immediate)
                .flags(flags)
                .data(data),
            Work::SendInvalidate { data, rkey } => {
                batch.send_invalidate(wr_id, rkey).flags(flags).data(data)
            }
            Work::SendDatagram { to, data } => {
                batch.send_datagram(wr_id, to).flags(flags).data(data)
            }
            Work::SendDatagramImmediate {
                to,
                data,
                immediate,
            } => batch
                .send_datagram_immediate(wr_id, to, immediate)
                .flags(flags)
                .data(data),
            Work::Write { to, data } => batch.write(wr_id, to).flags(flags).data(data),
            Work::WriteImmediate {
                to,
                data,
                immediate,
            } => batch
                .write_immediate(wr_id, to, immediate)
                .flags(flags)
                .data(data),
            Work::Read { from, into } => batch.read(wr_id, from).flags(flags).into(into),
            Work::CompareSwap {
                at,
                compare,
                swap,
                into,
            } => batch
                .compare_swap(wr_id, at, compare, swap)
                .flags(flags)
                .into(into),
            Work::FetchAdd { at, add, into } => {
                batch.fetch_add(wr_id, at, add).flags(flags).into(into)
            }
            Work::AtomicWrite { to, bytes } => {
                batch.atomic_write(wr_id, to).flags(flags).bytes(bytes)
            }
            Work::Flush {
                at,
                length,
                placement,
            } => {
                let flush = batch.flush(wr_id, at, placement).flags(flags);
                match length {
                    Some(length) => flush.range(length),
                    None => flush.region(),
                }
            }
            Work::BindWindow {
                window,
                region,
                range,
                access,
            } => batch
                .bind_window(wr_id, window)
                .flags(flags)
                .to(region, range, access)
                .map(drop),
            Work::Invalidate { window } => batch.invalidate(wr_id, window).flags(flags).add(),
        }
    }
}

/// Why a list was not posted whole.
#[doc(alias = "bad_wr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListError {
    /// The first request that was not posted; as many were posted before it.
    pub index: usize,
    /// Why.
    pub source: PostError,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of the list: {}", self.index, self.source)
    }
}

impl std::error::Error for ListError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<ListError> for Error {
    fn from(error: ListError) -> Self {
        let text = error.to_string();
        Error::from(error.source).because(text)
    }
}

impl From<ListError> for std::io::Error {
    fn from(error: ListError) -> Self {
        Error::from(error).into()
    }
}
