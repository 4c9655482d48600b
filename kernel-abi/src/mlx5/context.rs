//! Making a context and asking for its abilities.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

constants! {
    CONSTANTS: u32, "MLX5_IB_" {
        /// Version of this interface.
        UVERBS_ABI_VERSION = 1,
    }
}

/// Driver's request for a context, in the form of old kernels.
#[doc(alias = "mlx5_ib_alloc_ucontext_req")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AllocUcontextReq {
    /// BlueFlame registers wanted, see [`AllocUcontextReqV2`].
    pub total_num_bfregs: u32,
    /// Of them for a single queue pair each.
    pub num_low_latency_bfregs: u32,
}
layout!(AllocUcontextReq, "struct mlx5_ib_alloc_ucontext_req", 8, {
    total_num_bfregs: 0, num_low_latency_bfregs: 4,
});

flag_bits! {
    /// Flags of [`AllocUcontextReqV2`].
    pub struct AllocUctxFlags: u32, "MLX5_IB_ALLOC_UCTX_" {
        /// Allow commands straight to the firmware.
        DEVX = 1,
    }
}

flag_bits! {
    /// What the caller can handle.
    pub struct LibCaps: u64, "MLX5_LIB_CAP_" {
        /// Doorbell pages of 4096 bytes, whatever the system's page size.
        UAR_4K = 1 => "MLX5_LIB_CAP_4K_UAR",
        /// Doorbell pages allocated one by one; none comes with the context.
        DYN_UAR = 1 << 1,
    }
}

/// Driver's request for a context.
#[doc(alias = "mlx5_ib_alloc_ucontext_req_v2")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AllocUcontextReqV2 {
    /// BlueFlame registers wanted, two per doorbell page.
    pub total_num_bfregs: u32,
    /// Of them for a single queue pair each.
    pub num_low_latency_bfregs: u32,
    /// [`AllocUctxFlags`].
    pub flags: u32,
    /// Must be 0.
    pub comp_mask: u32,
    /// Highest completion format the caller knows, 0 or 1.
    pub max_cqe_version: u8,
    /// Must be 0.
    pub reserved0: u8,
    /// Must be 0.
    pub reserved1: u16,
    /// Must be 0.
    pub reserved2: u32,
    /// [`LibCaps`].
    pub lib_caps: u64,
}
layout!(AllocUcontextReqV2, "struct mlx5_ib_alloc_ucontext_req_v2", 32, {
    total_num_bfregs: 0, num_low_latency_bfregs: 4, flags: 8, comp_mask: 12, max_cqe_version: 16,
    reserved0: 17, reserved1: 18, reserved2: 20, lib_caps: 24,
});

flag_bits! {
    /// Fields and abilities of [`AllocUcontextResp`].
    pub struct AllocUcontextRespMask: u32, "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_" {
        /// `hca_core_clock_offset` is set.
        CORE_CLOCK_OFFSET = 1,
        /// `dump_fill_mkey` is set.
        DUMP_FILL_MKEY = 1 << 1,
        /// Enhanced connection establishment.
        ECE = 1 << 2,
        /// A drained send queue can be restarted.
        SQD2RTS = 1 << 3,
        /// Timestamps in real time.
        REAL_TIME_TS = 1 << 4,
        /// The low byte of a key can be updated.
        MKEY_UPDATE_TAG = 1 << 5,
    }
}

flag_bits! {
    /// Commands whose driver data the kernel understands.
    pub struct CmdsSuppUhw: u8, "MLX5_USER_CMDS_SUPP_UHW_" {
        /// Querying the device.
        QUERY_DEVICE = 1,
        /// Creating address handles.
        CREATE_AH = 1 << 1,
    }
}

open_enum! {
    /// Headers that must be inline in sends of raw packets.
    pub struct InlineMode(u8), "MLX5_USER_INLINE_MODE_" {
        /// Not known.
        NA = 0,
        /// None.
        NONE = 1,
        /// Ethernet.
        L2 = 2,
        /// Up to IP.
        IP = 3,
        /// Up to TCP or UDP.
        TCP_UDP = 4,
    }
}

