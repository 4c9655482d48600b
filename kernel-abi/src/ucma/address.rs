//! Binding and resolving addresses, and multicast.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;
use crate::sockaddr::{SockaddrIn6, SockaddrStorage};

/// Binds to an IP address.
#[doc(alias = "rdma_ucm_bind_ip")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct BindIp {
    /// Ignored.
    pub response: u64,
    /// An IPv4 or IPv6 address.
    pub addr: SockaddrIn6,
    /// The kernel's number of the id.
    pub id: u32,
}
layout!(BindIp, "struct rdma_ucm_bind_ip", 40, { response: 0, addr: 8, id: 36 });

/// Binds to an address of any family.
#[doc(alias = "rdma_ucm_bind")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bind {
    /// The kernel's number of the id.
    pub id: u32,
    /// Bytes of the address, exactly the size of its family's structure.
    pub addr_size: u16,
    /// Must be 0.
    pub reserved: u16,
    /// The address.
    pub addr: SockaddrStorage,
}
layout!(Bind, "struct rdma_ucm_bind", 136, { id: 0, addr_size: 4, reserved: 6, addr: 8 });

/// Resolves an IP address.
#[doc(alias = "rdma_ucm_resolve_ip")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ResolveIp {
    /// Local address; family 0 if the kernel shall choose.
    pub src_addr: SockaddrIn6,
    /// Address of the peer.
    pub dst_addr: SockaddrIn6,
    /// The kernel's number of the id.
    pub id: u32,
    /// Milliseconds until the resolution fails.
    pub timeout_ms: u32,
}
layout!(ResolveIp, "struct rdma_ucm_resolve_ip", 64, {
    src_addr: 0, dst_addr: 28, id: 56, timeout_ms: 60,
});

/// Resolves an address of any family.
#[doc(alias = "rdma_ucm_resolve_addr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResolveAddr {
    /// The kernel's number of the id.
    pub id: u32,
    /// Milliseconds until the resolution fails.
    pub timeout_ms: u32,
    /// Bytes of `src_addr`, 0 if the kernel shall choose.
    pub src_size: u16,
    /// Bytes of `dst_addr`.
    pub dst_size: u16,
    /// Must be 0.
    pub reserved: u32,
    /// Local address.
    pub src_addr: SockaddrStorage,
    /// Address of the peer.
    pub dst_addr: SockaddrStorage,
}
layout!(ResolveAddr, "struct rdma_ucm_resolve_addr", 272, {
    id: 0, timeout_ms: 4, src_size: 8, dst_size: 10, reserved: 12, src_addr: 16, dst_addr: 144,
});

/// Resolves the route to a resolved address.
#[doc(alias = "rdma_ucm_resolve_route")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ResolveRoute {
    /// The kernel's number of the id.
    pub id: u32,
    /// Milliseconds until the resolution fails.
    pub timeout_ms: u32,
}
layout!(ResolveRoute, "struct rdma_ucm_resolve_route", 8, { id: 0, timeout_ms: 4 });

/// Joins a multicast group by its IP address.
#[doc(alias = "rdma_ucm_join_ip_mcast")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct JoinIpMcast {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in the group's events.
    pub uid: u64,
    /// Address of the group.
    pub addr: SockaddrIn6,
    /// The kernel's number of the id.
    pub id: u32,
}
layout!(JoinIpMcast, "struct rdma_ucm_join_ip_mcast", 48, {
    response: 0, uid: 8, addr: 16, id: 44,
});

open_enum! {
    /// How to join a multicast group.
    pub struct McJoinFlags(u16), "RDMA_MC_JOIN_FLAG_" {
        /// Send and receive.
        FULLMEMBER = 0,
        /// Send only.
        SENDONLY_FULLMEMBER = 1,
    }
}

/// Joins a multicast group.
#[doc(alias = "rdma_ucm_join_mcast")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct JoinMcast {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// Value of the caller, handed back in the group's events.
    pub uid: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// Bytes of `addr`.
    pub addr_size: u16,
    /// A [`McJoinFlags`].
    pub join_flags: u16,
    /// Address of the group.
    pub addr: SockaddrStorage,
}
layout!(JoinMcast, "struct rdma_ucm_join_mcast", 152, {
    response: 0, uid: 8, id: 16, addr_size: 20, join_flags: 22, addr: 24,
});

zeroed_default!(Bind, ResolveAddr, JoinMcast);
