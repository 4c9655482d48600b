//! Queue pairs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{AhAttr, HEADER};

/// Creates a queue pair.
#[doc(alias = "ib_uverbs_create_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateQp {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// Protection domain; of an XRC target the XRC domain.
    pub pd_handle: u32,
    /// Completion queue of sends.
    pub send_cq_handle: u32,
    /// Completion queue of receives.
    pub recv_cq_handle: u32,
    /// Shared receive queue if `is_srq`.
    pub srq_handle: u32,
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Receive work requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
    /// 1 if every send completes visibly.
    pub sq_sig_all: u8,
    /// A [`QpType`](super::QpType).
    pub qp_type: u8,
    /// 1 if `srq_handle` is set.
    pub is_srq: u8,
    /// Must be 0.
    pub reserved: u8,
}
layout!(CreateQp, "struct ib_uverbs_create_qp", 56, {
    response: 0, user_handle: 8, pd_handle: 16, send_cq_handle: 20, recv_cq_handle: 24,
    srq_handle: 28, max_send_wr: 32, max_recv_wr: 36, max_send_sge: 40, max_recv_sge: 44,
    max_inline_data: 48, sq_sig_all: 52, qp_type: 53, is_srq: 54, reserved: 55,
});

/// Answer to [`CreateQp`] and [`OpenQp`].
#[doc(alias = "ib_uverbs_create_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateQpResp {
    /// The new queue pair.
    pub qp_handle: u32,
    /// Its number.
    pub qpn: u32,
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Receive work requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(CreateQpResp, "struct ib_uverbs_create_qp_resp", 32, {
    qp_handle: 0, qpn: 4, max_send_wr: 8, max_recv_wr: 12, max_send_sge: 16, max_recv_sge: 20,
    max_inline_data: 24, reserved: 28,
});

/// Creates a queue pair; extended.
#[doc(alias = "ib_uverbs_ex_create_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ExCreateQp {
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// Protection domain; of an XRC target the XRC domain.
    pub pd_handle: u32,
    /// Completion queue of sends.
    pub send_cq_handle: u32,
    /// Completion queue of receives.
    pub recv_cq_handle: u32,
    /// Shared receive queue if `is_srq`.
    pub srq_handle: u32,
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Receive work requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
    /// 1 if every send completes visibly.
    pub sq_sig_all: u8,
    /// A [`QpType`](super::QpType).
    pub qp_type: u8,
    /// 1 if `srq_handle` is set.
    pub is_srq: u8,
    /// Must be 0.
    pub reserved: u8,
    /// 1 if `rwq_ind_tbl_handle` is set.
    pub comp_mask: u32,
    /// [`QpCreateFlags`](super::QpCreateFlags), without SQ_SIG_ALL.
    pub create_flags: u32,
    /// Indirection table of receive work queues.
    pub rwq_ind_tbl_handle: u32,
    /// Queue pair number to send with.
    pub source_qpn: u32,
}
layout!(ExCreateQp, "struct ib_uverbs_ex_create_qp", 64, {
    user_handle: 0, pd_handle: 8, send_cq_handle: 12, recv_cq_handle: 16, srq_handle: 20,
    max_send_wr: 24, max_recv_wr: 28, max_send_sge: 32, max_recv_sge: 36, max_inline_data: 40,
    sq_sig_all: 44, qp_type: 45, is_srq: 46, reserved: 47, comp_mask: 48, create_flags: 52,
    rwq_ind_tbl_handle: 56, source_qpn: 60,
});

/// Answer to [`ExCreateQp`].
#[doc(alias = "ib_uverbs_ex_create_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExCreateQpResp {
    /// What the plain command answers.
    pub base: CreateQpResp,
    /// 0.
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
}
layout!(ExCreateQpResp, "struct ib_uverbs_ex_create_qp_resp", 40, {
    base: 0, comp_mask: 32, response_length: 36,
});

