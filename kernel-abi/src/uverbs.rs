//! Verbs: the devices `/dev/infiniband/uverbsN`.
//!
//! Commands go either by `write()` or, inside attributes, by [`ioctl`]. A command by `write()` is
//! a [`CmdHeader`], the command's structure, then the driver's request; the driver's answer
//! follows the core's at once, even where that leaves it 4-aligned. An extended command has an
//! [`ExCmdHeader`] after the [`CmdHeader`], counts in 8-byte units, and its structures here are
//! named `Ex...`.
//!
//! Checked against `rdma/ib_user_verbs.h`, `rdma/ib_user_ioctl_verbs.h` and
//! `rdma/ib_user_ioctl_cmds.h` of Linux 6.1, newer parts against the copies in rdma-core of August
//! 2026 (Linux 7.x). Numbers those headers leave to the kernel's internals (statuses, attribute
//! masks, event types) are those of `infiniband/verbs.h`.

mod ah;
mod command;
mod context;
mod cq;
mod device;
mod events;
mod flow;
pub mod ioctl;
mod memory;
mod numbers;
mod qp;
mod srq;
mod wc;
mod work;

pub use ah::*;
pub use command::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use events::*;
pub use flow::*;
pub use memory::*;
pub use numbers::*;
pub use qp::*;
pub use srq::*;
pub use wc::*;
pub use work::*;

/// Of the structures and numbers of the `write()` interface.
const HEADER: &str = "rdma/ib_user_verbs.h";
/// Of the numbers shared by both interfaces.
const IOCTL_VERBS_HEADER: &str = "rdma/ib_user_ioctl_verbs.h";
/// Of numbers no kernel header exports.
const LIBRARY_HEADER: &str = "infiniband/verbs.h";

layouts![
    CmdHeader,
    ExCmdHeader,
    GetContext,
    GetContextResp,
    AllocPd,
    AllocPdResp,
    DeallocPd,
    OpenXrcd,
    OpenXrcdResp,
    CloseXrcd,
    QueryDevice,
    QueryDeviceResp,
    ExQueryDevice,
    OdpTransportCaps,
    OdpCaps,
    RssCaps,
    TmCaps,
    CqModerationCaps,
    ExQueryDeviceResp,
    QueryPort,
    QueryPortResp,
    RegMr,
    RegMrResp,
    ReregMr,
    ReregMrResp,
    DeregMr,
    AllocMw,
    AllocMwResp,
    DeallocMw,
    CreateCompChannel,
    CreateCompChannelResp,
    CreateCq,
    CreateCqResp,
    ExCreateCq,
    ExCreateCqResp,
    ResizeCq,
    ResizeCqResp,
    PollCq,
    PollCqResp,
    ReqNotifyCq,
    DestroyCq,
    DestroyCqResp,
    CqModeration,
    ExModifyCq,
    GlobalRoute,
    AhAttr,
    CreateAh,
    CreateAhResp,
    DestroyAh,
    AttachMcast,
    DetachMcast,
    CreateQp,
    CreateQpResp,
    ExCreateQp,
    ExCreateQpResp,
    OpenQp,
    QpAttr,
    QpDest,
    QueryQp,
    QueryQpResp,
    ModifyQp,
    ExModifyQp,
    ExModifyQpResp,
    DestroyQp,
    DestroyQpResp,
    CreateSrq,
    CreateXsrq,
    CreateSrqResp,
    ModifySrq,
    QuerySrq,
    QuerySrqResp,
    DestroySrq,
    DestroySrqResp,
    CompEventDesc,
    AsyncEventDesc,
    FlowSpecHdr,
    FlowAttr,
    CreateFlow,
    CreateFlowResp,
    DestroyFlow,
    Sge,
    SendWrRdma,
    SendWrAtomic,
    SendWrUd,
    SendWr,
    RecvWr,
    PostSend,
    PostSendResp,
    PostRecv,
    PostRecvResp,
    PostSrqRecv,
    PostSrqRecvResp,
    Wc,
    ioctl::Attr,
    ioctl::Header,
    ioctl::QueryPortRespEx,
    ioctl::QpCap,
    ioctl::GidEntry,
];

numbers![
    command::CONSTANTS,
    Command::NUMBERS,
    ExCommand::NUMBERS,
    CreateCqFlags::NUMBERS,
    DeviceCapFlags::NUMBERS,
    AccessFlags::NUMBERS,
    CoreSupport::NUMBERS,
    QpType::NUMBERS,
    QpCreateFlags::NUMBERS,
    SrqType::NUMBERS,
    DriverId::NUMBERS,
    GidType::NUMBERS,
    PortFlags::NUMBERS,
    PortCapFlags::NUMBERS,
    AdviseMrAdvice::NUMBERS,
    AdviseMrFlags::NUMBERS,
    QpState::NUMBERS,
    QpAttrMask::NUMBERS,
    SrqAttrMask::NUMBERS,
    MigState::NUMBERS,
    Mtu::NUMBERS,
    PortState::NUMBERS,
    LinkLayer::NUMBERS,
    MwType::NUMBERS,
    ReregMrFlags::NUMBERS,
    AsyncEventType::NUMBERS,
    WcStatus::NUMBERS,
    WcOpcode::NUMBERS,
    WcFlags::NUMBERS,
    WrOpcode::NUMBERS,
    SendFlags::NUMBERS,
    FlushPlacement::NUMBERS,
    FlushSelectivity::NUMBERS,
];
