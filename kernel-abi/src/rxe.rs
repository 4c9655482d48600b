//! Software RoCE: driver data of the verbs commands, and the queues shared with the kernel.
//!
//! No request carries driver data except [`ModifySrqCmd`]. Each queue is mapped with the
//! [`MmapInfo`] of its creation: a [`QueueHeader`], then elements of
//! `1 << QueueHeader::log2_elem_size` bytes: a [`SendWqe`], a [`RecvWqe`], or in a completion queue
//! a [`Wc`](crate::uverbs::Wc) at the start of each element.
//!
//! Checked against `rdma/rdma_user_rxe.h` of Linux 6.1, newer parts against the copy in rdma-core
//! of August 2026 (Linux 7.x).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sockaddr::SockaddrIn6;

const HEADER: &str = "rdma/rdma_user_rxe.h";

open_enum! {
    /// IP version of an [`Av`].
    pub struct NetworkType(u8), "RXE_NETWORK_TYPE_" {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
    }
}

/// Where to map a queue.
#[doc(alias = "mminfo")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct MmapInfo {
    /// Offset for `mmap()`; works once.
    pub offset: u64,
    /// Bytes; 0 if there is no such queue.
    pub size: u32,
    /// Must be 0.
    pub pad: u32,
}
layout!(MmapInfo, "struct mminfo", 16, { offset: 0, size: 8, pad: 12 });

/// Driver's answer to creating an address handle.
#[doc(alias = "rxe_create_ah_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateAhResp {
    /// Number for [`SendWrUd::ah_num`]; kernels that want an [`Av`] leave it untouched.
    pub ah_num: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(CreateAhResp, "struct rxe_create_ah_resp", 8, { ah_num: 0, reserved: 4 });

/// Driver's answer to creating a completion queue.
#[doc(alias = "rxe_create_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateCqResp {
    /// The queue.
    pub mi: MmapInfo,
}
layout!(CreateCqResp, "struct rxe_create_cq_resp", 16, { mi: 0 });

/// Driver's answer to resizing a completion queue.
#[doc(alias = "rxe_resize_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ResizeCqResp {
    /// The new queue.
    pub mi: MmapInfo,
}
layout!(ResizeCqResp, "struct rxe_resize_cq_resp", 16, { mi: 0 });

/// Driver's answer to creating a queue pair.
#[doc(alias = "rxe_create_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateQpResp {
    /// Receive queue; not filled in with a shared receive queue.
    pub rq_mi: MmapInfo,
    /// Send queue.
    pub sq_mi: MmapInfo,
}
layout!(CreateQpResp, "struct rxe_create_qp_resp", 32, { rq_mi: 0, sq_mi: 16 });

/// Driver's answer to creating a shared receive queue.
#[doc(alias = "rxe_create_srq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateSrqResp {
    /// The queue.
    pub mi: MmapInfo,
    /// Its number.
    pub srq_num: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(CreateSrqResp, "struct rxe_create_srq_resp", 24, { mi: 0, srq_num: 16, reserved: 20 });

/// Driver's request when modifying a shared receive queue; always needed.
#[doc(alias = "rxe_modify_srq_cmd")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ModifySrqCmd {
    /// Address of an [`MmapInfo`] the kernel fills in when it resizes the queue.
    pub mmap_info_addr: u64,
}
layout!(ModifySrqCmd, "struct rxe_modify_srq_cmd", 8, { mmap_info_addr: 0 });

/// Start of a mapped queue.
#[doc(alias = "rxe_queue_buf")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueueHeader {
    /// Size of an element as a power of two.
    pub log2_elem_size: u32,
    /// Elements - 1, for masking indices.
    pub index_mask: u32,
    /// Keeps the indices in cache lines of their own.
    pub pad_1: [u32; 30],
    /// Element that is written next; masked.
    pub producer_index: u32,
    /// Keeps the indices in cache lines of their own.
    pub pad_2: [u32; 31],
    /// Element that is read next; masked. The queue is empty if both are equal.
    pub consumer_index: u32,
    /// Keeps the elements off the index's cache line.
    pub pad_3: [u32; 31],
}
layout!(QueueHeader, "struct rxe_queue_buf", 384, {
    log2_elem_size: 0, index_mask: 4, pad_1: 8, producer_index: 128, pad_2: 132,
    consumer_index: 256, pad_3: 260,
});

