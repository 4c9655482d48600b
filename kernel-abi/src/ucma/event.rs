//! Events.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ConnParam, Ece, HEADER, UdParam};

// No kernel header names the event numbers, the library's does.
mod numbers {
    const HEADER: &str = "rdma/rdma_cma.h";

    open_enum! {
        /// What happened.
        pub struct EventType(u32), "RDMA_CM_EVENT_" {
            /// The address is resolved.
            ADDR_RESOLVED = 0,
            /// The address could not be resolved.
            ADDR_ERROR = 1,
            /// The route is resolved.
            ROUTE_RESOLVED = 2,
            /// The route could not be resolved.
            ROUTE_ERROR = 3,
            /// A peer wants to connect; the event brings a new id.
            CONNECT_REQUEST = 4,
            /// The peer accepted and waits for the active side to do so too.
            CONNECT_RESPONSE = 5,
            /// Connecting failed.
            CONNECT_ERROR = 6,
            /// The peer does not answer.
            UNREACHABLE = 7,
            /// The peer rejected.
            REJECTED = 8,
            /// The connection is established.
            ESTABLISHED = 9,
            /// The connection ended.
            DISCONNECTED = 10,
            /// The device is going away.
            DEVICE_REMOVAL = 11,
            /// The multicast group is joined.
            MULTICAST_JOIN = 12,
            /// The multicast group could not be joined, or was lost.
            MULTICAST_ERROR = 13,
            /// The hardware address behind the local address changed.
            ADDR_CHANGE = 14,
            /// The queue pair may be reused.
            TIMEWAIT_EXIT = 15,
            /// A service is resolved.
            ADDRINFO_RESOLVED = 16,
            /// A service could not be resolved.
            ADDRINFO_ERROR = 17,
            /// Written by a user of the id, see [`WriteCmEvent`](super::WriteCmEvent).
            USER = 18,
            /// Written by the library itself.
            INTERNAL = 19,
        }
    }
}
pub use numbers::EventType;

/// Fetches the next event.
#[doc(alias = "rdma_ucm_get_event")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct GetEvent {
    /// Address of the buffer that receives the answer.
    pub response: u64,
}
layout!(GetEvent, "struct rdma_ucm_get_event", 8, { response: 0 });

/// One event.
#[doc(alias = "rdma_ucm_event_resp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct EventResp {
    /// Value given for the id; for a connection request the listener's.
    pub uid: u64,
    /// Number of the id; for a connection request of the new one.
    pub id: u32,
    /// An [`EventType`].
    pub event: u32,
    /// Negative errno, or reason of a rejection; signed.
    pub status: u32,
    /// [`ConnParam`], [`UdParam`] or an argument, see the methods. Not 8-aligned.
    pub param: [u32; 76],
    /// Unused.
    pub reserved: u32,
    /// The peer's vendor options.
    pub ece: Ece,
}
layout!(EventResp, "struct rdma_ucm_event_resp", 336, {
    uid: 0, id: 8, event: 12, status: 16, param: 20, reserved: 324, ece: 328,
});

impl EventResp {
    /// The event's number.
    pub const fn event_type(&self) -> EventType {
        EventType(self.event)
    }

    /// `param` of an event of a connected id.
    pub fn conn(&self) -> &ConnParam {
        let bytes = self.param.as_bytes();
        ConnParam::ref_from_prefix(bytes)
            .expect("param is larger and as aligned")
            .0
    }

    /// `param` of an event of a datagram id.
    pub fn ud(&self) -> &UdParam {
        UdParam::ref_from_bytes(self.param.as_bytes()).expect("param is as large and aligned")
    }

    /// `param` of a [`EventType::USER`] or [`EventType::INTERNAL`] event.
    pub fn arg(&self) -> u64 {
        u64::read_from_prefix(self.param.as_bytes())
            .expect("param is larger")
            .0
    }
}

/// Queues an event for an id.
#[doc(alias = "rdma_ucm_write_cm_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteCmEvent {
    /// The kernel's number of the id.
    pub id: u32,
    /// Must be 0.
    pub reserved: u32,
    /// [`EventType::USER`] or [`EventType::INTERNAL`].
    pub event: u32,
    /// Status of the event; signed.
    pub status: u32,
    /// The argument in the first 8 bytes, else 0.
    pub param: [u32; 76],
}
layout!(WriteCmEvent, "struct rdma_ucm_write_cm_event", 320, {
    id: 0, reserved: 4, event: 8, status: 12, param: 16,
});

zeroed_default!(EventResp, WriteCmEvent);
