//! Creating, destroying, moving and configuring ids.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

open_enum! {
    /// Port space of an id.
    pub struct PortSpace(u16), "RDMA_PS_" {
        /// IP over InfiniBand.
        IPOIB = 0x0002,
        /// InfiniBand service ids (`AF_IB`).
        IB = 0x013f,
        /// Reliable connected.
        TCP = 0x0106,
        /// Datagrams.
        UDP = 0x0111,
    }
}

/// Creates an id.
#[doc(alias = "rdma_ucm_create_id")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct CreateId {
    /// Value of the caller, handed back in the id's events.
    pub uid: u64,
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// A [`PortSpace`].
    pub ps: u16,
    /// A [`QpType`](crate::uverbs::QpType).
    pub qp_type: u8,
    /// Must be 0.
    pub reserved: [u8; 5],
}
layout!(CreateId, "struct rdma_ucm_create_id", 24, {
    uid: 0, response: 8, ps: 16, qp_type: 18, reserved: 19,
});

/// Answer to [`CreateId`] and to the multicast joins.
#[doc(alias = "rdma_ucm_create_id_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CreateIdResp {
    /// Number for further commands.
    pub id: u32,
}
layout!(CreateIdResp, "struct rdma_ucm_create_id_resp", 4, { id: 0 });

/// Destroys an id, or leaves a multicast group.
#[doc(alias = "rdma_ucm_destroy_id")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DestroyId {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(DestroyId, "struct rdma_ucm_destroy_id", 16, { response: 0, id: 8, reserved: 12 });

/// Answer to [`DestroyId`].
#[doc(alias = "rdma_ucm_destroy_id_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DestroyIdResp {
    /// Events of the id that have been fetched; all must be acknowledged.
    pub events_reported: u32,
}
layout!(DestroyIdResp, "struct rdma_ucm_destroy_id_resp", 4, { events_reported: 0 });

/// Moves an id to the file it is written to.
#[doc(alias = "rdma_ucm_migrate_id")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct MigrateId {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// File the id belongs to until now.
    pub fd: u32,
}
layout!(MigrateId, "struct rdma_ucm_migrate_id", 16, { response: 0, id: 8, fd: 12 });

/// Answer to [`MigrateId`].
#[doc(alias = "rdma_ucm_migrate_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MigrateResp {
    /// Events of the id that were fetched through the old file.
    pub events_reported: u32,
}
layout!(MigrateResp, "struct rdma_ucm_migrate_resp", 4, { events_reported: 0 });

/// Asks for the attributes that take the queue pair to a state.
#[doc(alias = "rdma_ucm_init_qp_attr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct InitQpAttr {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// A [`QpState`](crate::uverbs::QpState): INIT, RTR or RTS.
    pub qp_state: u32,
}
layout!(InitQpAttr, "struct rdma_ucm_init_qp_attr", 16, { response: 0, id: 8, qp_state: 12 });

/// Tells the kernel of an event of the queue pair.
#[doc(alias = "rdma_ucm_notify")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Notify {
    /// The kernel's number of the id.
    pub id: u32,
    /// An [`AsyncEventType`](crate::uverbs::AsyncEventType), in practice COMM_EST.
    pub event: u32,
}
layout!(Notify, "struct rdma_ucm_notify", 8, { id: 0, event: 4 });

open_enum! {
    /// Level of an option.
    pub struct OptionLevel(u32), "RDMA_OPTION_" {
        /// Options of the id, see [`IdOption`].
        ID = 0,
        /// Options for InfiniBand, see [`IbOption`].
        IB = 1,
    }
}

open_enum! {
    /// Option names of level [`OptionLevel::ID`].
    pub struct IdOption(u32), "RDMA_OPTION_ID_" {
        /// Type of service, a `u8`.
        TOS = 0,
        /// Share the port, an `i32`.
        REUSEADDR = 1,
        /// Only the address family of the bound address, an `i32`.
        AFONLY = 2,
        /// Local ACK timeout as the exponent n of 4.096 µs · 2ⁿ, a `u8`.
        ACK_TIMEOUT = 3,
    }
}

open_enum! {
    /// Option names of level [`OptionLevel::IB`].
    pub struct IbOption(u32), "RDMA_OPTION_IB_" {
        /// Path records, an array of [`PathData`](super::PathData).
        PATH = 1,
    }
}

/// Sets an option.
#[doc(alias = "rdma_ucm_set_option")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SetOption {
    /// Address of the value.
    pub optval: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// An [`OptionLevel`].
    pub level: u32,
    /// An [`IdOption`] or [`IbOption`].
    pub optname: u32,
    /// Bytes of the value.
    pub optlen: u32,
}
layout!(SetOption, "struct rdma_ucm_set_option", 24, {
    optval: 0, id: 8, level: 12, optname: 16, optlen: 20,
});
