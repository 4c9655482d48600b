//! What the connection manager reports.

use std::fmt;

use rdmacm_kernel_abi::ucma;

use super::CmId;
use super::conn_param::Offer;
use crate::error::{Error, ErrorKind};

/// Something that happened to an id.
///
/// There is nothing to acknowledge: an event may be kept or dropped at any time, and no call waits
/// for that.
#[doc(alias("rdma_cm_event", "rdma_cm_event_type"))]
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The address was resolved and the id has a device (`ADDR_RESOLVED`).
    AddressResolved(IdEvent),
    /// The address could not be resolved, or no RDMA device leads there (`ADDR_ERROR`).
    AddressError(IdEvent),
    /// The route was resolved; the id can connect (`ROUTE_RESOLVED`).
    RouteResolved(IdEvent),
    /// No route was found (`ROUTE_ERROR`).
    RouteError(IdEvent),
    /// A peer wants to connect to a listening id (`CONNECT_REQUEST`).
    ConnectRequest(ConnectRequest),
    /// The peer accepted, and the id has no queue pair (any more) that could be used: destroy the id
    /// (`CONNECT_RESPONSE`).
    ConnectResponse(IdEvent),
    /// Connecting failed on this side (`CONNECT_ERROR`).
    ConnectError(IdEvent),
    /// The peer does not answer (`UNREACHABLE`). On an established id it can also mean that the
    /// peer's link address changed, after which the connection goes on.
    Unreachable(IdEvent),
    /// The peer rejected the connection, or nobody listens there (`REJECTED`).
    Rejected(IdEvent),
    /// The connection is made; the queue pair can send (`ESTABLISHED`).
    Established(IdEvent),
    /// The connection ended (`DISCONNECTED`). The queue pair is moved to the error state by
    /// [`CmId::disconnect`] only. A status says that the peer did not answer the disconnect.
    Disconnected(IdEvent),
    /// The device was removed: destroy the id and all that was made on the device
    /// (`DEVICE_REMOVAL`). Kernels 6.1 and 6.12 may report the removal of an rxe device only when
    /// the last [`Context`](crate::Context) of it is closed.
    DeviceRemoval(IdEvent),
    /// The network interface's address changed (`ADDR_CHANGE`).
    AddressChange(IdEvent),
    /// The queue pair of a closed connection may be used again (`TIMEWAIT_EXIT`).
    TimewaitExit(IdEvent),
    /// Any other event.
    Other {
        /// The kernel's number of the event.
        kind: u32,
        /// The rest of it.
        event: IdEvent,
    },
}

/// The content of an event: whom it is about and what came with it.
#[derive(Debug)]
pub struct IdEvent {
    pub(super) id: CmId,
    pub(super) status: Status,
    pub(super) connection: ConnectionData,
    /// What failed on this side, if it was this side.
    pub(super) cause: Option<Error>,
}

/// A peer's request to connect.
///
/// The new id is answered by [`CmId::accept`] or [`CmId::reject`]. Dropping its last handle rejects
/// the peer.
#[derive(Debug)]
pub struct ConnectRequest {
    pub(super) listener: CmId,
    pub(super) id: CmId,
    pub(super) connection: ConnectionData,
}

/// What the peer said in its part of the connection's making.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionData {
    /// Private data, at least what the peer passed: on InfiniBand and RoCE it is padded with zeros
    /// to what the message holds (56 bytes in a request, 196 in an acceptance, 148 in a
    /// rejection). A protocol has to delimit its data itself.
    pub private_data: Vec<u8>,
    /// Number of the peer's queue pair.
    pub qp_num: u32,
    /// Reads and atomics of the peer that may be answered at a time, seen from this side.
    pub responder_resources: u8,
    /// Reads and atomics of this side that may be under way at a time.
    pub initiator_depth: u8,
    /// Whether the peer's hardware has flow control.
    pub flow_control: bool,
    /// Retries that the peer asks for.
    pub retry_count: u8,
    /// Retries that the peer grants this side's requests when it has no receive posted.
    pub rnr_retry_count: u8,
}

