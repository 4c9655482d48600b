//! Work requests handed to the kernel, and the command that rings a driver's doorbell.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// A piece of memory.
#[doc(alias = "ib_uverbs_sge")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of its region.
    pub lkey: u32,
}
layout!(Sge, "struct ib_uverbs_sge", 16, { addr: 0, length: 8, lkey: 12 });

/// `wr` of an RDMA request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWrRdma {
    /// Address at the peer.
    pub remote_addr: u64,
    /// Key of the peer's region.
    pub rkey: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(SendWrRdma, "struct ib_uverbs_send_wr" . "wr.rdma", 16, {
    remote_addr: 0, rkey: 8, reserved: 12,
});

/// `wr` of an atomic request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWrAtomic {
    /// Address at the peer.
    pub remote_addr: u64,
    /// Value to compare with, or to add.
    pub compare_add: u64,
    /// Value to store.
    pub swap: u64,
    /// Key of the peer's region.
    pub rkey: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(SendWrAtomic, "struct ib_uverbs_send_wr" . "wr.atomic", 32, {
    remote_addr: 0, compare_add: 8, swap: 16, rkey: 24, reserved: 28,
});

/// `wr` of a datagram.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SendWrUd {
    /// Address handle.
    pub ah: u32,
    /// Number of the peer's queue pair.
    pub remote_qpn: u32,
    /// Queue key of the peer.
    pub remote_qkey: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(SendWrUd, "struct ib_uverbs_send_wr" . "wr.ud", 16, {
    ah: 0, remote_qpn: 4, remote_qkey: 8, reserved: 12,
});

/// A send request.
#[doc(alias = "ib_uverbs_send_wr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWr {
    /// Value of the caller.
    pub wr_id: u64,
    /// Scatter/gather entries.
    pub num_sge: u32,
    /// A [`WrOpcode`](super::WrOpcode).
    pub opcode: u32,
    /// [`SendFlags`](super::SendFlags).
    pub send_flags: u32,
    /// Immediate data (big-endian) or key to invalidate.
    pub ex: u32,
    /// [`SendWrRdma`], [`SendWrAtomic`] or [`SendWrUd`].
    pub wr: [u64; 4],
}
layout!(SendWr, "struct ib_uverbs_send_wr", 56, {
    wr_id: 0, num_sge: 8, opcode: 12, send_flags: 16, ex: 20, wr: 24,
});

/// A receive request.
#[doc(alias = "ib_uverbs_recv_wr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct RecvWr {
    /// Value of the caller.
    pub wr_id: u64,
    /// Scatter/gather entries.
    pub num_sge: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(RecvWr, "struct ib_uverbs_recv_wr", 16, { wr_id: 0, num_sge: 8, reserved: 12 });

/// Posts sends; with both counts 0 it only rings the doorbell.
#[doc(alias = "ib_uverbs_post_send")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct PostSend {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Queue pair.
    pub qp_handle: u32,
    /// [`SendWr`] records that follow.
    pub wr_count: u32,
    /// [`Sge`] records that follow.
    pub sge_count: u32,
    /// Bytes of each [`SendWr`] record, at least its size even if none follows.
    pub wqe_size: u32,
}
layout!(PostSend, "struct ib_uverbs_post_send", 24, {
    response: 0, qp_handle: 8, wr_count: 12, sge_count: 16, wqe_size: 20,
});

/// Answer to [`PostSend`].
#[doc(alias = "ib_uverbs_post_send_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PostSendResp {
    /// Number of the request that failed, from 1; 0 if none did.
    pub bad_wr: u32,
}
layout!(PostSendResp, "struct ib_uverbs_post_send_resp", 4, { bad_wr: 0 });

/// Posts receives.
#[doc(alias = "ib_uverbs_post_recv")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct PostRecv {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Queue pair.
    pub qp_handle: u32,
    /// [`RecvWr`] records that follow.
    pub wr_count: u32,
    /// [`Sge`] records that follow.
    pub sge_count: u32,
    /// Bytes of each [`RecvWr`] record.
    pub wqe_size: u32,
}
layout!(PostRecv, "struct ib_uverbs_post_recv", 24, {
    response: 0, qp_handle: 8, wr_count: 12, sge_count: 16, wqe_size: 20,
});

/// Answer to [`PostRecv`].
#[doc(alias = "ib_uverbs_post_recv_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PostRecvResp {
    /// Number of the request that failed, from 1; 0 if none did.
    pub bad_wr: u32,
}
layout!(PostRecvResp, "struct ib_uverbs_post_recv_resp", 4, { bad_wr: 0 });

/// Posts receives to a shared receive queue.
#[doc(alias = "ib_uverbs_post_srq_recv")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct PostSrqRecv {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Shared receive queue.
    pub srq_handle: u32,
    /// [`RecvWr`] records that follow.
    pub wr_count: u32,
    /// [`Sge`] records that follow.
    pub sge_count: u32,
    /// Bytes of each [`RecvWr`] record.
    pub wqe_size: u32,
}
layout!(PostSrqRecv, "struct ib_uverbs_post_srq_recv", 24, {
    response: 0, srq_handle: 8, wr_count: 12, sge_count: 16, wqe_size: 20,
});

/// Answer to [`PostSrqRecv`].
#[doc(alias = "ib_uverbs_post_srq_recv_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PostSrqRecvResp {
    /// Number of the request that failed, from 1; 0 if none did.
    pub bad_wr: u32,
}
layout!(PostSrqRecvResp, "struct ib_uverbs_post_srq_recv_resp", 4, { bad_wr: 0 });
