//! Records read from completion channels and asynchronous event files.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// A completion event.
#[doc(alias = "ib_uverbs_comp_event_desc")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CompEventDesc {
    /// The completion queue's `user_handle`.
    pub cq_handle: u64,
}
layout!(CompEventDesc, "struct ib_uverbs_comp_event_desc", 8, { cq_handle: 0 });

/// An asynchronous event.
#[doc(alias = "ib_uverbs_async_event_desc")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AsyncEventDesc {
    /// `user_handle` of the object, or the number of the port.
    pub element: u64,
    /// An [`AsyncEventType`](super::AsyncEventType).
    pub event_type: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(AsyncEventDesc, "struct ib_uverbs_async_event_desc", 16, {
    element: 0, event_type: 8, reserved: 12,
});
