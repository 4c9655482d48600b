//! Attributes of devices and ports.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Asks for the device's attributes.
#[doc(alias = "ib_uverbs_query_device")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueryDevice {
    /// Address of the buffer that receives the answer.
    pub response: u64,
}
layout!(QueryDevice, "struct ib_uverbs_query_device", 8, { response: 0 });

/// Answer to [`QueryDevice`].
#[doc(alias = "ib_uverbs_query_device_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueryDeviceResp {
    /// Firmware version.
    pub fw_ver: u64,
    /// GUID of the device.
    pub node_guid: big_endian::U64,
    /// GUID of the system image.
    pub sys_image_guid: big_endian::U64,
    /// Bytes of the largest memory region.
    pub max_mr_size: u64,
    /// Supported page sizes, one bit each.
    pub page_size_cap: u64,
    /// Vendor's OUI.
    pub vendor_id: u32,
    /// Vendor's part number.
    pub vendor_part_id: u32,
    /// Hardware version.
    pub hw_ver: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Low half of [`DeviceCapFlags`].
    pub device_cap_flags: u32,
    /// Scatter/gather entries of a work request other than RDMA read.
    pub max_sge: u32,
    /// Scatter/gather entries of an RDMA read.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// RDMA reads and atomics a queue pair accepts at a time.
    pub max_qp_rd_atom: u32,
    /// Of reliable datagrams, unused.
    pub max_ee_rd_atom: u32,
    /// RDMA reads and atomics the device accepts at a time.
    pub max_res_rd_atom: u32,
    /// RDMA reads and atomics a queue pair issues at a time.
    pub max_qp_init_rd_atom: u32,
    /// Of reliable datagrams, unused.
    pub max_ee_init_rd_atom: u32,
    /// 0 no atomics, 1 atomic within the device, 2 global.
    pub atomic_cap: u32,
    /// Of reliable datagrams, unused.
    pub max_ee: u32,
    /// Of reliable datagrams, unused.
    pub max_rdd: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Raw IPv6 queue pairs.
    pub max_raw_ipv6_qp: u32,
    /// Raw Ethertype queue pairs.
    pub max_raw_ethy_qp: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs of a multicast group.
    pub max_mcast_qp_attach: u32,
    /// Attachments to multicast groups.
    pub max_total_mcast_qp_attach: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Unused.
    pub max_fmr: u32,
    /// Unused.
    pub max_map_per_fmr: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather entries of a shared receive.
    pub max_srq_sge: u32,
    /// Partition keys of a port.
    pub max_pkeys: u16,
    /// Delay of acknowledgements, exponent of 4.096 µs.
    pub local_ca_ack_delay: u8,
    /// Ports.
    pub phys_port_cnt: u8,
    /// Unused.
    pub reserved: [u8; 4],
}
layout!(QueryDeviceResp, "struct ib_uverbs_query_device_resp", 176, {
    fw_ver: 0, node_guid: 8, sys_image_guid: 16, max_mr_size: 24, page_size_cap: 32, vendor_id: 40,
    vendor_part_id: 44, hw_ver: 48, max_qp: 52, max_qp_wr: 56, device_cap_flags: 60, max_sge: 64,
    max_sge_rd: 68, max_cq: 72, max_cqe: 76, max_mr: 80, max_pd: 84, max_qp_rd_atom: 88,
    max_ee_rd_atom: 92, max_res_rd_atom: 96, max_qp_init_rd_atom: 100, max_ee_init_rd_atom: 104,
    atomic_cap: 108, max_ee: 112, max_rdd: 116, max_mw: 120, max_raw_ipv6_qp: 124,
    max_raw_ethy_qp: 128, max_mcast_grp: 132, max_mcast_qp_attach: 136,
    max_total_mcast_qp_attach: 140, max_ah: 144, max_fmr: 148, max_map_per_fmr: 152, max_srq: 156,
    max_srq_wr: 160, max_srq_sge: 164, max_pkeys: 168, local_ca_ack_delay: 170, phys_port_cnt: 171,
    reserved: 172,
});

/// Asks for the device's attributes; extended.
#[doc(alias = "ib_uverbs_ex_query_device")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExQueryDevice {
    /// Must be 0.
    pub comp_mask: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(ExQueryDevice, "struct ib_uverbs_ex_query_device", 8, { comp_mask: 0, reserved: 4 });

/// On-demand paging by transport; bits 0 send, 1 receive, 2 write, 3 read, 4 atomic, 5 shared
/// receive, 6 flush, 7 atomic write.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OdpTransportCaps {
    /// Of reliable connections.
    pub rc_odp_caps: u32,
    /// Of unreliable connections.
    pub uc_odp_caps: u32,
    /// Of datagrams.
    pub ud_odp_caps: u32,
}
layout!(OdpTransportCaps, "struct ib_uverbs_odp_caps" . "per_transport_caps", 12, {
    rc_odp_caps: 0, uc_odp_caps: 4, ud_odp_caps: 8,
});

