//! Address handles and multicast groups.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// The global part of an address.
#[doc(alias = "ib_uverbs_global_route")]
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
layout!(GlobalRoute, "struct ib_uverbs_global_route", 24, {
    dgid: 0, flow_label: 16, sgid_index: 20, hop_limit: 21, traffic_class: 22, reserved: 23,
});

/// An address; field order differs from [`QpDest`](super::QpDest).
#[doc(alias = "ib_uverbs_ah_attr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AhAttr {
    /// Global part.
    pub grh: GlobalRoute,
    /// LID of the peer.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the local LID.
    pub src_path_bits: u8,
    /// Rate limit.
    pub static_rate: u8,
    /// 1 if `grh` is set; always on RoCE.
    pub is_global: u8,
    /// Local port.
    pub port_num: u8,
    /// Must be 0.
    pub reserved: u8,
}
layout!(AhAttr, "struct ib_uverbs_ah_attr", 32, {
    grh: 0, dlid: 24, sl: 26, src_path_bits: 27, static_rate: 28, is_global: 29, port_num: 30,
    reserved: 31,
});

/// Creates an address handle.
#[doc(alias = "ib_uverbs_create_ah")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateAh {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Unused.
    pub user_handle: u64,
    /// Protection domain.
    pub pd_handle: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The address.
    pub attr: AhAttr,
}
layout!(CreateAh, "struct ib_uverbs_create_ah", 56, {
    response: 0, user_handle: 8, pd_handle: 16, reserved: 20, attr: 24,
});

/// Answer to [`CreateAh`].
#[doc(alias = "ib_uverbs_create_ah_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateAhResp {
    /// The new address handle.
    pub ah_handle: u32,
}
layout!(CreateAhResp, "struct ib_uverbs_create_ah_resp", 4, { ah_handle: 0 });

/// Destroys an address handle.
#[doc(alias = "ib_uverbs_destroy_ah")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroyAh {
    /// Address handle.
    pub ah_handle: u32,
}
layout!(DestroyAh, "struct ib_uverbs_destroy_ah", 4, { ah_handle: 0 });

/// Attaches a queue pair to a multicast group.
#[doc(alias = "ib_uverbs_attach_mcast")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AttachMcast {
    /// GID of the group.
    pub gid: [u8; 16],
    /// Queue pair.
    pub qp_handle: u32,
    /// LID of the group.
    pub mlid: u16,
    /// Must be 0.
    pub reserved: u16,
}
layout!(AttachMcast, "struct ib_uverbs_attach_mcast", 24, {
    gid: 0, qp_handle: 16, mlid: 20, reserved: 22,
});

/// Detaches a queue pair from a multicast group.
#[doc(alias = "ib_uverbs_detach_mcast")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DetachMcast {
    /// GID of the group.
    pub gid: [u8; 16],
    /// Queue pair.
    pub qp_handle: u32,
    /// LID of the group.
    pub mlid: u16,
    /// Must be 0.
    pub reserved: u16,
}
layout!(DetachMcast, "struct ib_uverbs_detach_mcast", 24, {
    gid: 0, qp_handle: 16, mlid: 20, reserved: 22,
});
