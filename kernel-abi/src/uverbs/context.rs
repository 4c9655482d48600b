//! Contexts, protection domains and XRC domains.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Makes the open file a context.
#[doc(alias = "ib_uverbs_get_context")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct GetContext {
    /// Address of the buffer that receives the answer.
    pub response: u64,
}
layout!(GetContext, "struct ib_uverbs_get_context", 8, { response: 0 });

/// Answer to [`GetContext`].
#[doc(alias = "ib_uverbs_get_context_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct GetContextResp {
    /// File to read asynchronous events from.
    pub async_fd: u32,
    /// Completion vectors of the device.
    pub num_comp_vectors: u32,
}
layout!(GetContextResp, "struct ib_uverbs_get_context_resp", 8, {
    async_fd: 0, num_comp_vectors: 4,
});

/// Allocates a protection domain.
#[doc(alias = "ib_uverbs_alloc_pd")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AllocPd {
    /// Address of the buffer that receives the answer.
    pub response: u64,
}
layout!(AllocPd, "struct ib_uverbs_alloc_pd", 8, { response: 0 });

/// Answer to [`AllocPd`].
#[doc(alias = "ib_uverbs_alloc_pd_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AllocPdResp {
    /// The new protection domain.
    pub pd_handle: u32,
}
layout!(AllocPdResp, "struct ib_uverbs_alloc_pd_resp", 4, { pd_handle: 0 });

/// Frees a protection domain.
#[doc(alias = "ib_uverbs_dealloc_pd")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeallocPd {
    /// Protection domain.
    pub pd_handle: u32,
}
layout!(DeallocPd, "struct ib_uverbs_dealloc_pd", 4, { pd_handle: 0 });

/// Opens an XRC domain.
#[doc(alias = "ib_uverbs_open_xrcd")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct OpenXrcd {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// File whose inode names the domain; `u32::MAX` for a private one.
    pub fd: u32,
    /// `O_CREAT` and `O_EXCL` bits of `open()`.
    pub oflags: u32,
}
layout!(OpenXrcd, "struct ib_uverbs_open_xrcd", 16, { response: 0, fd: 8, oflags: 12 });

/// Answer to [`OpenXrcd`].
#[doc(alias = "ib_uverbs_open_xrcd_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OpenXrcdResp {
    /// The XRC domain.
    pub xrcd_handle: u32,
}
layout!(OpenXrcdResp, "struct ib_uverbs_open_xrcd_resp", 4, { xrcd_handle: 0 });

/// Closes an XRC domain.
#[doc(alias = "ib_uverbs_close_xrcd")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CloseXrcd {
    /// XRC domain.
    pub xrcd_handle: u32,
}
layout!(CloseXrcd, "struct ib_uverbs_close_xrcd", 4, { xrcd_handle: 0 });