/// On-demand paging.
#[doc(alias = "ib_uverbs_odp_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct OdpCaps {
    /// Bit 0: supported; bit 1: implicit regions too.
    pub general_caps: u64,
    /// By transport.
    pub per_transport_caps: OdpTransportCaps,
    /// Unused.
    pub reserved: u32,
}
layout!(OdpCaps, "struct ib_uverbs_odp_caps", 24, {
    general_caps: 0, per_transport_caps: 8, reserved: 20,
});

/// Receive side scaling.
#[doc(alias = "ib_uverbs_rss_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RssCaps {
    /// A bit for each queue pair type.
    pub supported_qpts: u32,
    /// Indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Entries of an indirection table.
    pub max_rwq_indirection_table_size: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(RssCaps, "struct ib_uverbs_rss_caps", 16, {
    supported_qpts: 0, max_rwq_indirection_tables: 4, max_rwq_indirection_table_size: 8,
    reserved: 12,
});

/// Tag matching.
#[doc(alias = "ib_uverbs_tm_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TmCaps {
    /// Bytes of a rendezvous request.
    pub max_rndv_hdr_size: u32,
    /// Entries of a matching list.
    pub max_num_tags: u32,
    /// Bit 0: on reliable connections.
    pub flags: u32,
    /// Outstanding list operations.
    pub max_ops: u32,
    /// Scatter/gather entries of a tagged buffer.
    pub max_sge: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(TmCaps, "struct ib_uverbs_tm_caps", 24, {
    max_rndv_hdr_size: 0, max_num_tags: 4, flags: 8, max_ops: 12, max_sge: 16, reserved: 20,
});

/// Completion moderation.
#[doc(alias = "ib_uverbs_cq_moderation_caps")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CqModerationCaps {
    /// Completions per event.
    pub max_cq_moderation_count: u16,
    /// Microseconds per event.
    pub max_cq_moderation_period: u16,
    /// Unused.
    pub reserved: u32,
}
layout!(CqModerationCaps, "struct ib_uverbs_cq_moderation_caps", 8, {
    max_cq_moderation_count: 0, max_cq_moderation_period: 2, reserved: 4,
});

/// Answer to [`ExQueryDevice`].
#[doc(alias = "ib_uverbs_ex_query_device_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ExQueryDeviceResp {
    /// What the plain command answers.
    pub base: QueryDeviceResp,
    /// 0.
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
    /// On-demand paging.
    pub odp_caps: OdpCaps,
    /// Valid bits of completion timestamps.
    pub timestamp_mask: u64,
    /// Frequency of the timestamp clock in kHz.
    pub hca_core_clock: u64,
    /// [`DeviceCapFlags`].
    pub device_cap_flags_ex: u64,
    /// Receive side scaling.
    pub rss_caps: RssCaps,
    /// Receive work queues.
    pub max_wq_type_rq: u32,
    /// Bits 0 VLAN stripping, 1 scatter FCS, 2 IP checksum, 3 delayed drop.
    pub raw_packet_caps: u32,
    /// Tag matching.
    pub tm_caps: TmCaps,
    /// Completion moderation.
    pub cq_moderation_caps: CqModerationCaps,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// On-demand paging of XRC, bits as in [`OdpTransportCaps`].
    pub xrc_odp_caps: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(ExQueryDeviceResp, "struct ib_uverbs_ex_query_device_resp", 304, {
    base: 0, comp_mask: 176, response_length: 180, odp_caps: 184, timestamp_mask: 208,
    hca_core_clock: 216, device_cap_flags_ex: 224, rss_caps: 232, max_wq_type_rq: 248,
    raw_packet_caps: 252, tm_caps: 256, cq_moderation_caps: 280, max_dm_size: 288,
    xrc_odp_caps: 296, reserved: 300,
});

/// Asks for a port's attributes.
#[doc(alias = "ib_uverbs_query_port")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueryPort {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// The port, from 1.
    pub port_num: u8,
    /// Must be 0.
    pub reserved: [u8; 7],
}
layout!(QueryPort, "struct ib_uverbs_query_port", 16, { response: 0, port_num: 8, reserved: 9 });

