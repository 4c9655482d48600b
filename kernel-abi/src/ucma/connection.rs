//! Listening, connecting, accepting, rejecting and disconnecting.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;
use crate::uverbs::AhAttr;

/// Parameters of a connection.
#[doc(alias = "rdma_ucm_conn_param")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnParam {
    /// Number of the queue pair, 24 bits.
    pub qp_num: u32,
    /// Queue key, used only with `AF_IB` addresses.
    pub qkey: u32,
    /// Bytes for the peer.
    pub private_data: [u8; 256],
    /// Bytes used in `private_data`.
    pub private_data_len: u8,
    /// 1 if the queue pair uses a shared receive queue.
    pub srq: u8,
    /// RDMA reads and atomics accepted at a time.
    pub responder_resources: u8,
    /// RDMA reads and atomics issued at a time.
    pub initiator_depth: u8,
    /// 1 for end-to-end flow control.
    pub flow_control: u8,
    /// Retries after a timeout, 0 to 7.
    pub retry_count: u8,
    /// Retries while the receiver is not ready; 7 means for ever.
    pub rnr_retry_count: u8,
    /// 1 if the other fields are set; 0 only when the active side accepts.
    pub valid: u8,
}
layout!(ConnParam, "struct rdma_ucm_conn_param", 272, {
    qp_num: 0, qkey: 4, private_data: 8, private_data_len: 264, srq: 265, responder_resources: 266,
    initiator_depth: 267, flow_control: 268, retry_count: 269, rnr_retry_count: 270, valid: 271,
});

/// Parameters of a datagram peer.
#[doc(alias = "rdma_ucm_ud_param")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UdParam {
    /// Number of the queue pair, 24 bits.
    pub qp_num: u32,
    /// Queue key of the peer.
    pub qkey: u32,
    /// Address of the peer.
    pub ah_attr: AhAttr,
    /// Bytes from the peer.
    pub private_data: [u8; 256],
    /// Bytes used in `private_data`.
    pub private_data_len: u8,
    /// Must be 0.
    pub reserved: [u8; 7],
}
layout!(UdParam, "struct rdma_ucm_ud_param", 304, {
    qp_num: 0, qkey: 4, ah_attr: 8, private_data: 40, private_data_len: 296, reserved: 297,
});

/// Vendor options agreed on while connecting.
#[doc(alias = "rdma_ucm_ece")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Ece {
    /// Vendor that defines `attr_mod`.
    pub vendor_id: u32,
    /// Options.
    pub attr_mod: u32,
}
layout!(Ece, "struct rdma_ucm_ece", 8, { vendor_id: 0, attr_mod: 4 });

/// Sends a connection request.
#[doc(alias = "rdma_ucm_connect")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connect {
    /// Parameters.
    pub conn_param: ConnParam,
    /// The kernel's number of the id.
    pub id: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Offered vendor options.
    pub ece: Ece,
}
layout!(Connect, "struct rdma_ucm_connect", 288, {
    conn_param: 0, id: 272, reserved: 276, ece: 280,
});

/// Starts to listen.
#[doc(alias = "rdma_ucm_listen")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Listen {
    /// The kernel's number of the id.
    pub id: u32,
    /// Requests that may wait unfetched.
    pub backlog: u32,
}
layout!(Listen, "struct rdma_ucm_listen", 8, { id: 0, backlog: 4 });

/// Accepts a request, or on the active side a response.
#[doc(alias = "rdma_ucm_accept")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Accept {
    /// Value of the caller for a new id, handed back in its events.
    pub uid: u64,
    /// Parameters.
    pub conn_param: ConnParam,
    /// The kernel's number of the id.
    pub id: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Accepted vendor options.
    pub ece: Ece,
}
layout!(Accept, "struct rdma_ucm_accept", 296, {
    uid: 0, conn_param: 8, id: 280, reserved: 284, ece: 288,
});

/// Rejects a request or a response.
#[doc(alias = "rdma_ucm_reject")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reject {
    /// The kernel's number of the id.
    pub id: u32,
    /// Bytes used in `private_data`.
    pub private_data_len: u8,
    /// Reason sent to the peer; 0 means consumer defined.
    pub reason: u8,
    /// Must be 0.
    pub reserved: [u8; 2],
    /// Bytes for the peer.
    pub private_data: [u8; 256],
}
layout!(Reject, "struct rdma_ucm_reject", 264, {
    id: 0, private_data_len: 4, reason: 5, reserved: 6, private_data: 8,
});

/// Disconnects.
#[doc(alias = "rdma_ucm_disconnect")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Disconnect {
    /// The kernel's number of the id.
    pub id: u32,
}
layout!(Disconnect, "struct rdma_ucm_disconnect", 4, { id: 0 });

zeroed_default!(ConnParam, UdParam, Connect, Accept, Reject);