/// Opens an XRC target queue pair of another process.
#[doc(alias = "ib_uverbs_open_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct OpenQp {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// The XRC domain.
    pub pd_handle: u32,
    /// Number of the queue pair.
    pub qpn: u32,
    /// [`QpType::XRC_TGT`](super::QpType::XRC_TGT).
    pub qp_type: u8,
    /// Must be 0.
    pub reserved: [u8; 7],
}
layout!(OpenQp, "struct ib_uverbs_open_qp", 32, {
    response: 0, user_handle: 8, pd_handle: 16, qpn: 20, qp_type: 24, reserved: 25,
});

/// Attributes the connection manager hands out for a queue pair.
#[doc(alias = "ib_uverbs_qp_attr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QpAttr {
    /// Fields that are set, [`QpAttrMask`](super::QpAttrMask).
    pub qp_attr_mask: u32,
    /// A [`QpState`](super::QpState).
    pub qp_state: u32,
    /// A [`QpState`](super::QpState).
    pub cur_qp_state: u32,
    /// A [`Mtu`](super::Mtu).
    pub path_mtu: u32,
    /// A [`MigState`](super::MigState).
    pub path_mig_state: u32,
    /// Queue key.
    pub qkey: u32,
    /// Packet number the receiver expects first.
    pub rq_psn: u32,
    /// Packet number the sender starts with.
    pub sq_psn: u32,
    /// Number of the peer's queue pair.
    pub dest_qp_num: u32,
    /// What the peer may do, [`AccessFlags`](super::AccessFlags).
    pub qp_access_flags: u32,
    /// Address of the peer.
    pub ah_attr: AhAttr,
    /// Address of the peer on the alternate path.
    pub alt_ah_attr: AhAttr,
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Receive work requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Index of the partition key of the alternate path.
    pub alt_pkey_index: u16,
    /// 1 for an event when the send queue is drained.
    pub en_sqd_async_notify: u8,
    /// 1 while the send queue is draining.
    pub sq_draining: u8,
    /// RDMA reads and atomics issued at a time.
    pub max_rd_atomic: u8,
    /// RDMA reads and atomics accepted at a time.
    pub max_dest_rd_atomic: u8,
    /// Delay asked for while no receive is posted, as IBTA code.
    pub min_rnr_timer: u8,
    /// Local port.
    pub port_num: u8,
    /// Timeout of acknowledgements, exponent of 4.096 µs; 0 for none.
    pub timeout: u8,
    /// Retries after a timeout, 0 to 7.
    pub retry_cnt: u8,
    /// Retries while the receiver is not ready; 7 means for ever.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port_num: u8,
    /// Timeout of the alternate path.
    pub alt_timeout: u8,
    /// Unused.
    pub reserved: [u8; 5],
}
layout!(QpAttr, "struct ib_uverbs_qp_attr", 144, {
    qp_attr_mask: 0, qp_state: 4, cur_qp_state: 8, path_mtu: 12, path_mig_state: 16, qkey: 20,
    rq_psn: 24, sq_psn: 28, dest_qp_num: 32, qp_access_flags: 36, ah_attr: 40, alt_ah_attr: 72,
    max_send_wr: 104, max_recv_wr: 108, max_send_sge: 112, max_recv_sge: 116, max_inline_data: 120,
    pkey_index: 124, alt_pkey_index: 126, en_sqd_async_notify: 128, sq_draining: 129,
    max_rd_atomic: 130, max_dest_rd_atomic: 131, min_rnr_timer: 132, port_num: 133, timeout: 134,
    retry_cnt: 135, rnr_retry: 136, alt_port_num: 137, alt_timeout: 138, reserved: 139,
});