/// The global part of an [`Av`].
#[doc(alias = "rxe_global_route")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct GlobalRoute {
    /// GID of the peer.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Index of the local GID.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Must be 0.
    pub reserved: u8,
}
layout!(GlobalRoute, "struct rxe_global_route", 24, {
    dgid: 0, flow_label: 16, sgid_index: 20, hop_limit: 21, traffic_class: 22, reserved = -: 23,
});

/// Address of a datagram's receiver, for kernels without address handle numbers.
#[doc(alias = "rxe_av")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Av {
    /// Local port.
    pub port_num: u8,
    /// A [`NetworkType`], decided by the receiver's GID.
    pub network_type: u8,
    /// MAC address of the next hop.
    pub dmac: [u8; 6],
    /// Global part.
    pub grh: GlobalRoute,
    /// Local address, IPv4 or IPv6.
    pub sgid_addr: SockaddrIn6,
    /// Address of the receiver, IPv4 or IPv6.
    pub dgid_addr: SockaddrIn6,
}
layout!(Av, "struct rxe_av", 88, {
    port_num: 0, network_type: 1, dmac: 2, grh: 8, sgid_addr: 32, dgid_addr: 60,
});

/// `wr` of an RDMA read or write or an atomic write.
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
layout!(SendWrRdma, "struct rxe_send_wr" . "wr.rdma", 16, {
    remote_addr: 0, rkey: 8, reserved: 12,
});

/// `wr` of an atomic.
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
layout!(SendWrAtomic, "struct rxe_send_wr" . "wr.atomic", 32, {
    remote_addr: 0, compare_add: 8, swap: 16, rkey: 24, reserved: 28,
});

/// `wr` of a datagram.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWrUd {
    /// Number of the peer's queue pair.
    pub remote_qpn: u32,
    /// Queue key of the peer.
    pub remote_qkey: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Must be 0.
    pub reserved: u16,
    /// Number of the address handle, 0 to use `av`.
    pub ah_num: u32,
    /// Must be 0.
    pub pad: [u32; 4],
    /// Address if `ah_num` is 0.
    pub av: Av,
}
layout!(SendWrUd, "struct rxe_send_wr" . "wr.ud", 120, {
    remote_qpn: 0, remote_qkey: 4, pkey_index: 8, reserved: 10, ah_num: 12, pad: 16, av: 32,
});

/// `wr` of binding a memory window.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWrMw {
    /// Start of the window.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Local key of the region.
    pub mr_lkey: u32,
    /// Present key of the window.
    pub mw_rkey: u32,
    /// New key of the window.
    pub rkey: u32,
    /// [`AccessFlags`](crate::uverbs::AccessFlags) of the window.
    pub access: u32,
}
layout!(SendWrMw, "struct rxe_send_wr" . "wr.mw", 32, {
    addr: 0, length: 8, mr_lkey: 16, mw_rkey: 20, rkey: 24, access: 28,
});

/// `wr` of a flush. Newer than Linux 6.1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWrFlush {
    /// Address at the peer.
    pub remote_addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the peer's region.
    pub rkey: u32,
    /// [`FlushPlacement`](crate::uverbs::FlushPlacement) bits.
    pub type_: u8,
    /// A [`FlushSelectivity`](crate::uverbs::FlushSelectivity).
    pub level: u8,
    /// Must be 0.
    pub reserved: [u8; 6],
}
layout!(SendWrFlush, "struct rxe_send_wr" . "wr.flush", 24, {
    remote_addr: 0, length: 8, rkey: 12, type_ = "type": 16, level: 17, reserved = -: 18,
});

