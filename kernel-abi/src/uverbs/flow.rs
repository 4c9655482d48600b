//! Flow steering, without the specifications that follow [`CreateFlow`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// Start of a specification.
#[doc(alias = "ib_uverbs_flow_spec_hdr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct FlowSpecHdr {
    /// Kind of the specification.
    pub type_: u32,
    /// Bytes with this header.
    pub size: u16,
    /// Must be 0.
    pub reserved: u16,
}
layout!(FlowSpecHdr, "struct ib_uverbs_flow_spec_hdr", 8, {
    type_ = "type": 0, size: 4, reserved: 6,
});

/// A flow; [`FlowSpecHdr`] records follow.
#[doc(alias = "ib_uverbs_flow_attr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct FlowAttr {
    /// Kind of flow.
    pub type_: u32,
    /// Bytes with the specifications.
    pub size: u16,
    /// 0 is the highest.
    pub priority: u16,
    /// Specifications that follow.
    pub num_of_specs: u8,
    /// Must be 0.
    pub reserved: [u8; 2],
    /// Local port.
    pub port: u8,
    /// Bit 1: do not trap; bit 2: egress.
    pub flags: u32,
}
layout!(FlowAttr, "struct ib_uverbs_flow_attr", 16, {
    type_ = "type": 0, size: 4, priority: 6, num_of_specs: 8, reserved: 9, port: 11, flags: 12,
});

/// Steers packets to a queue pair; extended.
#[doc(alias = "ib_uverbs_create_flow")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateFlow {
    /// Must be 0.
    pub comp_mask: u32,
    /// Queue pair.
    pub qp_handle: u32,
    /// The flow.
    pub flow_attr: FlowAttr,
}
layout!(CreateFlow, "struct ib_uverbs_create_flow", 24, {
    comp_mask: 0, qp_handle: 4, flow_attr: 8,
});

/// Answer to [`CreateFlow`].
#[doc(alias = "ib_uverbs_create_flow_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateFlowResp {
    /// 0.
    pub comp_mask: u32,
    /// The new flow.
    pub flow_handle: u32,
}
layout!(CreateFlowResp, "struct ib_uverbs_create_flow_resp", 8, { comp_mask: 0, flow_handle: 4 });

/// Destroys a flow; extended.
#[doc(alias = "ib_uverbs_destroy_flow")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroyFlow {
    /// Must be 0.
    pub comp_mask: u32,
    /// The flow.
    pub flow_handle: u32,
}
layout!(DestroyFlow, "struct ib_uverbs_destroy_flow", 8, { comp_mask: 0, flow_handle: 4 });
