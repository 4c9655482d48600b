//! The connection manager's device, `/dev/infiniband/rdma_cm`.
//!
//! A command is one `write()`: a [`CommandHeader`], then the command's structure. A command with
//! an answer carries the answer's address in its `response` field.
//!
//! Checked against `rdma/rdma_user_cm.h` and `rdma/ib_user_sa.h` of Linux 6.1, newer parts against
//! the copies in rdma-core of August 2026 (Linux 7.x).

mod address;
mod connection;
mod event;
mod id;
mod path;
mod query;

pub use address::*;
pub use connection::*;
pub use event::*;
pub use id::*;
pub use path::*;
pub use query::*;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const HEADER: &str = "rdma/rdma_user_cm.h";

constants! {
    CONSTANTS: u32, "RDMA_" {
        /// Version of this interface.
        USER_CM_ABI_VERSION = 4,
        /// Bytes of the private data arrays.
        MAX_PRIVATE_DATA = 256,
    }
}

/// Number of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Command {
    /// [`CreateId`], answered by [`CreateIdResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_CREATE_ID")]
    CreateId = 0,
    /// [`DestroyId`], answered by [`DestroyIdResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_DESTROY_ID")]
    DestroyId = 1,
    /// [`BindIp`].
    #[doc(alias = "RDMA_USER_CM_CMD_BIND_IP")]
    BindIp = 2,
    /// [`ResolveIp`].
    #[doc(alias = "RDMA_USER_CM_CMD_RESOLVE_IP")]
    ResolveIp = 3,
    /// [`ResolveRoute`].
    #[doc(alias = "RDMA_USER_CM_CMD_RESOLVE_ROUTE")]
    ResolveRoute = 4,
    /// [`Query`] without an option, answered by [`QueryRouteResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_QUERY_ROUTE")]
    QueryRoute = 5,
    /// [`Connect`].
    #[doc(alias = "RDMA_USER_CM_CMD_CONNECT")]
    Connect = 6,
    /// [`Listen`].
    #[doc(alias = "RDMA_USER_CM_CMD_LISTEN")]
    Listen = 7,
    /// [`Accept`].
    #[doc(alias = "RDMA_USER_CM_CMD_ACCEPT")]
    Accept = 8,
    /// [`Reject`].
    #[doc(alias = "RDMA_USER_CM_CMD_REJECT")]
    Reject = 9,
    /// [`Disconnect`].
    #[doc(alias = "RDMA_USER_CM_CMD_DISCONNECT")]
    Disconnect = 10,
    /// [`InitQpAttr`], answered by [`uverbs::QpAttr`](crate::uverbs::QpAttr).
    #[doc(alias = "RDMA_USER_CM_CMD_INIT_QP_ATTR")]
    InitQpAttr = 11,
    /// [`GetEvent`], answered by [`EventResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_GET_EVENT")]
    GetEvent = 12,
    /// Never implemented by the kernel.
    #[doc(alias = "RDMA_USER_CM_CMD_GET_OPTION")]
    GetOption = 13,
    /// [`SetOption`].
    #[doc(alias = "RDMA_USER_CM_CMD_SET_OPTION")]
    SetOption = 14,
    /// [`Notify`].
    #[doc(alias = "RDMA_USER_CM_CMD_NOTIFY")]
    Notify = 15,
    /// [`JoinIpMcast`], answered by [`CreateIdResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_JOIN_IP_MCAST")]
    JoinIpMcast = 16,
    /// [`DestroyId`] with the number the join returned, answered by [`DestroyIdResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_LEAVE_MCAST")]
    LeaveMcast = 17,
    /// [`MigrateId`], answered by [`MigrateResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_MIGRATE_ID")]
    MigrateId = 18,
    /// [`Query`] with a [`QueryOption`].
    #[doc(alias = "RDMA_USER_CM_CMD_QUERY")]
    Query = 19,
    /// [`Bind`].
    #[doc(alias = "RDMA_USER_CM_CMD_BIND")]
    Bind = 20,
    /// [`ResolveAddr`].
    #[doc(alias = "RDMA_USER_CM_CMD_RESOLVE_ADDR")]
    ResolveAddr = 21,
    /// [`JoinMcast`], answered by [`CreateIdResp`].
    #[doc(alias = "RDMA_USER_CM_CMD_JOIN_MCAST")]
    JoinMcast = 22,
    /// [`ResolveIbService`]; kernels without it answer `EINVAL`.
    #[doc(alias = "RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE")]
    ResolveIbService = 23,
    /// [`WriteCmEvent`]; kernels without it answer `EINVAL`.
    #[doc(alias = "RDMA_USER_CM_CMD_WRITE_CM_EVENT")]
    WriteCmEvent = 24,
}

enum_numbers! {
    Command, "RDMA_USER_CM_CMD_" {
        CREATE_ID = CreateId, DESTROY_ID = DestroyId, BIND_IP = BindIp, RESOLVE_IP = ResolveIp,
        RESOLVE_ROUTE = ResolveRoute, QUERY_ROUTE = QueryRoute, CONNECT = Connect,
        LISTEN = Listen, ACCEPT = Accept, REJECT = Reject, DISCONNECT = Disconnect,
        INIT_QP_ATTR = InitQpAttr, GET_EVENT = GetEvent, GET_OPTION = GetOption,
        SET_OPTION = SetOption, NOTIFY = Notify, JOIN_IP_MCAST = JoinIpMcast,
        LEAVE_MCAST = LeaveMcast, MIGRATE_ID = MigrateId, QUERY = Query, BIND = Bind,
        RESOLVE_ADDR = ResolveAddr, JOIN_MCAST = JoinMcast,
        RESOLVE_IB_SERVICE = ResolveIbService, WRITE_CM_EVENT = WriteCmEvent,
    }
}

/// The start of every command.
#[doc(alias = "rdma_ucm_cmd_hdr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CommandHeader {
    /// A [`Command`].
    pub cmd: u32,
    /// Bytes that follow the header.
    pub in_: u16,
    /// Bytes of the buffer for the answer.
    pub out: u16,
}
layout!(CommandHeader, "struct rdma_ucm_cmd_hdr", 8, { cmd: 0, in_ = "in": 4, out: 6 });

layouts![
    ConnParam,
    UdParam,
    Ece,
    Connect,
    Listen,
    Accept,
    Reject,
    Disconnect,
    PathRecord,
    PathData,
    IbUserPathRec,
    IbUserServiceRec,
    BindIp,
    Bind,
    ResolveIp,
    ResolveAddr,
    ResolveRoute,
    JoinIpMcast,
    JoinMcast,
    GetEvent,
    EventResp,
    WriteCmEvent,
    CreateId,
    CreateIdResp,
    DestroyId,
    DestroyIdResp,
    MigrateId,
    MigrateResp,
    InitQpAttr,
    Notify,
    SetOption,
    Query,
    QueryRouteResp,
    QueryAddrResp,
    QueryPathResp,
    IbService,
    ResolveIbService,
    QueryIbServiceResp,
    CommandHeader,
];

numbers![
    CONSTANTS,
    Command::NUMBERS,
    PortSpace::NUMBERS,
    McJoinFlags::NUMBERS,
    EventType::NUMBERS,
    OptionLevel::NUMBERS,
    IdOption::NUMBERS,
    IbOption::NUMBERS,
    PathFlags::NUMBERS,
    QueryOption::NUMBERS,
    IbServiceFlags::NUMBERS,
    IB_SERVICE_CONSTANTS,
];
