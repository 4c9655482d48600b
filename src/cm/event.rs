//! What the connection manager reports.

use rdmacm_kernel_abi::ucma;

use super::peer_data::{self, ConnectionData, DatagramPeer};
use super::{Address, CmId, Ece, RejectReason, Status};
use crate::error::{Error, ErrorKind};

/// Something that happened to an id.
///
/// There is nothing to acknowledge: an event may be kept or dropped at any time, and no call waits
/// for that.
#[doc(alias("rdma_cm_event", "rdma_cm_event_type", "rdma_ack_cm_event"))]
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The address was resolved and the id has a device (`ADDR_RESOLVED`).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved(IdEvent),
    /// The address could not be resolved, or no RDMA device leads there (`ADDR_ERROR`).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError(IdEvent),
    /// The route was resolved; the id can connect (`ROUTE_RESOLVED`).
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved(IdEvent),
    /// No route was found (`ROUTE_ERROR`).
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError(IdEvent),
    /// A peer wants to connect to a listening id (`CONNECT_REQUEST`). C's `event->id` is
    /// [`ConnectRequest::id`] here, `event->listen_id` is [`ConnectRequest::listener`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(ConnectRequest),
    /// A peer wanted to connect to a listening id, and its request could not be taken over, for want
    /// of memory or descriptors on this side for example. The peer is rejected, and the listener goes
    /// on. [`Event::into_error`] tells why.
    RequestLost(IdEvent),
    /// The peer accepted, and the id has no queue pair of its own: move the program's own to RTS
    /// ([`CmId::init_qp_attr`]) and finish with [`CmId::establish`], or destroy the id
    /// (`CONNECT_RESPONSE`). Not on iWARP, where the kernel makes the whole handshake.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(IdEvent),
    /// Connecting failed on this side (`CONNECT_ERROR`).
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError(IdEvent),
    /// The peer does not answer (`UNREACHABLE`). On an established id it can also mean that the
    /// peer's link address changed, after which the connection goes on.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable(IdEvent),
    /// The peer rejected the connection, or nobody listens there (`REJECTED`). The id's queue pair
    /// is in the error state by then, so that what was posted is flushed. On iWARP there is no reason,
    /// only [`Status::Errno`] with `ECONNRESET`, and where nobody listens [`CmId::connect`] itself
    /// fails.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected(IdEvent),
    /// The connection is made; the queue pair can send (`ESTABLISHED`), on the accepting side of an
    /// iWARP connection after a message of the peer's ([`CmId::accept`]). For datagrams: the peer has
    /// told its queue pair ([`IdEvent::datagram`]), on the asking side only.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(IdEvent),
    /// The connection ended (`DISCONNECTED`). On RoCE the queue pair is moved to the error state by
    /// [`CmId::disconnect`] only; on iWARP the kernel has moved it. A status says that the peer did
    /// not answer the disconnect.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected(IdEvent),
    /// The device was removed: destroy the id and all that was made on the device
    /// (`DEVICE_REMOVAL`). Kernels 6.1 and 6.12 may report the removal of an rxe device only when
    /// the last [`Context`](crate::Context) of it is closed.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoval(IdEvent),
    /// The network interface's address changed (`ADDR_CHANGE`).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddressChange(IdEvent),
    /// The queue pair of a closed connection may be used again (`TIMEWAIT_EXIT`). Not on iWARP.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit(IdEvent),
    /// The id has joined a multicast group (`MULTICAST_JOIN`). [`IdEvent::datagram`] has the way to
    /// the group. The id's queue pair is attached to it, if there is one that receives.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined {
        /// The group, as it was given to [`CmId::join_multicast`].
        group: Address,
        /// What all events have.
        event: IdEvent,
    },
    /// The id could not join a multicast group, or was thrown out of it (`MULTICAST_ERROR`).
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError {
        /// The group, as it was given to [`CmId::join_multicast`].
        group: Address,
        /// What all events have.
        event: IdEvent,
    },
    /// The names were looked up: [`CmId::query_addrinfo`] has what was found
    /// (`ADDRINFO_RESOLVED`).
    #[doc(alias("RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_INTERNAL"))]
    AddrInfoResolved(IdEvent),
    /// The names could not be looked up (`ADDRINFO_ERROR`).
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_ERROR")]
    AddrInfoError(IdEvent),
    /// What [`CmId::write_user_event`] wrote (`USER`).
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User {
        /// The argument that was given there.
        argument: u64,
        /// What all events have.
        event: IdEvent,
    },
    /// Any other event.
    Other {
        /// The kernel's number of the event.
        kind: u32,
        /// What all events have.
        event: IdEvent,
    },
}

/// The content of an event: whom it is about and what came with it.
#[derive(Debug)]
pub struct IdEvent {
    pub(super) id: CmId,
    pub(super) status: Status,
    pub(super) connection: ConnectionData,
    pub(super) datagram: Option<DatagramPeer>,
    /// The peer's vendor options.
    pub(super) ece: Option<Ece>,
    /// The number that a user event carries.
    pub(super) argument: u64,
    /// What failed on this side, if it was this side.
    pub(super) cause: Option<Error>,
}