/// A send request.
#[doc(alias = "rxe_send_wr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWr {
    /// Value of the caller.
    pub wr_id: u64,
    /// Must be 0.
    pub reserved: u32,
    /// A [`WrOpcode`](crate::uverbs::WrOpcode).
    pub opcode: u32,
    /// [`SendFlags`](crate::uverbs::SendFlags).
    pub send_flags: u32,
    /// Immediate data (big-endian) or key to invalidate.
    pub ex: u32,
    /// [`SendWrRdma`], [`SendWrAtomic`], [`SendWrUd`], [`SendWrMw`] or [`SendWrFlush`].
    pub wr: [u64; 15],
}
layout!(SendWr, "struct rxe_send_wr", 144, {
    wr_id: 0, reserved: 8, opcode: 12, send_flags: 16, ex: 20, wr: 24,
});

/// A piece of memory.
#[doc(alias = "rxe_sge")]
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
layout!(Sge, "struct rxe_sge", 16, { addr: 0, length: 8, lkey: 12 });

/// The data of a request; [`Sge`] records or inline bytes follow the element.
#[doc(alias = "rxe_dma_info")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DmaInfo {
    /// Bytes in total.
    pub length: u32,
    /// Bytes left, at first `length`.
    pub resid: u32,
    /// Entry in progress, at first 0.
    pub cur_sge: u32,
    /// Entries.
    pub num_sge: u32,
    /// Bytes done of that entry, at first 0.
    pub sge_offset: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(DmaInfo, "struct rxe_dma_info", 24, {
    length: 0, resid: 4, cur_sge: 8, num_sge: 12, sge_offset: 16, reserved: 20,
});

/// Element of a send queue; [`Sge`] records, inline bytes or the value of an atomic write follow.
#[doc(alias = "rxe_send_wqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SendWqe {
    /// The request.
    pub wr: SendWr,
    /// Must be 0: the kernel does not reset it.
    pub status: u32,
    /// Must be 0.
    pub state: u32,
    /// `remote_addr` once more; the one the kernel uses.
    pub iova: u64,
    /// The kernel's.
    pub mask: u32,
    /// The kernel's.
    pub first_psn: u32,
    /// The kernel's.
    pub last_psn: u32,
    /// The kernel's.
    pub ack_length: u32,
    /// The kernel's.
    pub ssn: u32,
    /// The kernel's.
    pub has_rd_atomic: u32,
    /// The data.
    pub dma: DmaInfo,
}
layout!(SendWqe, "struct rxe_send_wqe", 208, {
    wr: 0, status: 144, state: 148, iova: 152, mask: 160, first_psn: 164, last_psn: 168,
    ack_length: 172, ssn: 176, has_rd_atomic: 180, dma: 184,
});

/// Element of a receive queue; [`Sge`] records follow.
#[doc(alias = "rxe_recv_wqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct RecvWqe {
    /// Value of the caller.
    pub wr_id: u64,
    /// Must be 0.
    pub reserved: u32,
    /// Must be 0.
    pub padding: u32,
    /// The data.
    pub dma: DmaInfo,
}
layout!(RecvWqe, "struct rxe_recv_wqe", 40, { wr_id: 0, reserved: 8, padding: 12, dma: 16 });

numbers![NetworkType::NUMBERS];

layouts![
    MmapInfo,
    CreateAhResp,
    CreateCqResp,
    ResizeCqResp,
    CreateQpResp,
    CreateSrqResp,
    ModifySrqCmd,
    QueueHeader,
    GlobalRoute,
    Av,
    SendWrRdma,
    SendWrAtomic,
    SendWrUd,
    SendWrMw,
    SendWrFlush,
    SendWr,
    Sge,
    DmaInfo,
    SendWqe,
    RecvWqe,
];