impl ConnectionData {
    pub(super) fn from_kernel(param: &ucma::ConnParam) -> Self {
        let length = usize::from(param.private_data_len);
        Self {
            private_data: param.private_data[..length].to_vec(),
            qp_num: param.qp_num,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control != 0,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
        }
    }

    pub(super) fn offer(&self) -> Offer {
        Offer {
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
        }
    }
}

/// How the step that an event reports ended.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Well.
    Success,
    /// With this errno (positive).
    Errno(i32),
    /// With a reason that came over the wire.
    Rejected(RejectReason),
}

impl Status {
    /// The kernel gives negative errnos and positive reasons in one number.
    pub(super) fn from_kernel(status: u32) -> Self {
        match status.cast_signed() {
            0 => Self::Success,
            errno @ i32::MIN..0 => Self::Errno(errno.saturating_neg()),
            reason => Self::Rejected(RejectReason(reason.cast_unsigned())),
        }
    }
}

/// Why a connection was rejected, as the InfiniBand specification numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u32);

impl RejectReason {
    /// Nobody listens on the port.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The peer still has a connection with this queue pair number.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The peer's program rejected, or ended before it answered.
    pub const CONSUMER_DEFINED: Self = Self(28);
    /// The vendor options of the two sides do not fit.
    pub const VENDOR_OPTION_NOT_SUPPORTED: Self = Self(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_SERVICE_ID => f.write_str("nobody listens on that port"),
            Self::STALE_CONNECTION => f.write_str("the peer still holds an earlier connection"),
            Self::CONSUMER_DEFINED => {
                f.write_str("the peer's program rejected the connection or ended")
            }
            Self::VENDOR_OPTION_NOT_SUPPORTED => f.write_str("vendor option not supported"),
            Self(reason) => write!(f, "reason {reason}"),
        }
    }
}

impl IdEvent {
    /// The id that the event is about.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// How the step ended.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What the peer said: of meaning when it accepted, and its private data when it rejected.
    pub fn connection(&self) -> &ConnectionData {
        &self.connection
    }
}

impl ConnectRequest {
    /// The id that listens.
    pub fn listener(&self) -> &CmId {
        &self.listener
    }

    /// The new id.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// The new id, for keeping.
    pub fn into_id(self) -> CmId {
        self.id
    }

    /// What the peer asks for.
    pub fn connection(&self) -> &ConnectionData {
        &self.connection
    }
}

impl Event {
    pub(super) fn new(kind: ucma::EventType, event: IdEvent) -> Self {
        use ucma::EventType as E;
        match kind {
            E::ADDR_RESOLVED => Self::AddressResolved(event),
            E::ADDR_ERROR => Self::AddressError(event),
            E::ROUTE_RESOLVED => Self::RouteResolved(event),
            E::ROUTE_ERROR => Self::RouteError(event),
            E::CONNECT_RESPONSE => Self::ConnectResponse(event),
            E::CONNECT_ERROR => Self::ConnectError(event),
            E::UNREACHABLE => Self::Unreachable(event),
            E::REJECTED => Self::Rejected(event),
            E::ESTABLISHED => Self::Established(event),
            E::DISCONNECTED => Self::Disconnected(event),
            E::DEVICE_REMOVAL => Self::DeviceRemoval(event),
            E::ADDR_CHANGE => Self::AddressChange(event),
            E::TIMEWAIT_EXIT => Self::TimewaitExit(event),
            E(kind) => Self::Other { kind, event },
        }
    }

    /// The id that the event is about; for a request the listening one.
    pub fn id(&self) -> &CmId {
        match self.parts() {
            Ok(event) => &event.id,
            Err(request) => &request.listener,
        }
    }

    /// The event's content, unless it is a request.
    pub fn content(&self) -> Option<&IdEvent> {
        self.parts().ok()
    }

    fn parts(&self) -> Result<&IdEvent, &ConnectRequest> {
        match self {
            Self::ConnectRequest(request) => Err(request),
            Self::AddressResolved(event)
            | Self::AddressError(event)
            | Self::RouteResolved(event)
            | Self::RouteError(event)
            | Self::ConnectResponse(event)
            | Self::ConnectError(event)
            | Self::Unreachable(event)
            | Self::Rejected(event)
            | Self::Established(event)
            | Self::Disconnected(event)
            | Self::DeviceRemoval(event)
            | Self::AddressChange(event)
            | Self::TimewaitExit(event)
            | Self::Other { event, .. } => Ok(event),
        }
    }

