//! Creating and changing objects.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Driver's answer to allocating a protection domain.
#[doc(alias = "mlx5_ib_alloc_pd_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AllocPdResp {
    /// Its number.
    pub pdn: u32,
}
layout!(AllocPdResp, "struct mlx5_ib_alloc_pd_resp", 4, { pdn: 0 });

flag_bits! {
    /// Flags of [`CreateCq`].
    pub struct CreateCqFlags: u16, "MLX5_IB_CREATE_CQ_FLAGS_" {
        /// Entries of 128 bytes are padded.
        CQE_128B_PAD = 1,
        /// `uar_page_index` is set.
        UAR_PAGE_INDEX = 1 << 1,
        /// Timestamps in real time.
        REAL_TIME_TS = 1 << 2,
    }
}

/// Driver's request when creating a completion queue.
#[doc(alias = "mlx5_ib_create_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateCq {
    /// Address of the entries, page aligned.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// Bytes of an entry, 64 or 128.
    pub cqe_size: u32,
    /// 1 to compress completions.
    pub cqe_comp_en: u8,
    /// Format of compressed completions.
    pub cqe_comp_res_format: u8,
    /// [`CreateCqFlags`].
    pub flags: u16,
    /// Doorbell page, if the flag is set.
    pub uar_page_index: u16,
    /// Must be 0.
    pub reserved0: u16,
    /// Must be 0.
    pub reserved1: u32,
}
layout!(CreateCq, "struct mlx5_ib_create_cq", 32, {
    buf_addr: 0, db_addr: 8, cqe_size: 16, cqe_comp_en: 20, cqe_comp_res_format: 21, flags: 22,
    uar_page_index: 24, reserved0: 26, reserved1: 28,
});

/// Driver's answer to creating a completion queue.
#[doc(alias = "mlx5_ib_create_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateCqResp {
    /// Its number.
    pub cqn: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(CreateCqResp, "struct mlx5_ib_create_cq_resp", 8, { cqn: 0, reserved: 4 });

/// Driver's request when resizing a completion queue.
#[doc(alias = "mlx5_ib_resize_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ResizeCq {
    /// Address of the new entries, page aligned.
    pub buf_addr: u64,
    /// Bytes of an entry, 64 or 128.
    pub cqe_size: u16,
    /// Must be 0.
    pub reserved0: u16,
    /// Must be 0.
    pub reserved1: u32,
}
layout!(ResizeCq, "struct mlx5_ib_resize_cq", 16, {
    buf_addr: 0, cqe_size: 8, reserved0: 10, reserved1: 12,
});

flag_bits! {
    /// Flags of [`CreateSrq`].
    pub struct SrqFlags: u32, "MLX5_SRQ_FLAG_" {
        /// Requests carry signatures.
        SIGNATURE = 1,
    }
}

/// Driver's request when creating a shared receive queue.
#[doc(alias = "mlx5_ib_create_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateSrq {
    /// Address of the queue, page aligned.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// [`SrqFlags`].
    pub flags: u32,
    /// Must be 0.
    pub reserved0: u32,
    /// Number completions report; 0xffffff with completion format 0.
    pub uidx: u32,
    /// Must be 0.
    pub reserved1: u32,
}
layout!(CreateSrq, "struct mlx5_ib_create_srq", 32, {
    buf_addr: 0, db_addr: 8, flags: 16, reserved0: 20, uidx: 24, reserved1: 28,
});

/// Driver's answer to creating a shared receive queue.
#[doc(alias = "mlx5_ib_create_srq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateSrqResp {
    /// Its number.
    pub srqn: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(CreateSrqResp, "struct mlx5_ib_create_srq_resp", 8, { srqn: 0, reserved: 4 });

flag_bits! {
    /// Flags of [`CreateQp`].
    pub struct QpFlags: u32, "MLX5_QP_FLAG_" {
        /// Requests carry signatures.
        SIGNATURE = 1,
        /// Short received data may land in the completion.
        SCATTER_CQE = 1 << 1,
        /// Offloads for tunnelled packets.
        TUNNEL_OFFLOADS = 1 << 2,
        /// `bfreg_index` is set.
        BFREG_INDEX = 1 << 3,
        /// A DC target.
        TYPE_DCT = 1 << 4,
        /// A DC initiator.
        TYPE_DCI = 1 << 5,
        /// Own unicasts are received.
        TIR_ALLOW_SELF_LB_UC = 1 << 6,
        /// Own multicasts are received.
        TIR_ALLOW_SELF_LB_MC = 1 << 7,
        /// Short data may land in completions of sends too.
        ALLOW_SCATTER_CQE = 1 << 8,
        /// Flow control by packets.
        PACKET_BASED_CREDIT_MODE = 1 << 9,
        /// `bfreg_index` is a doorbell page.
        UAR_PAGE_INDEX = 1 << 10,
        /// `dci_streams` is set.
        DCI_STREAM = 1 << 11,
    }
}

/// Bits of the numbers of queue pairs and other queues, and of [`CreateQp::uidx`]; given by the
/// device.
pub const NUMBER_MASK: u32 = 0x00ff_ffff;

/// [`CreateQp::uidx`] of a context whose completions name queue pairs by their own numbers; the
/// kernel takes no other there. In no header.
pub const NO_USER_INDEX: u32 = NUMBER_MASK;

/// Bit of [`CreateQp::ece_options`]: the program knows of options of enhanced connection
/// establishment. In no header.
pub const KNOWS_ECE: u32 = 1 << 28;

/// Streams of a DC initiator.
#[doc(alias = "mlx5_ib_create_qp_dci_streams")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateQpDciStreams {
    /// Concurrent streams as a power of two.
    pub log_num_concurent: u8,
    /// Failed streams as a power of two.
    pub log_num_errored: u8,
}
layout!(CreateQpDciStreams, "struct mlx5_ib_create_qp_dci_streams", 2, {
    log_num_concurent: 0, log_num_errored: 1,
});

