//! Software iWARP: driver data of the verbs commands, and the queues shared with the kernel.
//!
//! A queue is a plain array of [`Sqe`], [`Rqe`] or [`Cqe`], mapped with the key its creation
//! returned; each element belongs to the kernel or to the user by its `VALID` flag. A completion
//! queue ends with a [`CqCtrl`].
//!
//! Checked against `rdma/siw-abi.h` of Linux 6.1; the copy in rdma-core of August 2026 (Linux 7.x)
//! is the same.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const HEADER: &str = "rdma/siw-abi.h";

constants! {
    CONSTANTS: usize, "SIW_" {
        /// Version of this interface.
        ABI_VERSION = 1,
        /// Scatter/gather entries of an element.
        MAX_SGE = 6,
        /// Bytes that can be sent inline.
        MAX_INLINE = 80,
        /// Key of a queue that does not exist, on some kernels; others answer 0, also a valid key.
        INVAL_UOBJ_KEY = 0x90000,
    }
}

/// Driver's answer to creating a completion queue.
#[doc(alias = "siw_uresp_create_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct UrespCreateCq {
    /// Number of the queue.
    pub cq_id: u32,
    /// Elements, a power of two.
    pub num_cqe: u32,
    /// Offset for `mmap()`.
    pub cq_key: u64,
}
layout!(UrespCreateCq, "struct siw_uresp_create_cq", 16, { cq_id: 0, num_cqe: 4, cq_key: 8 });

/// Driver's answer to creating a queue pair.
#[doc(alias = "siw_uresp_create_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct UrespCreateQp {
    /// Number of the queue pair.
    pub qp_id: u32,
    /// Elements of the send queue, a power of two.
    pub num_sqe: u32,
    /// Elements of the receive queue, a power of two or 0.
    pub num_rqe: u32,
    /// Unused.
    pub pad: u32,
    /// Offset of the send queue for `mmap()`.
    pub sq_key: u64,
    /// Offset of the receive queue for `mmap()`; none with a shared receive queue.
    pub rq_key: u64,
}
layout!(UrespCreateQp, "struct siw_uresp_create_qp", 32, {
    qp_id: 0, num_sqe: 4, num_rqe: 8, pad: 12, sq_key: 16, rq_key: 24,
});

/// Driver's request when registering memory.
#[doc(alias = "siw_ureq_reg_mr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UreqRegMr {
    /// Low byte of the key.
    pub stag_key: u8,
    /// Must be 0.
    pub reserved: [u8; 3],
    /// Must be 0.
    pub pad: u32,
}
layout!(UreqRegMr, "struct siw_ureq_reg_mr", 8, { stag_key: 0, reserved: 1, pad: 4 });

/// Driver's answer to registering memory.
#[doc(alias = "siw_uresp_reg_mr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UrespRegMr {
    /// The key.
    pub stag: u32,
    /// Unused.
    pub pad: u32,
}
layout!(UrespRegMr, "struct siw_uresp_reg_mr", 8, { stag: 0, pad: 4 });

/// Driver's answer to creating a shared receive queue.
#[doc(alias = "siw_uresp_create_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct UrespCreateSrq {
    /// Elements, a power of two.
    pub num_rqe: u32,
    /// Unused.
    pub pad: u32,
    /// Offset for `mmap()`.
    pub srq_key: u64,
}
layout!(UrespCreateSrq, "struct siw_uresp_create_srq", 16, { num_rqe: 0, pad: 4, srq_key: 8 });

/// Driver's answer to making a context.
#[doc(alias = "siw_uresp_alloc_ctx")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UrespAllocCtx {
    /// Number of the device.
    pub dev_id: u32,
    /// Unused.
    pub pad: u32,
}
layout!(UrespAllocCtx, "struct siw_uresp_alloc_ctx", 8, { dev_id: 0, pad: 4 });

open_enum! {
    /// Operation of an element.
    pub struct Opcode(u8), "SIW_OP_" {
        /// RDMA write.
        WRITE = 0,
        /// RDMA read.
        READ = 1,
        /// RDMA read, then invalidate the local key.
        READ_LOCAL_INV = 2,
        /// Send.
        SEND = 3,
        /// Send with immediate data.
        SEND_WITH_IMM = 4,
        /// Send that invalidates a key of the peer.
        SEND_REMOTE_INV = 5,
        /// Atomic add; not supported.
        FETCH_AND_ADD = 6,
        /// Atomic compare and swap; not supported.
        COMP_AND_SWAP = 7,
        /// Receive.
        RECEIVE = 8,
        /// Answer to a read; internal to the kernel.
        READ_RESPONSE = 9,
        /// Invalidate a key; only in the kernel.
        INVAL_STAG = 10,
        /// Register memory; only in the kernel.
        REG_MR = 11,
    }
}

/// A piece of memory.
#[doc(alias = "siw_sge")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Sge {
    /// Address.
    pub laddr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of its region.
    pub lkey: u32,
}
layout!(Sge, "struct siw_sge", 16, { laddr: 0, length: 8, lkey: 12 });