/// Driver's answer to making a context.
#[doc(alias = "mlx5_ib_alloc_ucontext_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AllocUcontextResp {
    /// Queue pairs.
    pub qp_tab_size: u32,
    /// Bytes of a BlueFlame register, both buffers; 0 if there are none.
    pub bf_reg_size: u32,
    /// BlueFlame registers granted, two per doorbell page.
    pub tot_bfregs: u32,
    /// Bytes of a cache line.
    pub cache_line_size: u32,
    /// Bytes of a send request.
    pub max_sq_desc_sz: u16,
    /// Bytes of a receive request.
    pub max_rq_desc_sz: u16,
    /// Basic blocks of a send queue.
    pub max_send_wqebb: u32,
    /// Requests of a receive queue.
    pub max_recv_wr: u32,
    /// Requests of a shared receive queue.
    pub max_srq_recv_wr: u32,
    /// Ports.
    pub num_ports: u16,
    /// Abilities of flow actions.
    pub flow_action_flags: u16,
    /// [`AllocUcontextRespMask`].
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
    /// Completion format, 0 or 1.
    pub cqe_version: u8,
    /// [`CmdsSuppUhw`].
    pub cmds_supp_uhw: u8,
    /// An [`InlineMode`].
    pub eth_min_inline: u8,
    /// Bit 0: the page of clock information exists.
    pub clock_info_versions: u8,
    /// Offset of the clock in its page.
    pub hca_core_clock_offset: u64,
    /// Size of a doorbell page as a power of two.
    pub log_uar_size: u32,
    /// Doorbell pages in a page of the system.
    pub num_uars_per_page: u32,
    /// BlueFlame registers that can be allocated later.
    pub num_dyn_bfregs: u32,
    /// Key that discards data.
    pub dump_fill_mkey: u32,
}
layout!(AllocUcontextResp, "struct mlx5_ib_alloc_ucontext_resp", 72, {
    qp_tab_size: 0, bf_reg_size: 4, tot_bfregs: 8, cache_line_size: 12, max_sq_desc_sz: 16,
    max_rq_desc_sz: 18, max_send_wqebb: 20, max_recv_wr: 24, max_srq_recv_wr: 28, num_ports: 32,
    flow_action_flags: 34, comp_mask: 36, response_length: 40, cqe_version: 44, cmds_supp_uhw: 45,
    eth_min_inline: 46, clock_info_versions: 47, hca_core_clock_offset: 48, log_uar_size: 56,
    num_uars_per_page: 60, num_dyn_bfregs: 64, dump_fill_mkey: 68,
});

/// Segmentation of TCP data.
#[doc(alias = "mlx5_ib_tso_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TsoCaps {
    /// Bytes of payload.
    pub max_tso: u32,
    /// A bit for each queue pair type.
    pub supported_qpts: u32,
}
layout!(TsoCaps, "struct mlx5_ib_tso_caps", 8, { max_tso: 0, supported_qpts: 4 });

/// Receive side scaling.
#[doc(alias = "mlx5_ib_rss_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct RssCaps {
    /// Header fields that can be hashed.
    pub rx_hash_fields_mask: u64,
    /// Bit 0: Toeplitz.
    pub rx_hash_function: u8,
    /// Unused.
    pub reserved: [u8; 7],
}
layout!(RssCaps, "struct mlx5_ib_rss_caps", 16, {
    rx_hash_fields_mask: 0, rx_hash_function: 8, reserved: 9,
});

/// Compression of completions.
#[doc(alias = "mlx5_ib_cqe_comp_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CqeCompCaps {
    /// Completions in a compressed block.
    pub max_num: u32,
    /// Bits 0 hash, 1 checksum, 2 checksum and stride.
    pub supported_format: u32,
}
layout!(CqeCompCaps, "struct mlx5_ib_cqe_comp_caps", 8, { max_num: 0, supported_format: 4 });

/// Packet pacing.
#[doc(alias = "mlx5_packet_pacing_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PacketPacingCaps {
    /// Lowest rate in kilobits per second.
    pub qp_rate_limit_min: u32,
    /// Highest rate in kilobits per second.
    pub qp_rate_limit_max: u32,
    /// A bit for each queue pair type.
    pub supported_qpts: u32,
    /// Bit 0: bursts.
    pub cap_flags: u8,
    /// Unused.
    pub reserved: [u8; 3],
}
layout!(PacketPacingCaps, "struct mlx5_packet_pacing_caps", 16, {
    qp_rate_limit_min: 0, qp_rate_limit_max: 4, supported_qpts: 8, cap_flags: 12, reserved: 13,
});

/// Packets parsed by software.
#[doc(alias = "mlx5_ib_sw_parsing_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SwParsingCaps {
    /// Bits 0 supported, 1 checksums, 2 segmentation.
    pub sw_parsing_offloads: u32,
    /// A bit for each queue pair type.
    pub supported_qpts: u32,
}
layout!(SwParsingCaps, "struct mlx5_ib_sw_parsing_caps", 8, {
    sw_parsing_offloads: 0, supported_qpts: 4,
});