/// Driver's request when creating a queue pair.
#[doc(alias = "mlx5_ib_create_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateQp {
    /// Address of the queues, page aligned: receive queue, then send queue.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// Basic blocks of the send queue.
    pub sq_wqe_count: u32,
    /// Requests of the receive queue, 0 with a shared one.
    pub rq_wqe_count: u32,
    /// Size of a receive request as a power of two.
    pub rq_wqe_shift: u32,
    /// [`QpFlags`].
    pub flags: u32,
    /// Number completions report; 0xffffff with completion format 0.
    pub uidx: u32,
    /// BlueFlame register, if a flag says so.
    pub bfreg_index: u32,
    /// Address of the send queue of a raw packet queue pair; of a DC target the access key.
    pub sq_buf_addr: u64,
    /// Options of enhanced connection establishment.
    pub ece_options: u32,
    /// Streams of a DC initiator.
    pub dci_streams: CreateQpDciStreams,
    /// Must be 0.
    pub reserved: u16,
}
layout!(CreateQp, "struct mlx5_ib_create_qp", 56, {
    buf_addr: 0, db_addr: 8, sq_wqe_count: 16, rq_wqe_count: 20, rq_wqe_shift: 24, flags: 28,
    uidx: 32, bfreg_index: 36, sq_buf_addr: 40, ece_options: 48, dci_streams: 52, reserved: 54,
});

flag_bits! {
    /// Fields of [`CreateQpResp`].
    pub struct CreateQpRespMask: u32, "MLX5_IB_CREATE_QP_RESP_MASK_" {
        /// `tirn` is set.
        TIRN = 1,
        /// `tisn` is set.
        TISN = 1 << 1,
        /// `rqn` is set.
        RQN = 1 << 2,
        /// `sqn` is set.
        SQN = 1 << 3,
        /// `tir_icm_addr` is set.
        TIR_ICM_ADDR = 1 << 4,
    }
}

/// Driver's answer to creating a queue pair.
#[doc(alias = "mlx5_ib_create_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateQpResp {
    /// BlueFlame register; counts four for each doorbell page.
    pub bfreg_index: u32,
    /// Granted options of enhanced connection establishment.
    pub ece_options: u32,
    /// [`CreateQpRespMask`].
    pub comp_mask: u32,
    /// Number of the transport interface of receives.
    pub tirn: u32,
    /// Number of the transport interface of sends.
    pub tisn: u32,
    /// Number of a raw packet receive queue.
    pub rqn: u32,
    /// Number of a raw packet send queue.
    pub sqn: u32,
    /// Unused.
    pub reserved1: u32,
    /// Address of the receive interface for steering.
    pub tir_icm_addr: u64,
}
layout!(CreateQpResp, "struct mlx5_ib_create_qp_resp", 40, {
    bfreg_index: 0, ece_options: 4, comp_mask: 8, tirn: 12, tisn: 16, rqn: 20, sqn: 24,
    reserved1: 28, tir_icm_addr: 32,
});

/// Driver's request when allocating a memory window.
#[doc(alias = "mlx5_ib_alloc_mw")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AllocMw {
    /// Must be 0.
    pub comp_mask: u32,
    /// Pieces the window may consist of.
    pub num_klms: u8,
    /// Must be 0.
    pub reserved1: u8,
    /// Must be 0.
    pub reserved2: u16,
}
layout!(AllocMw, "struct mlx5_ib_alloc_mw", 8, {
    comp_mask: 0, num_klms: 4, reserved1: 5, reserved2: 6,
});

/// Driver's answer to creating an address handle.
#[doc(alias = "mlx5_ib_create_ah_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateAhResp {
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
    /// MAC address of the next hop.
    pub dmac: [u8; 6],
    /// Unused.
    pub reserved: [u8; 6],
}
layout!(CreateAhResp, "struct mlx5_ib_create_ah_resp", 16, {
    response_length: 0, dmac: 4, reserved: 10,
});

/// Packet pacing of bursts.
#[doc(alias = "mlx5_ib_burst_info")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BurstInfo {
    /// Bytes of a burst.
    pub max_burst_sz: u32,
    /// Bytes of a typical packet.
    pub typical_pkt_sz: u16,
    /// Must be 0.
    pub reserved: u16,
}
layout!(BurstInfo, "struct mlx5_ib_burst_info", 8, {
    max_burst_sz: 0, typical_pkt_sz: 4, reserved: 6,
});

flag_bits! {
    /// Fields of [`ModifyQp`].
    pub struct ModifyQpMask: u32, "MLX5_IB_MODIFY_QP_" {
        /// Place data out of order. Newer than Linux 6.1.
        OOO_DP = 1,
    }
}

/// Driver's request when modifying a queue pair, extended.
#[doc(alias = "mlx5_ib_modify_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ModifyQp {
    /// [`ModifyQpMask`].
    pub comp_mask: u32,
    /// Packet pacing.
    pub burst_info: BurstInfo,
    /// Options of enhanced connection establishment.
    pub ece_options: u32,
}
layout!(ModifyQp, "struct mlx5_ib_modify_qp", 16, { comp_mask: 0, burst_info: 4, ece_options: 12 });

/// Driver's answer to modifying a queue pair, extended.
#[doc(alias = "mlx5_ib_modify_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ModifyQpResp {
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
    /// Number of a DC target.
    pub dctn: u32,
    /// Granted options of enhanced connection establishment.
    pub ece_options: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(ModifyQpResp, "struct mlx5_ib_modify_qp_resp", 16, {
    response_length: 0, dctn: 4, ece_options: 8, reserved: 12,
});
