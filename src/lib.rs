//! RDMA connection management and verbs in pure Rust, spoken straight to the Linux kernel.
//!
//! The crate takes the place of librdmacm and libibverbs: it sends commands to
//! `/dev/infiniband/rdma_cm` and `/dev/infiniband/uverbsN`, and works the queues that a device
//! shares with the process. There is no C in it.
//!
//! # Where to begin
//!
//! * The [guide] says which way to take, with whole programs.
//! * [`RdmaStream`] and [`RdmaListener`] are byte streams with the habits of [`std::net`], and
//!   [`RdmaDatagram`] is for datagrams.
//! * [`Connector`], [`Listener`] and [`Connection`] connect two programs in a few lines.
//! * [`SyncId`] is an id without an event channel to care for, as programs of the C library use it:
//!   each call waits for its step. [`AddrInfoQuery`] finds addresses by names.
//! * [`EventChannel`], [`CmId`] and [`Event`] give every step of the connection manager, with
//!   [`Pd`], [`Buffer`], [`Cq`] and [`Qp`] beside them.
//! * [`devices`] lists the RDMA devices; a [`Context`] is an open one.
//!
//! The crate drives the kernel's software devices, soft-RoCE (rxe) and soft-iWARP (siw), and ConnectX
//! cards (mlx5), on which nobody has run it yet. siw has reliable connections only, and the side that
//! connects has to speak first; the README lists what each can do. Other devices are listed, but
//! opening one, and so binding an address of it or resolving over it, fails with
//! [`ErrorKind::NotSupported`].
//!
//! Items carry the names of their C counterparts: search for `rdma_connect`. [`c_names`] is the
//! whole table.
//!
//! # Async
//!
//! With the feature `tokio`, off by default, the module `rdmacm::tokio` has streams, endpoints, event
//! channels and completion queues that tasks wait for.
//!
//! # What holds everywhere
//!
//! * Handles may be dropped in any order. A queue pair is destroyed before its id, memory is
//!   deregistered before it is given back.
//! * Events need no acknowledging, and no call waits for one that somebody holds.
//! * Requests are checked before the kernel is asked, and so is what the device does not have. An
//!   [`Error`] names the operation, the kernel's errno and what it means.
//! * Everything is `Send` and `Sync`. Posting and polling take `&mut` and no lock (on mlx5 one that is
//!   held for a moment where a queue pair is made or reset, for messages within their completion).
//! * After a fork the child has no use of the parent's objects: it opens its own (in a program with
//!   several threads only after an exec).

#![deny(unsafe_code)]

// What unit tests share with the examples names the crate as those do.
#[cfg(test)]
extern crate self as rdmacm;

mod cm;
mod device;
mod endpoint;
mod error;
#[cfg(feature = "tokio")]
mod executor;
#[allow(unsafe_code)]
mod fastpath;
mod qp_table;
mod slot_table;
mod stream;
#[allow(unsafe_code)]
mod sys;
#[cfg(feature = "tokio")]
pub mod tokio;
mod verbs;

pub use cm::{
    AddrInfo, AddrInfoQuery, Address, AddressFamily, CmId, ConnParam, ConnectRequest,
    ConnectionData, DatagramPeer, Ece, Event, EventChannel, IbAddress, IdEvent, Membership,
    PathRecord, PortSpace, RejectReason, Service, Status, Step, Wake,
};
pub use device::{
    AsyncEvent, AsyncEvents, AtomicCapability, Context, CqToken, Device, DeviceAttr, DeviceCaps,
    Driver, Gid, GidEntry, GidType, LinkLayer, Mtu, OdpCaps, OdpOperations, PhysicalState,
    PortAttr, PortCaps, PortState, QpToken, SrqToken, Transport, devices,
};
pub use endpoint::{Connection, Connector, Incoming, Listener, Prepared, Queues, Settings, SyncId};
pub use error::{Error, ErrorKind, Result};
pub use fastpath::{
    Completion, CompletionStatus, Failure, FlushPlacement, GRH_LENGTH, Opcode, PostError, QpFlags,
    QpType, RemoteAddress, Segment, SendFlags, Success,
};
pub use stream::{
    IncomingStreams, Lent, MappedBuffer, RdmaDatagram, RdmaListener, RdmaStream, StreamReady,
    StreamSettings,
};
pub use verbs::{
    Access, AddressHandle, AtomicBuilder, AtomicWriteBuilder, Batch, BindBuilder, Buffer,
    CompletionChannel, Completions, Cq, CqBuilder, Data, Destination, FlushBuilder,
    InvalidateBuilder, ListError, Mr, MrChange, Mw, MwType, Path, Pd, Qp, QpAttr, QpCapabilities,
    QpInfo, QpModify, QpState, ReadBuilder, RecvHalf, RecvRequest, RegisteredBuffer,
    RequestBuilder, SendHalf, SendRequest, Srq, SrqAttr, SrqInfo, Work, Xrcd,
};

#[doc = include_str!("../docs/c-names.md")]
pub mod c_names {}

/// Which of the ways in to take.
#[doc = include_str!("../docs/guide.md")]
///
/// # With a stream
///
#[doc = concat!("```no_run\n", include_str!("../examples/hello_stream.rs"), "\n```")]
///
/// # With a connection
///
#[doc = concat!("```no_run\n", include_str!("../examples/hello.rs"), "\n```")]
///
/// # With verbs
///
#[doc = concat!("```no_run\n", include_str!("../examples/hello_verbs.rs"), "\n```")]
pub mod guide {}

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

#[cfg(doctest)]
mod misuse;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
