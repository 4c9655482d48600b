//! Shared receive queues.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Creates a shared receive queue.
#[doc(alias = "ib_uverbs_create_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateSrq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// Protection domain.
    pub pd_handle: u32,
    /// Receives that fit.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// Fill level below which an event is raised.
    pub srq_limit: u32,
}
layout!(CreateSrq, "struct ib_uverbs_create_srq", 32, {
    response: 0, user_handle: 8, pd_handle: 16, max_wr: 20, max_sge: 24, srq_limit: 28,
});

/// Creates a shared receive queue for XRC or tag matching.
#[doc(alias = "ib_uverbs_create_xsrq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateXsrq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// A [`SrqType`](super::SrqType).
    pub srq_type: u32,
    /// Protection domain.
    pub pd_handle: u32,
    /// Receives that fit.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// Fill level below which an event is raised.
    pub srq_limit: u32,
    /// Entries of the matching list.
    pub max_num_tags: u32,
    /// XRC domain.
    pub xrcd_handle: u32,
    /// Completion queue.
    pub cq_handle: u32,
}
layout!(CreateXsrq, "struct ib_uverbs_create_xsrq", 48, {
    response: 0, user_handle: 8, srq_type: 16, pd_handle: 20, max_wr: 24, max_sge: 28,
    srq_limit: 32, max_num_tags: 36, xrcd_handle: 40, cq_handle: 44,
});

/// Answer to [`CreateSrq`] and [`CreateXsrq`].
#[doc(alias = "ib_uverbs_create_srq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateSrqResp {
    /// The new queue.
    pub srq_handle: u32,
    /// Receives that fit.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// Its number; only of XRC queues.
    pub srqn: u32,
}
layout!(CreateSrqResp, "struct ib_uverbs_create_srq_resp", 16, {
    srq_handle: 0, max_wr: 4, max_sge: 8, srqn: 12,
});

/// Changes a shared receive queue; has no answer.
#[doc(alias = "ib_uverbs_modify_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ModifySrq {
    /// Shared receive queue.
    pub srq_handle: u32,
    /// Fields that are set, [`SrqAttrMask`](super::SrqAttrMask).
    pub attr_mask: u32,
    /// Receives that fit.
    pub max_wr: u32,
    /// Fill level below which an event is raised.
    pub srq_limit: u32,
}
layout!(ModifySrq, "struct ib_uverbs_modify_srq", 16, {
    srq_handle: 0, attr_mask: 4, max_wr: 8, srq_limit: 12,
});

/// Asks for the attributes of a shared receive queue.
#[doc(alias = "ib_uverbs_query_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QuerySrq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Shared receive queue.
    pub srq_handle: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(QuerySrq, "struct ib_uverbs_query_srq", 16, { response: 0, srq_handle: 8, reserved: 12 });

/// Answer to [`QuerySrq`].
#[doc(alias = "ib_uverbs_query_srq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QuerySrqResp {
    /// Receives that fit.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// Fill level below which an event is raised.
    pub srq_limit: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(QuerySrqResp, "struct ib_uverbs_query_srq_resp", 16, {
    max_wr: 0, max_sge: 4, srq_limit: 8, reserved: 12,
});

/// Destroys a shared receive queue.
#[doc(alias = "ib_uverbs_destroy_srq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DestroySrq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Shared receive queue.
    pub srq_handle: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(DestroySrq, "struct ib_uverbs_destroy_srq", 16, {
    response: 0, srq_handle: 8, reserved: 12,
});

/// Answer to [`DestroySrq`].
#[doc(alias = "ib_uverbs_destroy_srq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroySrqResp {
    /// Events the kernel has delivered for the object; all of them must be acknowledged.
    pub events_reported: u32,
}
layout!(DestroySrqResp, "struct ib_uverbs_destroy_srq_resp", 4, { events_reported: 0 });
