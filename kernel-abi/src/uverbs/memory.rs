//! Memory regions and memory windows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Registers memory.
#[doc(alias = "ib_uverbs_reg_mr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct RegMr {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Address of the memory.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address the region has in work requests; same offset in its page as `start`.
    pub hca_va: u64,
    /// Protection domain.
    pub pd_handle: u32,
    /// [`AccessFlags`](super::AccessFlags).
    pub access_flags: u32,
}
layout!(RegMr, "struct ib_uverbs_reg_mr", 40, {
    response: 0, start: 8, length: 16, hca_va: 24, pd_handle: 32, access_flags: 36,
});

/// Answer to [`RegMr`].
#[doc(alias = "ib_uverbs_reg_mr_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegMrResp {
    /// The new region.
    pub mr_handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}
layout!(RegMrResp, "struct ib_uverbs_reg_mr_resp", 12, { mr_handle: 0, lkey: 4, rkey: 8 });

/// Changes a region.
#[doc(alias = "ib_uverbs_rereg_mr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ReregMr {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Memory region.
    pub mr_handle: u32,
    /// What changes, [`ReregMrFlags`](super::ReregMrFlags).
    pub flags: u32,
    /// Address of the memory.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address the region has in work requests.
    pub hca_va: u64,
    /// Protection domain.
    pub pd_handle: u32,
    /// [`AccessFlags`](super::AccessFlags).
    pub access_flags: u32,
}
layout!(ReregMr, "struct ib_uverbs_rereg_mr", 48, {
    response: 0, mr_handle: 8, flags: 12, start: 16, length: 24, hca_va: 32, pd_handle: 40,
    access_flags: 44,
});

/// Answer to [`ReregMr`].
#[doc(alias = "ib_uverbs_rereg_mr_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ReregMrResp {
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}
layout!(ReregMrResp, "struct ib_uverbs_rereg_mr_resp", 8, { lkey: 0, rkey: 4 });

/// Deregisters a region.
#[doc(alias = "ib_uverbs_dereg_mr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeregMr {
    /// Memory region.
    pub mr_handle: u32,
}
layout!(DeregMr, "struct ib_uverbs_dereg_mr", 4, { mr_handle: 0 });

/// Allocates a memory window.
#[doc(alias = "ib_uverbs_alloc_mw")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AllocMw {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Protection domain.
    pub pd_handle: u32,
    /// A [`MwType`](super::MwType).
    pub mw_type: u8,
    /// Must be 0.
    pub reserved: [u8; 3],
}
layout!(AllocMw, "struct ib_uverbs_alloc_mw", 16, {
    response: 0, pd_handle: 8, mw_type: 12, reserved: 13,
});

/// Answer to [`AllocMw`].
#[doc(alias = "ib_uverbs_alloc_mw_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AllocMwResp {
    /// The new window.
    pub mw_handle: u32,
    /// Remote key.
    pub rkey: u32,
}
layout!(AllocMwResp, "struct ib_uverbs_alloc_mw_resp", 8, { mw_handle: 0, rkey: 4 });

/// Frees a memory window.
#[doc(alias = "ib_uverbs_dealloc_mw")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeallocMw {
    /// Memory window.
    pub mw_handle: u32,
}
layout!(DeallocMw, "struct ib_uverbs_dealloc_mw", 4, { mw_handle: 0 });