/// A peer's request to connect: a new id, and the listener that it came to.
///
/// The new id is answered by [`CmId::accept`] or [`CmId::reject`]. Dropping its last handle rejects
/// the peer.
#[derive(Debug)]
pub struct ConnectRequest {
    pub(super) listener: CmId,
    pub(super) id: CmId,
    pub(super) connection: ConnectionData,
}

impl IdEvent {
    pub(super) fn new(id: CmId, raw: &ucma::EventResp, is_datagram: bool) -> Self {
        let (connection, datagram) = peer_data::of_event(raw, is_datagram);
        Self {
            id,
            status: Status::from_kernel(raw.status),
            connection,
            datagram,
            ece: Ece::from_kernel(raw.ece),
            argument: raw.arg(),
            cause: None,
        }
    }

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

    /// Where datagrams go: to the peer that accepted, or to the group that was joined. `None` for
    /// other events and for ids with connections.
    pub fn datagram(&self) -> Option<&DatagramPeer> {
        self.datagram.as_ref()
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

/// Status of the answer to a request for datagrams.
const NOBODY_LISTENS: u32 = 1;

/// What siw's refusal to complete a connection comes of: it takes what comes right behind the peer's
/// answer for a part of that, and too much.
const INTERRUPTED: &str = "; over iWARP, because the peer sent something before it had heard anything \
                           (the side that connects speaks first)";

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
            E::ADDRINFO_RESOLVED => Self::AddrInfoResolved(event),
            E::ADDRINFO_ERROR => Self::AddrInfoError(event),
            E::USER => Self::User {
                argument: event.argument,
                event,
            },
            E(kind) => Self::Other { kind, event },
        }
    }

    /// The id that the event is about; for a request the listening one (C's `event->id` is the new
    /// one: [`ConnectRequest::id`]).
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
            | Self::RequestLost(event)
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
            | Self::AddrInfoResolved(event)
            | Self::AddrInfoError(event)
            | Self::MulticastJoined { event, .. }
            | Self::MulticastError { event, .. }
            | Self::User { event, .. }
            | Self::Other { event, .. } => Ok(event),
        }
    }

    /// How the step that the event reports ended.
    pub fn status(&self) -> Status {
        self.content().map_or(Status::Success, IdEvent::status)
    }

    /// The event's name in the C library, without the prefix; `REQUEST_LOST` is one of our own.
    #[doc(alias = "rdma_event_str")]
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddressResolved(_) => "ADDR_RESOLVED",
            Self::AddressError(_) => "ADDR_ERROR",
            Self::RouteResolved(_) => "ROUTE_RESOLVED",
            Self::RouteError(_) => "ROUTE_ERROR",
            Self::ConnectRequest(_) => "CONNECT_REQUEST",
            Self::RequestLost(_) => "REQUEST_LOST",
            Self::ConnectResponse(_) => "CONNECT_RESPONSE",
            Self::ConnectError(_) => "CONNECT_ERROR",
            Self::Unreachable(_) => "UNREACHABLE",
            Self::Rejected(_) => "REJECTED",
            Self::Established(_) => "ESTABLISHED",
            Self::Disconnected(_) => "DISCONNECTED",
            Self::DeviceRemoval(_) => "DEVICE_REMOVAL",
            Self::AddressChange(_) => "ADDR_CHANGE",
            Self::TimewaitExit(_) => "TIMEWAIT_EXIT",
            Self::MulticastJoined { .. } => "MULTICAST_JOIN",
            Self::MulticastError { .. } => "MULTICAST_ERROR",
            Self::AddrInfoResolved(_) => "ADDRINFO_RESOLVED",
            Self::AddrInfoError(_) => "ADDRINFO_ERROR",
            Self::User { .. } => "USER",
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
            // For datagrams the answers to a request have numbers of their own.
            (Self::Unreachable(_), Status::Rejected(RejectReason(NOBODY_LISTENS))) => described
                .of_kind(ErrorKind::Rejected)
                .because("nobody listens on that port"),
            (Self::Unreachable(_), Status::Rejected(RejectReason(reason))) => described
                .of_kind(ErrorKind::Rejected)
                .because(format!("the peer rejected the request (status {reason})")),
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
            (Self::MulticastError { group, .. }, Status::Errno(_)) => {
                described.because(format!("the group {group} could not be joined"))
            }
            (Self::ConnectError(_), Status::Errno(errno)) => {
                let reason = described.explanation().to_owned();
                let hint = match errno {
                    libc::EINVAL => INTERRUPTED,
                    _ => "",
                };
                described.because(format!(
                    "the connection could not be completed: {reason}{hint}"
                ))
            }
            _ => described,
        }
    }
}
