//! RDMA connection management and verbs in pure Rust, spoken straight to the Linux kernel.

mod cm;
mod device;
mod endpoint;
mod error;
mod fastpath;
mod qp_table;
mod slot_table;
mod sys;
mod verbs;

pub use cm::{
    CmId, ConnParam, ConnectRequest, ConnectionData, Event, EventChannel, IdEvent, PortSpace,
    RejectReason, Status,
};
pub use device::{
    AsyncEvent, AsyncEvents, Context, Device, DeviceAttr, Driver, Gid, GidEntry, GidType,
    LinkLayer, Mtu, PortAttr, PortState, Transport, devices,
};
pub use endpoint::{Connection, Connector, Incoming, Listener, Prepared, Settings};
pub use error::{Error, ErrorKind, Result};
pub use fastpath::{
    Completion, CompletionStatus, Failure, Opcode, PostError, RemoteAddress, Segment, SendFlags,
    Success,
};
pub use verbs::{
    Access, Batch, Buffer, CompletionChannel, Cq, CqBuilder, CqToken, Mr, Path, Pd, Qp, QpAttr,
    QpCapabilities, QpModify, QpState, ReadBuilder, RecvHalf, RequestBuilder, SendHalf,
};
