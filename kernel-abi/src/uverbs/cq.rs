//! Completion channels and completion queues.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Creates a completion channel.
#[doc(alias = "ib_uverbs_create_comp_channel")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateCompChannel {
    /// Address of the buffer that receives the answer.
    pub response: u64,
}
layout!(CreateCompChannel, "struct ib_uverbs_create_comp_channel", 8, { response: 0 });

/// Answer to [`CreateCompChannel`].
#[doc(alias = "ib_uverbs_create_comp_channel_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateCompChannelResp {
    /// File to read [`CompEventDesc`](super::CompEventDesc) from.
    pub fd: u32,
}
layout!(CreateCompChannelResp, "struct ib_uverbs_create_comp_channel_resp", 4, { fd: 0 });

/// Creates a completion queue.
#[doc(alias = "ib_uverbs_create_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateCq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// Entries wanted.
    pub cqe: u32,
    /// Completion vector.
    pub comp_vector: u32,
    /// File of the completion channel, -1 for none.
    pub comp_channel: i32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(CreateCq, "struct ib_uverbs_create_cq", 32, {
    response: 0, user_handle: 8, cqe: 16, comp_vector: 20, comp_channel: 24, reserved: 28,
});

/// Answer to [`CreateCq`].
#[doc(alias = "ib_uverbs_create_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateCqResp {
    /// The new queue.
    pub cq_handle: u32,
    /// Entries it has.
    pub cqe: u32,
}
layout!(CreateCqResp, "struct ib_uverbs_create_cq_resp", 8, { cq_handle: 0, cqe: 4 });

flag_bits! {
    /// Flags of a completion queue.
    pub struct CreateCqFlags: u32, "IB_UVERBS_CQ_FLAGS_" {
        /// Completions carry timestamps.
        TIMESTAMP_COMPLETION = 1,
        /// Overruns go unnoticed.
        IGNORE_OVERRUN = 1 << 1,
    }
}

/// Creates a completion queue; extended.
#[doc(alias = "ib_uverbs_ex_create_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ExCreateCq {
    /// Value of the caller, handed back in events.
    pub user_handle: u64,
    /// Entries wanted.
    pub cqe: u32,
    /// Completion vector.
    pub comp_vector: u32,
    /// File of the completion channel, -1 for none.
    pub comp_channel: i32,
    /// Must be 0.
    pub comp_mask: u32,
    /// [`CreateCqFlags`].
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(ExCreateCq, "struct ib_uverbs_ex_create_cq", 32, {
    user_handle: 0, cqe: 8, comp_vector: 12, comp_channel: 16, comp_mask: 20, flags: 24,
    reserved: 28,
});

/// Answer to [`ExCreateCq`].
#[doc(alias = "ib_uverbs_ex_create_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExCreateCqResp {
    /// What the plain command answers.
    pub base: CreateCqResp,
    /// 0.
    pub comp_mask: u32,
    /// Bytes the kernel knows of this structure.
    pub response_length: u32,
}
layout!(ExCreateCqResp, "struct ib_uverbs_ex_create_cq_resp", 16, {
    base: 0, comp_mask: 8, response_length: 12,
});

/// Resizes a completion queue.
#[doc(alias = "ib_uverbs_resize_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ResizeCq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Completion queue.
    pub cq_handle: u32,
    /// Entries wanted.
    pub cqe: u32,
}
layout!(ResizeCq, "struct ib_uverbs_resize_cq", 16, { response: 0, cq_handle: 8, cqe: 12 });

/// Answer to [`ResizeCq`].
#[doc(alias = "ib_uverbs_resize_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ResizeCqResp {
    /// Entries it has.
    pub cqe: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(ResizeCqResp, "struct ib_uverbs_resize_cq_resp", 8, { cqe: 0, reserved: 4 });

/// Takes completions; only for drivers without shared queues.
#[doc(alias = "ib_uverbs_poll_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct PollCq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Completion queue.
    pub cq_handle: u32,
    /// Completions that fit in the answer.
    pub ne: u32,
}
layout!(PollCq, "struct ib_uverbs_poll_cq", 16, { response: 0, cq_handle: 8, ne: 12 });

/// Start of the answer; [`Wc`](super::Wc) entries follow.
#[doc(alias = "ib_uverbs_poll_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PollCqResp {
    /// Entries that follow.
    pub count: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(PollCqResp, "struct ib_uverbs_poll_cq_resp", 8, { count: 0, reserved: 4 });

/// Asks for an event at the next completion.
#[doc(alias = "ib_uverbs_req_notify_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ReqNotifyCq {
    /// Completion queue.
    pub cq_handle: u32,
    /// 1 if only solicited and failed completions count.
    pub solicited_only: u32,
}
layout!(ReqNotifyCq, "struct ib_uverbs_req_notify_cq", 8, { cq_handle: 0, solicited_only: 4 });

/// Destroys a completion queue.
#[doc(alias = "ib_uverbs_destroy_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DestroyCq {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Completion queue.
    pub cq_handle: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(DestroyCq, "struct ib_uverbs_destroy_cq", 16, { response: 0, cq_handle: 8, reserved: 12 });

/// Answer to [`DestroyCq`].
#[doc(alias = "ib_uverbs_destroy_cq_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroyCqResp {
    /// Completion events read; all must be acknowledged.
    pub comp_events_reported: u32,
    /// Asynchronous events read; all must be acknowledged.
    pub async_events_reported: u32,
}
layout!(DestroyCqResp, "struct ib_uverbs_destroy_cq_resp", 8, {
    comp_events_reported: 0, async_events_reported: 4,
});

/// How many completions make an event.
#[doc(alias = "ib_uverbs_cq_moderation")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CqModeration {
    /// Completions.
    pub cq_count: u16,
    /// Microseconds.
    pub cq_period: u16,
}
layout!(CqModeration, "struct ib_uverbs_cq_moderation", 4, { cq_count: 0, cq_period: 2 });

/// Sets a completion queue's moderation; extended.
#[doc(alias = "ib_uverbs_ex_modify_cq")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ExModifyCq {
    /// Completion queue.
    pub cq_handle: u32,
    /// 1 if `attr` is set.
    pub attr_mask: u32,
    /// Moderation.
    pub attr: CqModeration,
    /// Must be 0.
    pub reserved: u32,
}
layout!(ExModifyCq, "struct ib_uverbs_ex_modify_cq", 16, {
    cq_handle: 0, attr_mask: 4, attr: 8, reserved: 12,
});
