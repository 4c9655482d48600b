//! NVIDIA ConnectX-4 and later: driver data of the verbs commands, and the queues shared with the
//! device.
//!
//! Driver data (contexts, objects, doorbell pages) is checked against `rdma/mlx5-abi.h`,
//! `rdma/mlx5_user_ioctl_cmds.h` and `rdma/mlx5_user_ioctl_verbs.h` of Linux 6.1, newer parts
//! against the copies in rdma-core of August 2026 (Linux 7.x). What the device itself defines (work
//! queue segments, completions) is checked against `infiniband/mlx5dv.h` of that rdma-core.

mod completion;
mod context;
mod memory_window;
mod object;
mod pci;
mod uar;
mod work_queue;

pub use completion::*;
pub use context::*;
pub use memory_window::*;
pub use object::*;
pub use pci::*;
pub use uar::*;
pub use work_queue::*;

/// Of the driver data.
const HEADER: &str = "rdma/mlx5-abi.h";
/// Of what the device defines.
const DEVICE_HEADER: &str = "infiniband/mlx5dv.h";

numbers![
    context::CONSTANTS,
    AllocUctxFlags::NUMBERS,
    LibCaps::NUMBERS,
    AllocUcontextRespMask::NUMBERS,
    CmdsSuppUhw::NUMBERS,
    InlineMode::NUMBERS,
    QueryDeviceFlags::NUMBERS,
    QpFlags::NUMBERS,
    SrqFlags::NUMBERS,
    CreateCqFlags::NUMBERS,
    CreateQpRespMask::NUMBERS,
    ModifyQpMask::NUMBERS,
    MmapCmd::NUMBERS,
    uar_ids::OBJECTS,
    uar_ids::METHODS,
    uar_ids::ALLOC_ATTRS,
    uar_ids::DESTROY_ATTRS,
    UarAllocType::NUMBERS,
    Opcode::NUMBERS,
    CtrlFlags::NUMBERS,
    work_queue::CONSTANTS,
    EthChecksum::NUMBERS,
    UmrFlags::NUMBERS,
    MkeyMask::NUMBERS,
    MkeyAccess::NUMBERS,
    memory_window::CONSTANTS,
    CqeOpcode::NUMBERS,
    CqeSyndrome::NUMBERS,
    CqeChecksum::NUMBERS,
    completion::ARM_CONSTANTS,
    completion::CONSTANTS,
    query_ids::ATTRS,
];

layouts![
    AllocUcontextReq,
    AllocUcontextReqV2,
    AllocUcontextResp,
    TsoCaps,
    RssCaps,
    CqeCompCaps,
    PacketPacingCaps,
    SwParsingCaps,
    StridingRqCaps,
    DciStreamsCaps,
    UapiReg,
    QueryDeviceResp,
    AllocPdResp,
    CreateCq,
    CreateCqResp,
    ResizeCq,
    CreateSrq,
    CreateSrqResp,
    CreateQpDciStreams,
    CreateQp,
    CreateQpResp,
    AllocMw,
    CreateAhResp,
    BurstInfo,
    ModifyQp,
    ModifyQpResp,
    DoorbellRecord,
    CtrlSeg,
    DataSeg,
    InlDataSeg,
    RaddrSeg,
    AtomicSeg,
    WqeAv,
    DatagramSeg,
    XrcSeg,
    EthSeg,
    SrqNextSeg,
    UmrCtrlSeg,
    MkeyContextSeg,
    UmrKlmSeg,
    Cqe64,
    ErrCqe,
];