/// An address; field order differs from [`AhAttr`].
#[doc(alias = "ib_uverbs_qp_dest")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QpDest {
    /// GID of the peer.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// LID of the peer.
    pub dlid: u16,
    /// Must be 0.
    pub reserved: u16,
    /// Index of the local GID.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Low bits of the local LID.
    pub src_path_bits: u8,
    /// Rate limit.
    pub static_rate: u8,
    /// 1 if the GID fields are set; always on RoCE.
    pub is_global: u8,
    /// Local port.
    pub port_num: u8,
}
layout!(QpDest, "struct ib_uverbs_qp_dest", 32, {
    dgid: 0, flow_label: 16, dlid: 20, reserved: 22, sgid_index: 24, hop_limit: 25,
    traffic_class: 26, sl: 27, src_path_bits: 28, static_rate: 29, is_global: 30, port_num: 31,
});

/// Asks for the attributes of a queue pair.
#[doc(alias = "ib_uverbs_query_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueryQp {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Queue pair.
    pub qp_handle: u32,
    /// Fields wanted, [`QpAttrMask`](super::QpAttrMask).
    pub attr_mask: u32,
}
layout!(QueryQp, "struct ib_uverbs_query_qp", 16, { response: 0, qp_handle: 8, attr_mask: 12 });

/// Answer to [`QueryQp`].
#[doc(alias = "ib_uverbs_query_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueryQpResp {
    /// Address of the peer.
    pub dest: QpDest,
    /// Address of the peer on the alternate path.
    pub alt_dest: QpDest,
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Receive work requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
    /// Queue key.
    pub qkey: u32,
    /// Packet number the receiver expects next.
    pub rq_psn: u32,
    /// Packet number the sender uses next.
    pub sq_psn: u32,
    /// Number of the peer's queue pair.
    pub dest_qp_num: u32,
    /// What the peer may do, [`AccessFlags`](super::AccessFlags).
    pub qp_access_flags: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Index of the partition key of the alternate path.
    pub alt_pkey_index: u16,
    /// A [`QpState`](super::QpState).
    pub qp_state: u8,
    /// A [`QpState`](super::QpState).
    pub cur_qp_state: u8,
    /// A [`Mtu`](super::Mtu).
    pub path_mtu: u8,
    /// A [`MigState`](super::MigState).
    pub path_mig_state: u8,
    /// 1 while the send queue is draining.
    pub sq_draining: u8,
    /// RDMA reads and atomics issued at a time.
    pub max_rd_atomic: u8,
    /// RDMA reads and atomics accepted at a time.
    pub max_dest_rd_atomic: u8,
    /// Delay asked for while no receive is posted, as IBTA code.
    pub min_rnr_timer: u8,
    /// Local port.
    pub port_num: u8,
    /// Timeout of acknowledgements, exponent of 4.096 µs; 0 for none.
    pub timeout: u8,
    /// Retries after a timeout, 0 to 7.
    pub retry_cnt: u8,
    /// Retries while the receiver is not ready; 7 means for ever.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port_num: u8,
    /// Timeout of the alternate path.
    pub alt_timeout: u8,
    /// 1 if every send completes visibly.
    pub sq_sig_all: u8,
    /// Unused.
    pub reserved: [u8; 5],
}
layout!(QueryQpResp, "struct ib_uverbs_query_qp_resp", 128, {
    dest: 0, alt_dest: 32, max_send_wr: 64, max_recv_wr: 68, max_send_sge: 72, max_recv_sge: 76,
    max_inline_data: 80, qkey: 84, rq_psn: 88, sq_psn: 92, dest_qp_num: 96, qp_access_flags: 100,
    pkey_index: 104, alt_pkey_index: 106, qp_state: 108, cur_qp_state: 109, path_mtu: 110,
    path_mig_state: 111, sq_draining: 112, max_rd_atomic: 113, max_dest_rd_atomic: 114,
    min_rnr_timer: 115, port_num: 116, timeout: 117, retry_cnt: 118, rnr_retry: 119,
    alt_port_num: 120, alt_timeout: 121, sq_sig_all: 122, reserved: 123,
});