/// Receive queues with strides.
#[doc(alias = "mlx5_ib_striding_rq_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct StridingRqCaps {
    /// Smallest stride as a power of two.
    pub min_single_stride_log_num_of_bytes: u32,
    /// Largest stride as a power of two.
    pub max_single_stride_log_num_of_bytes: u32,
    /// Fewest strides as a power of two.
    pub min_single_wqe_log_num_of_strides: u32,
    /// Most strides as a power of two.
    pub max_single_wqe_log_num_of_strides: u32,
    /// A bit for each queue pair type.
    pub supported_qpts: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(StridingRqCaps, "struct mlx5_ib_striding_rq_caps", 24, {
    min_single_stride_log_num_of_bytes: 0, max_single_stride_log_num_of_bytes: 4,
    min_single_wqe_log_num_of_strides: 8, max_single_wqe_log_num_of_strides: 12, supported_qpts: 16,
    reserved: 20,
});

/// Streams of a DC initiator.
#[doc(alias = "mlx5_ib_dci_streams_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DciStreamsCaps {
    /// Concurrent streams as a power of two.
    pub max_log_num_concurent: u8,
    /// Failed streams as a power of two.
    pub max_log_num_errored: u8,
}
layout!(DciStreamsCaps, "struct mlx5_ib_dci_streams_caps", 2, {
    max_log_num_concurent: 0, max_log_num_errored: 1,
});

flag_bits! {
    /// Abilities in [`QueryDeviceResp`].
    pub struct QueryDeviceFlags: u32, "MLX5_IB_QUERY_DEV_RESP_" {
        /// Compressed completions of 128 bytes.
        CQE_128B_COMP = 1 => "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP",
        /// Completions of 128 bytes, padded.
        CQE_128B_PAD = 1 << 1 => "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD",
        /// Flow control by packets.
        PACKET_BASED_CREDIT_MODE = 1 << 2,
        /// Data in completions of DC targets.
        SCAT2CQE_DCT = 1 << 3 => "MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT",
        /// Data placed out of order. Newer than Linux 6.1.
        OOO_DP = 1 << 4 => "MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP",
    }
}

pub use reg::UapiReg;

mod reg {
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    const HEADER: &str = "rdma/mlx5_user_ioctl_verbs.h";

    /// A metadata register.
    #[doc(alias = "mlx5_ib_uapi_reg")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct UapiReg {
        /// Value.
        pub value: u32,
        /// Bits that count.
        pub mask: u32,
    }
    layout!(UapiReg, "struct mlx5_ib_uapi_reg", 8, { value: 0, mask: 4 });
}

/// Driver's answer to querying the device, extended.
#[doc(alias = "mlx5_ib_query_device_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueryDeviceResp {
    /// 0.
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
    /// Segmentation of TCP data.
    pub tso_caps: TsoCaps,
    /// Receive side scaling.
    pub rss_caps: RssCaps,
    /// Compression of completions.
    pub cqe_comp_caps: CqeCompCaps,
    /// Packet pacing.
    pub packet_pacing_caps: PacketPacingCaps,
    /// Bits 1 and 2: several packets in a request.
    pub mlx5_ib_support_multi_pkt_send_wqes: u32,
    /// [`QueryDeviceFlags`].
    pub flags: u32,
    /// Packets parsed by software.
    pub sw_parsing_caps: SwParsingCaps,
    /// Receive queues with strides.
    pub striding_rq_caps: StridingRqCaps,
    /// Bits 0 VXLAN, 1 GRE, 2 GENEVE, 3 MPLS in GRE, 4 MPLS in UDP.
    pub tunnel_offloads_caps: u32,
    /// Streams of a DC initiator.
    pub dci_streams_caps: DciStreamsCaps,
    /// Unused.
    pub reserved: u16,
    /// Metadata register C0. Newer than Linux 6.1.
    pub reg_c0: UapiReg,
}
layout!(QueryDeviceResp, "struct mlx5_ib_query_device_resp", 112, {
    comp_mask: 0, response_length: 4, tso_caps: 8, rss_caps: 16, cqe_comp_caps: 32,
    packet_pacing_caps: 40, mlx5_ib_support_multi_pkt_send_wqes: 56, flags: 60, sw_parsing_caps: 64,
    striding_rq_caps: 72, tunnel_offloads_caps: 96, dci_streams_caps: 100, reserved: 102,
    reg_c0: 104,
});

/// Numbers for asking for the context's attributes once more.
pub mod query_ids {
    const HEADER: &str = "rdma/mlx5_user_ioctl_cmds.h";

    constants! {
        ATTRS: u16, "MLX5_IB_ATTR_" {
            /// Out: [`AllocUcontextResp`](super::AllocUcontextResp), of the method
            /// [`QUERY_CONTEXT`](crate::uverbs::ioctl::device::QUERY_CONTEXT).
            QUERY_CONTEXT_RESP_UCTX = 0x1000,
        }
    }
}
