//! Queries, and the resolution of InfiniBand services.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{HEADER, IbUserPathRec};
use crate::sockaddr::{SockaddrIn6, SockaddrStorage};

open_enum! {
    /// What a [`Query`] asks for.
    pub struct QueryOption(u32), "RDMA_USER_CM_QUERY_" {
        /// Addresses, answered by [`QueryAddrResp`].
        ADDR = 0,
        /// Path records, answered by [`QueryPathResp`].
        PATH = 1,
        /// Addresses as `AF_IB`, answered by [`QueryAddrResp`].
        GID = 2,
        /// Service records, answered by [`QueryIbServiceResp`]. Newer than Linux 6.1.
        IB_SERVICE = 3,
    }
}

/// Asks for facts of an id.
#[doc(alias = "rdma_ucm_query")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Query {
    /// Address of the buffer that receives the answer.
    pub response: u64,
    /// The kernel's number of the id.
    pub id: u32,
    /// A [`QueryOption`].
    pub option: u32,
}
layout!(Query, "struct rdma_ucm_query", 16, { response: 0, id: 8, option: 12 });

/// Addresses and paths of an id; IP addresses only.
#[doc(alias = "rdma_ucm_query_route_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct QueryRouteResp {
    /// GUID of the device, 0 without one.
    pub node_guid: big_endian::U64,
    /// Primary and alternate path.
    pub ib_route: [IbUserPathRec; 2],
    /// Local address.
    pub src_addr: SockaddrIn6,
    /// Address of the peer.
    pub dst_addr: SockaddrIn6,
    /// Valid entries of `ib_route`.
    pub num_paths: u32,
    /// Port of the device, from 1.
    pub port_num: u8,
    /// Unused.
    pub reserved: [u8; 3],
    /// Index of the device as netlink reports it.
    pub ibdev_index: u32,
    /// Unused.
    pub reserved1: u32,
}
layout!(QueryRouteResp, "struct rdma_ucm_query_route_resp", 208, {
    node_guid: 0, ib_route: 8, src_addr: 136, dst_addr: 164, num_paths: 192, port_num: 196,
    reserved: 197, ibdev_index: 200, reserved1: 204,
});

/// Addresses of an id.
#[doc(alias = "rdma_ucm_query_addr_resp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct QueryAddrResp {
    /// GUID of the device, 0 without one.
    pub node_guid: big_endian::U64,
    /// Port of the device, from 1.
    pub port_num: u8,
    /// Unused.
    pub reserved: u8,
    /// Partition key.
    pub pkey: big_endian::U16,
    /// Bytes of `src_addr`.
    pub src_size: u16,
    /// Bytes of `dst_addr`.
    pub dst_size: u16,
    /// Local address.
    pub src_addr: SockaddrStorage,
    /// Address of the peer.
    pub dst_addr: SockaddrStorage,
    /// Index of the device as netlink reports it; old kernels leave it untouched.
    pub ibdev_index: u32,
    /// Unused.
    pub reserved1: u32,
}
layout!(QueryAddrResp, "struct rdma_ucm_query_addr_resp", 280, {
    node_guid: 0, port_num: 8, reserved: 9, pkey: 10, src_size: 12, dst_size: 14, src_addr: 16,
    dst_addr: 144, ibdev_index: 272, reserved1: 276,
});

/// Start of the answer; [`PathData`](super::PathData) records follow.
#[doc(alias = "rdma_ucm_query_path_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueryPathResp {
    /// Records the id has; fewer follow if the buffer is short.
    pub num_paths: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(QueryPathResp, "struct rdma_ucm_query_path_resp", 8, { num_paths: 0, reserved: 4 });

flag_bits! {
    /// What identifies a service.
    pub struct IbServiceFlags: u32, "RDMA_USER_CM_IB_SERVICE_FLAG_" {
        /// `service_id` is set.
        ID = 1,
        /// `service_name` is set.
        NAME = 1 << 1,
    }
}

constants! {
    IB_SERVICE_CONSTANTS: usize, "RDMA_USER_CM_" {
        /// Bytes of a service name.
        IB_SERVICE_NAME_SIZE = 64,
    }
}

/// A service to resolve. Newer than Linux 6.1.
#[doc(alias = "rdma_ucm_ib_service")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct IbService {
    /// Service id, in the machine's byte order.
    pub service_id: u64,
    /// Service name, NUL-padded.
    pub service_name: [u8; 64],
    /// [`IbServiceFlags`] bits.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}
layout!(IbService, "struct rdma_ucm_ib_service", 80, {
    service_id: 0, service_name: 8, flags: 72, reserved: 76,
});

/// Resolves a service. Newer than Linux 6.1.
#[doc(alias = "rdma_ucm_resolve_ib_service")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResolveIbService {
    /// The kernel's number of the id.
    pub id: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The service.
    pub ibs: IbService,
}
layout!(ResolveIbService, "struct rdma_ucm_resolve_ib_service", 88, { id: 0, reserved: 4, ibs: 8 });

/// Start of the answer; [`IbUserServiceRec`](super::IbUserServiceRec) records follow. Newer than
/// Linux 6.1.
#[doc(alias = "rdma_ucm_query_ib_service_resp")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueryIbServiceResp {
    /// Records the id has; retry with more room if not all fit.
    pub num_service_recs: u32,
    /// Unused.
    pub reserved: u32,
}
layout!(QueryIbServiceResp, "struct rdma_ucm_query_ib_service_resp", 8, {
    num_service_recs: 0, reserved: 4,
});

zeroed_default!(QueryAddrResp, IbService, ResolveIbService);