flag_bits! {
    /// Flags of an element.
    pub struct WqeFlags: u16, "SIW_WQE_" {
        /// Filled in; set last, cleared by the side that takes it out.
        VALID = 1,
        /// The data is inline.
        INLINE = 1 << 1,
        /// Completes visibly.
        SIGNALLED = 1 << 2,
        /// Raises a solicited event at the peer.
        SOLICITED = 1 << 3,
        /// Wait for earlier reads.
        READ_FENCE = 1 << 4,
        /// In a completion: a key was invalidated.
        REM_INVAL = 1 << 5,
        /// Completed; internal to the kernel.
        COMPLETED = 1 << 6,
    }
}

/// Element of a send queue. Inline bytes start at `sge[1]`, their length is `sge[0].length`.
#[doc(alias = "siw_sqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Sqe {
    /// Value of the caller.
    pub id: u64,
    /// [`WqeFlags`].
    pub flags: u16,
    /// Scatter/gather entries.
    pub num_sge: u8,
    /// An [`Opcode`].
    pub opcode: u8,
    /// Key of the peer's region, or key to invalidate.
    pub rkey: u32,
    /// Address at the peer.
    pub raddr: u64,
    /// Scatter/gather entries.
    pub sge: [Sge; 6],
}
layout!(Sqe, "struct siw_sqe", 120, {
    id: 0, flags: 8, num_sge: 10, opcode: 11, rkey: 12, raddr: 16, sge: 24,
});

/// Element of a receive queue.
#[doc(alias = "siw_rqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Rqe {
    /// Value of the caller.
    pub id: u64,
    /// [`WqeFlags`].
    pub flags: u16,
    /// Scatter/gather entries.
    pub num_sge: u8,
    /// Ignored.
    pub opcode: u8,
    /// Must be 0.
    pub unused: u32,
    /// Scatter/gather entries.
    pub sge: [Sge; 6],
}
layout!(Rqe, "struct siw_rqe", 112, {
    id: 0, flags: 8, num_sge: 10, opcode: 11, unused: 12, sge: 16,
});

flag_bits! {
    /// Which completions raise an event.
    pub struct NotifyFlags: u32, "SIW_NOTIFY_" {
        /// Solicited ones.
        SOLICITED = 1,
        /// Every one.
        NEXT_COMPLETION = 1 << 1,
        /// Those missed so far; only in the kernel.
        MISSED_EVENTS = 1 << 2,
    }
}

open_enum! {
    /// Outcome of a work request.
    pub struct WcStatus(u16), "SIW_WC_" {
        /// Done.
        SUCCESS = 0,
        /// The local buffer's length does not fit.
        LOC_LEN_ERR = 1,
        /// A local key or address is invalid.
        LOC_PROT_ERR = 2,
        /// The local queue pair is inconsistent.
        LOC_QP_OP_ERR = 3,
        /// Flushed, the queue pair failed earlier.
        WR_FLUSH_ERR = 4,
        /// The peer's response makes no sense.
        BAD_RESP_ERR = 5,
        /// Local memory could not be accessed.
        LOC_ACCESS_ERR = 6,
        /// The peer denied access.
        REM_ACCESS_ERR = 7,
        /// The peer found the request invalid.
        REM_INV_REQ_ERR = 8,
        /// Another failure.
        GENERAL_ERR = 9,
    }
}

/// Element of a completion queue.
#[doc(alias = "siw_cqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Cqe {
    /// Value of the work request.
    pub id: u64,
    /// [`WqeFlags`], low byte.
    pub flags: u8,
    /// An [`Opcode`].
    pub opcode: u8,
    /// A [`WcStatus`].
    pub status: u16,
    /// Bytes transferred.
    pub bytes: u32,
    /// Immediate data (big-endian), or invalidated key in the first 4 bytes.
    pub imm_data: u64,
    /// Number of the queue pair.
    pub qp_id: u64,
}
layout!(Cqe, "struct siw_cqe", 32, {
    id: 0, flags: 8, opcode: 9, status: 10, bytes: 12, imm_data: 16, qp_id: 24,
});

/// Follows the elements of a completion queue.
#[doc(alias = "siw_cq_ctrl")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CqCtrl {
    /// [`NotifyFlags`]; set to arm, cleared by the kernel when it raises the event.
    pub flags: u32,
    /// Must be 0.
    pub pad: u32,
}
layout!(CqCtrl, "struct siw_cq_ctrl", 8, { flags: 0, pad: 4 });

numbers![
    CONSTANTS,
    Opcode::NUMBERS,
    WqeFlags::NUMBERS,
    NotifyFlags::NUMBERS,
    WcStatus::NUMBERS,
];

layouts![
    UrespCreateCq,
    UrespCreateQp,
    UreqRegMr,
    UrespRegMr,
    UrespCreateSrq,
    UrespAllocCtx,
    Sge,
    Sqe,
    Rqe,
    Cqe,
    CqCtrl,
];