/// Changes attributes of a queue pair; has no answer.
#[doc(alias = "ib_uverbs_modify_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ModifyQp {
    /// Address of the peer.
    pub dest: QpDest,
    /// Address of the peer on the alternate path.
    pub alt_dest: QpDest,
    /// Queue pair.
    pub qp_handle: u32,
    /// Fields that are set, [`QpAttrMask`](super::QpAttrMask).
    pub attr_mask: u32,
    /// Queue key.
    pub qkey: u32,
    /// Packet number the receiver expects first.
    pub rq_psn: u32,
    /// Packet number the sender starts with.
    pub sq_psn: u32,
    /// Number of the peer's queue pair.
    pub dest_qp_num: u32,
    /// What the peer may do, [`AccessFlags`](super::AccessFlags).
    pub qp_access_flags: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Index of the partition key of the alternate path.
    pub alt_pkey_index: u16,
    /// A [`QpState`](super::QpState).
    pub qp_state: u8,
    /// A [`QpState`](super::QpState).
    pub cur_qp_state: u8,
    /// A [`Mtu`](super::Mtu).
    pub path_mtu: u8,
    /// A [`MigState`](super::MigState).
    pub path_mig_state: u8,
    /// 1 for an event when the send queue is drained.
    pub en_sqd_async_notify: u8,
    /// RDMA reads and atomics issued at a time.
    pub max_rd_atomic: u8,
    /// RDMA reads and atomics accepted at a time.
    pub max_dest_rd_atomic: u8,
    /// Delay asked for while no receive is posted, as IBTA code.
    pub min_rnr_timer: u8,
    /// Local port.
    pub port_num: u8,
    /// Timeout of acknowledgements, exponent of 4.096 µs; 0 for none.
    pub timeout: u8,
    /// Retries after a timeout, 0 to 7.
    pub retry_cnt: u8,
    /// Retries while the receiver is not ready; 7 means for ever.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port_num: u8,
    /// Timeout of the alternate path.
    pub alt_timeout: u8,
    /// Must be 0.
    pub reserved: [u8; 2],
}
layout!(ModifyQp, "struct ib_uverbs_modify_qp", 112, {
    dest: 0, alt_dest: 32, qp_handle: 64, attr_mask: 68, qkey: 72, rq_psn: 76, sq_psn: 80,
    dest_qp_num: 84, qp_access_flags: 88, pkey_index: 92, alt_pkey_index: 94, qp_state: 96,
    cur_qp_state: 97, path_mtu: 98, path_mig_state: 99, en_sqd_async_notify: 100,
    max_rd_atomic: 101, max_dest_rd_atomic: 102, min_rnr_timer: 103, port_num: 104, timeout: 105,
    retry_cnt: 106, rnr_retry: 107, alt_port_num: 108, alt_timeout: 109, reserved: 110,
});

/// Changes attributes of a queue pair; extended, for attributes from RATE_LIMIT on and for driver
/// data.
#[doc(alias = "ib_uverbs_ex_modify_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExModifyQp {
    /// What the plain command takes.
    pub base: ModifyQp,
    /// Kilobits per second, 0 for no limit.
    pub rate_limit: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(ExModifyQp, "struct ib_uverbs_ex_modify_qp", 120, {
    base: 0, rate_limit: 112, reserved: 116,
});

/// Answer to [`ExModifyQp`].
#[doc(alias = "ib_uverbs_ex_modify_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExModifyQpResp {
    /// 0.
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
}
layout!(ExModifyQpResp, "struct ib_uverbs_ex_modify_qp_resp", 8, {
    comp_mask: 0, response_length: 4,
});

/// Destroys a queue pair.
#[doc(alias = "ib_uverbs_destroy_qp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DestroyQp {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Queue pair.
    pub qp_handle: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(DestroyQp, "struct ib_uverbs_destroy_qp", 16, { response: 0, qp_handle: 8, reserved: 12 });

/// Answer to [`DestroyQp`].
#[doc(alias = "ib_uverbs_destroy_qp_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroyQpResp {
    /// Events the kernel has delivered for the object; all of them must be acknowledged.
    pub events_reported: u32,
}
layout!(DestroyQpResp, "struct ib_uverbs_destroy_qp_resp", 4, { events_reported: 0 });