/// Answer to [`QueryPort`].
#[doc(alias = "ib_uverbs_query_port_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueryPortResp {
    /// [`PortCapFlags`](super::PortCapFlags).
    pub port_cap_flags: u32,
    /// Bytes of the largest message.
    pub max_msg_sz: u32,
    /// Packets with a bad partition key.
    pub bad_pkey_cntr: u32,
    /// Packets with a bad queue key.
    pub qkey_viol_cntr: u32,
    /// GIDs.
    pub gid_tbl_len: u32,
    /// Partition keys.
    pub pkey_tbl_len: u16,
    /// Base LID.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// A [`PortState`](super::PortState).
    pub state: u8,
    /// A [`Mtu`](super::Mtu).
    pub max_mtu: u8,
    /// A [`Mtu`](super::Mtu).
    pub active_mtu: u8,
    /// LID bits that vary.
    pub lmc: u8,
    /// Number of virtual lanes.
    pub max_vl_num: u8,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Timeout of the subnet, exponent of 4.096 µs.
    pub subnet_timeout: u8,
    /// Kind of initialization the subnet manager made.
    pub init_type_reply: u8,
    /// Lanes: 1 for 1, 2 for 4, 4 for 8, 8 for 12, 16 for 2.
    pub active_width: u8,
    /// Speed of a lane, IBTA LinkSpeedActive; 255 if it does not fit.
    pub active_speed: u8,
    /// IBTA PortPhysicalState, 5 is up.
    pub phys_state: u8,
    /// A [`LinkLayer`](super::LinkLayer).
    pub link_layer: u8,
    /// [`PortFlags`](super::PortFlags).
    pub flags: u8,
    /// Unused.
    pub reserved: u8,
}
layout!(QueryPortResp, "struct ib_uverbs_query_port_resp", 40, {
    port_cap_flags: 0, max_msg_sz: 4, bad_pkey_cntr: 8, qkey_viol_cntr: 12, gid_tbl_len: 16,
    pkey_tbl_len: 20, lid: 22, sm_lid: 24, state: 26, max_mtu: 27, active_mtu: 28, lmc: 29,
    max_vl_num: 30, sm_sl: 31, subnet_timeout: 32, init_type_reply: 33, active_width: 34,
    active_speed: 35, phys_state: 36, link_layer: 37, flags: 38, reserved: 39,
});

flag_bits! {
    /// Abilities of a device; [`QueryDeviceResp`] has the low half.
    pub struct DeviceCapFlags: u64, "IB_UVERBS_DEVICE_" {
        /// Work queues can be resized.
        RESIZE_MAX_WR = 1 << 0,
        /// Counts packets with bad partition keys.
        BAD_PKEY_CNTR = 1 << 1,
        /// Counts packets with bad queue keys.
        BAD_QKEY_CNTR = 1 << 2,
        /// Raw multicast.
        RAW_MULTI = 1 << 3,
        /// Automatic path migration.
        AUTO_PATH_MIG = 1 << 4,
        /// The port of a queue pair can change while it runs.
        CHANGE_PHY_PORT = 1 << 5,
        /// Checks the port of datagram address handles.
        UD_AV_PORT_ENFORCE = 1 << 6,
        /// The current state can be named when modifying a queue pair.
        CURR_QP_STATE_MOD = 1 << 7,
        /// Ports can be shut down.
        SHUTDOWN_PORT = 1 << 8,
        /// Reports that a port became active.
        PORT_ACTIVE_EVENT = 1 << 10,
        /// Has a system image GUID.
        SYS_IMAGE_GUID = 1 << 11,
        /// Generates receiver-not-ready replies.
        RC_RNR_NAK_GEN = 1 << 12,
        /// Shared receive queues can be resized.
        SRQ_RESIZE = 1 << 13,
        /// Notification after a number of completions.
        N_NOTIFY_CQ = 1 << 14,
        /// Memory windows.
        MEM_WINDOW = 1 << 17,
        /// IP checksums of datagrams.
        UD_IP_CSUM = 1 << 18,
        /// XRC.
        XRC = 1 << 20,
        /// Fast registration, local invalidation and send with invalidation.
        MEM_MGT_EXTENSIONS = 1 << 21,
        /// Type 2A memory windows.
        MEM_WINDOW_TYPE_2A = 1 << 23,
        /// Type 2B memory windows.
        MEM_WINDOW_TYPE_2B = 1 << 24,
        /// IP checksums of reliable connections.
        RC_IP_CSUM = 1 << 25,
        /// IP checksums of raw packets; superseded by `raw_packet_caps`.
        RAW_IP_CSUM = 1 << 26,
        /// Flow steering.
        MANAGED_FLOW_STEERING = 1 << 29,
        /// Scatters frame checksums; superseded by `raw_packet_caps`.
        RAW_SCATTER_FCS = 1 << 34,
        /// Pads the end of writes to a cache line.
        PCI_WRITE_END_PADDING = 1 << 36,
        /// Flush to global visibility. Newer than Linux 6.1.
        FLUSH_GLOBAL = 1 << 38,
        /// Flush to persistence. Newer than Linux 6.1.
        FLUSH_PERSISTENT = 1 << 39,
        /// Atomic write. Newer than Linux 6.1.
        ATOMIC_WRITE = 1 << 40,
    }
}