    /// How the step that the event reports ended.
    pub fn status(&self) -> Status {
        self.content().map_or(Status::Success, IdEvent::status)
    }

    /// The event's name in the C library, without the prefix.
    #[doc(alias = "rdma_event_str")]
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddressResolved(_) => "ADDR_RESOLVED",
            Self::AddressError(_) => "ADDR_ERROR",
            Self::RouteResolved(_) => "ROUTE_RESOLVED",
            Self::RouteError(_) => "ROUTE_ERROR",
            Self::ConnectRequest(_) => "CONNECT_REQUEST",
            Self::ConnectResponse(_) => "CONNECT_RESPONSE",
            Self::ConnectError(_) => "CONNECT_ERROR",
            Self::Unreachable(_) => "UNREACHABLE",
            Self::Rejected(_) => "REJECTED",
            Self::Established(_) => "ESTABLISHED",
            Self::Disconnected(_) => "DISCONNECTED",
            Self::DeviceRemoval(_) => "DEVICE_REMOVAL",
            Self::AddressChange(_) => "ADDR_CHANGE",
            Self::TimewaitExit(_) => "TIMEWAIT_EXIT",
            Self::Other { .. } => "UNKNOWN EVENT",
        }
    }

    /// The event as the error of an operation that waited for another one.
    pub fn into_error(self, operation: &'static str) -> Error {
        if let Some(cause) = self.content().and_then(|event| event.cause.as_ref()) {
            return cause.clone().within(operation);
        }
        let status = self.status();
        let described = match status {
            Status::Errno(errno) => Error::from_errno(operation, errno),
            Status::Success | Status::Rejected(_) => Error::new(
                operation,
                ErrorKind::Protocol,
                format!("unexpected {}", self.name()),
            ),
        };
        match (&self, status) {
            (Self::Rejected(_), Status::Rejected(reason)) => described
                .of_kind(ErrorKind::Rejected)
                .because(format!("the connection was rejected: {reason}")),
            (Self::Rejected(_), _) => described
                .of_kind(ErrorKind::Rejected)
                .because("the connection was rejected"),
            (Self::Unreachable(_), _) => described
                .of_kind(ErrorKind::Unreachable)
                .because("the peer does not answer, or nobody listens there"),
            (Self::Disconnected(_), _) => described
                .of_kind(ErrorKind::Disconnected)
                .because("the connection ended"),
            (Self::DeviceRemoval(_), _) => described
                .of_kind(ErrorKind::DeviceRemoved)
                .because("the RDMA device was removed; destroy the id"),
            (Self::AddressError(event), Status::Errno(errno)) => {
                super::explain::address_error(described, errno, &event.id)
            }
            (Self::RouteError(_), Status::Errno(_)) => {
                described.because("no route to the address was found on the RDMA device")
            }
            (Self::ConnectError(_), Status::Errno(_)) => {
                let reason = described.explanation().to_owned();
                described.because(format!("the connection could not be completed: {reason}"))
            }
            _ => described,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_normalised_once() {
        assert_eq!(Status::from_kernel(0), Status::Success);
        assert_eq!(Status::from_kernel((-110i32) as u32), Status::Errno(110));
        assert_eq!(
            Status::from_kernel(28),
            Status::Rejected(RejectReason::CONSUMER_DEFINED)
        );
        assert_eq!(
            Status::from_kernel(i32::MIN as u32),
            Status::Errno(i32::MAX)
        );
    }

    #[test]
    fn private_data_is_cut_to_its_length_and_never_beyond_the_record() {
        let mut param = ucma::ConnParam::default();
        param.private_data[..3].copy_from_slice(b"abc");
        param.private_data_len = 3;
        assert_eq!(ConnectionData::from_kernel(&param).private_data, b"abc");
        param.private_data_len = 255;
        assert_eq!(ConnectionData::from_kernel(&param).private_data.len(), 255);
    }
}
