//! Commands by `ioctl()`: a [`Header`], then [`Attr`] records.
//!
//! Each object kind has a module with its methods, and each method a module with its attributes:
//! [`qp::CREATE`], [`qp::create::HANDLE`].
//!
//! Checked against `rdma/ib_user_ioctl_cmds.h`, `rdma/rdma_user_ioctl_cmds.h` and
//! `rdma/ib_user_ioctl_verbs.h` of Linux 6.1, newer parts against the copies in rdma-core of August
//! 2026 (Linux 7.x).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::QueryPortResp;

mod ids;
mod memory;
mod queues;

pub use ids::*;
pub use memory::*;
pub use queues::*;

/// Number of the `ioctl()` on a verbs file: read and write, size of [`Header`], type 0x1b, 1.
pub const VERBS_IOCTL: u32 = 3 << 30 | (size_of::<Header>() as u32) << 16 | 0x1b << 8 | 1;

/// `VERBS_IOCTL` with its C name.
const REQUEST: &[crate::number::Number] = &[crate::number::Number {
    rust: "uverbs::ioctl::VERBS_IOCTL",
    c: "RDMA_VERBS_IOCTL",
    header: HEADER,
    value: VERBS_IOCTL as u64,
}];

const HEADER: &str = "rdma/rdma_user_ioctl_cmds.h";

flag_bits! {
    /// Flags of an attribute.
    pub struct AttrFlags: u16, "UVERBS_ATTR_F_" {
        /// Set by the caller: fail if the kernel does not know the attribute.
        MANDATORY = 1,
        /// Set by the kernel: the output was written.
        VALID_OUTPUT = 1 << 1,
    }
}

/// An attribute.
#[doc(alias = "ib_uverbs_attr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Attr {
    /// Number of the attribute, from the method's module.
    pub attr_id: u16,
    /// Bytes of the data; 0 for handles and files.
    pub len: u16,
    /// [`AttrFlags`].
    pub flags: u16,
    /// Element of an enumeration in the low byte, else 0.
    pub attr_data: u16,
    /// Data of up to 8 bytes, or address of it; handle or file, also returned.
    pub data: u64,
}
layout!(Attr, "struct ib_uverbs_attr", 16, { attr_id: 0, len: 2, flags: 4, attr_data: 6, data: 8 });

/// Start of a command; [`Attr`] records follow.
#[doc(alias = "ib_uverbs_ioctl_hdr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Header {
    /// Bytes with the attributes.
    pub length: u16,
    /// From [`object`].
    pub object_id: u16,
    /// From the object's module.
    pub method_id: u16,
    /// Attributes that follow.
    pub num_attrs: u16,
    /// Must be 0.
    pub reserved1: u64,
    /// The device's [`DriverId`](super::DriverId).
    pub driver_id: u32,
    /// Must be 0.
    pub reserved2: u32,
}
layout!(Header, "struct ib_uverbs_ioctl_hdr", 24, {
    length: 0, object_id: 2, method_id: 4, num_attrs: 6, reserved1: 8, driver_id: 16, reserved2: 20,
});

pub use verbs::{GidEntry, QpCap, QueryPortRespEx};

mod verbs {
    use super::*;

    const HEADER: &str = "rdma/ib_user_ioctl_verbs.h";

    /// Attributes of a port.
    #[doc(alias = "ib_uverbs_query_port_resp_ex")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct QueryPortRespEx {
        /// What the command by `write()` answers.
        pub legacy_resp: QueryPortResp,
        /// Further abilities.
        pub port_cap_flags2: u16,
        /// Unused.
        pub reserved: [u8; 2],
        /// Speed of a lane if `legacy_resp.active_speed` is too small; 0 from Linux 6.1.
        pub active_speed_ex: u32,
    }
    layout!(QueryPortRespEx, "struct ib_uverbs_query_port_resp_ex", 48, {
        legacy_resp: 0, port_cap_flags2: 40, reserved = -: 42, active_speed_ex: 44,
    });

    /// Capacity of a queue pair.
    #[doc(alias = "ib_uverbs_qp_cap")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct QpCap {
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
    }
    layout!(QpCap, "struct ib_uverbs_qp_cap", 20, {
        max_send_wr: 0, max_recv_wr: 4, max_send_sge: 8, max_recv_sge: 12, max_inline_data: 16,
    });

    /// A GID.
    #[doc(alias = "ib_uverbs_gid_entry")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C, align(8))]
    pub struct GidEntry {
        /// The GID's bytes.
        pub gid: [u64; 2],
        /// Its index.
        pub gid_index: u32,
        /// Its port.
        pub port_num: u32,
        /// A [`GidType`](crate::uverbs::GidType).
        pub gid_type: u32,
        /// Index of its network interface, 0 if none.
        pub netdev_ifindex: u32,
    }
    layout!(GidEntry, "struct ib_uverbs_gid_entry", 32, {
        gid: 0, gid_index: 16, port_num: 20, gid_type: 24, netdev_ifindex: 28,
    });
}

numbers![
    REQUEST,
    AttrFlags::NUMBERS,
    ids::UHW,
    ids::NAMESPACE,
    object::NUMBERS,
    device::NUMBERS,
    device::invoke_write::NUMBERS,
    device::info_handles::NUMBERS,
    device::query_port::NUMBERS,
    device::get_context::NUMBERS,
    device::query_context::NUMBERS,
    device::query_gid_table::NUMBERS,
    device::query_gid_entry::NUMBERS,
    pd::NUMBERS,
    pd::destroy::NUMBERS,
    cq::NUMBERS,
    cq::create::NUMBERS,
    cq::destroy::NUMBERS,
    qp::NUMBERS,
    qp::create::NUMBERS,
    qp::destroy::NUMBERS,
    srq::NUMBERS,
    srq::create::NUMBERS,
    srq::destroy::NUMBERS,
    ah::NUMBERS,
    ah::destroy::NUMBERS,
    mr::NUMBERS,
    mr::dm_mr_reg::NUMBERS,
    mr::destroy::NUMBERS,
    mr::advise::NUMBERS,
    mr::query::NUMBERS,
    mr::reg_dmabuf::NUMBERS,
    mr::reg::NUMBERS,
    mw::NUMBERS,
    mw::destroy::NUMBERS,
    flow::NUMBERS,
    flow::destroy::NUMBERS,
    xrcd::NUMBERS,
    xrcd::destroy::NUMBERS,
    dm::NUMBERS,
    dm::alloc::NUMBERS,
    dm::free::NUMBERS,
    counters::NUMBERS,
    counters::create::NUMBERS,
    counters::destroy::NUMBERS,
    counters::read::NUMBERS,
    async_event::NUMBERS,
    async_event::alloc::NUMBERS,
];
