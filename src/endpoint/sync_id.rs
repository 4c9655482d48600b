//! Ids that wait for their steps.

use std::time::Duration;

use super::sync_queues::Queues;
use crate::cm::{
    Address, CmId, ConnParam, ConnectionData, DatagramPeer, Event, EventChannel, Membership,
    PortSpace, Status,
};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::QpType;
use crate::sys::Deadline;
use crate::verbs::{Pd, QpAttr};

/// An id without an event channel to care for: each call returns when its step is done, and fails
/// when the step has failed, whatever event says so.
///
/// This is what the C library makes of an id that is created without a channel, with the helpers of
/// `rdma/rdma_verbs.h` as methods. Programs that need not follow a C program step by step are
/// shorter with [`Connector`](super::Connector) and [`Listener`](super::Listener).
///
/// Calls wait for ever unless [`SyncId::set_timeout`] limits them; another thread ends them by
/// destroying the id ([`SyncId::id`]).
///
/// An id holds two file descriptors, and one more for each completion queue that is made for it:
/// four in all, as a rule. For many clients raise `ulimit -n`, or have their ids on one
/// [`EventChannel`] with completion queues that they share.
///
/// ```no_run
/// use std::net::SocketAddr;
/// use std::time::Duration;
/// use rdmacm::{ConnParam, PortSpace, QpAttr, SendFlags, SyncId};
///
/// let server: SocketAddr = "10.0.0.1:7471".parse().unwrap();
/// let mut id = SyncId::create(PortSpace::Tcp)?;
/// id.resolve_addr(None, server, Duration::from_secs(2))?;
/// id.resolve_route(Duration::from_secs(2))?;
/// id.create_qp(&QpAttr::default().max_inline_data(16))?;
/// id.connect(&ConnParam::new())?;
/// id.post_send_inline(1, b"hello", SendFlags::SIGNALED)?;
/// id.send_completion()?.result()?;
/// id.disconnect()?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[doc(alias = "rdma_cm_id")]
#[derive(Debug)]
pub struct SyncId {
    // The id goes first, and takes its queue pair along.
    pub(super) id: CmId,
    pub(super) channel: EventChannel,
    pub(super) timeout: Option<Duration>,
    pub(super) queues: Queues,
    /// What the queue pairs of a listener's connections are made of.
    pub(super) request_attr: Option<QpAttr<'static>>,
    /// What stands before the private data of a connect.
    pub(super) connect_data: Vec<u8>,
    /// What the peer said last: its request, its answer or its rejection.
    connection: Option<ConnectionData>,
    datagram: Option<DatagramPeer>,
    /// The id is somebody else's from now on.
    is_handed_over: bool,
    /// Why the connection is over.
    pub(super) ended: Option<(ErrorKind, &'static str)>,
}

impl SyncId {
    /// Makes an id.
    ///
    /// # Errors
    ///
    /// As [`EventChannel::open`] and [`EventChannel::create_id`].
    #[doc(alias = "rdma_create_id")]
    pub fn create(port_space: PortSpace) -> Result<Self> {
        Self::create_for(port_space, port_space.qp_type())
    }

    /// As [`SyncId::create`], with another kind of queue pair.
    ///
    /// # Errors
    ///
    /// As [`SyncId::create`].
    pub fn create_for(port_space: PortSpace, qp_type: QpType) -> Result<Self> {
        let channel = EventChannel::open()?;
        let id = channel.create_id_for(port_space, qp_type)?;
        Ok(Self::new(channel, id))
    }

    fn new(channel: EventChannel, id: CmId) -> Self {
        id.own_channel();
        Self {
            ended: id
                .is_over()
                .then_some((ErrorKind::Disconnected, "the connection ended")),
            id,
            channel,
            timeout: None,
            queues: Queues::default(),
            request_attr: None,
            connect_data: Vec::new(),
            connection: None,
            datagram: None,
            is_handed_over: false,
        }
    }

    /// Takes an id over from its channel. Its events that wait come along; one that was read there
    /// already is not waited for again. A queue pair of the id stays with the handle that
    /// [`CmId::create_qp`] gave.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left, or the id was destroyed.
    #[doc(alias = "rdma_migrate_id")]
    pub fn from_id(id: CmId) -> Result<Self> {
        let channel = EventChannel::open()?;
        id.migrate(&channel)?;
        Ok(Self::new(channel, id))
    }

    /// Hands the id and its queues over to a channel, where its events are read from now on. An
    /// event that a call of this type has waited for does not come again.
    ///
    /// # Errors
    ///
    /// When the id was destroyed; it is gone then in any case.
    #[doc(alias = "rdma_migrate_id")]
    pub fn into_id(mut self, channel: &EventChannel) -> Result<(CmId, Queues)> {
        self.id.move_to(channel)?;
        self.is_handed_over = true;
        Ok((self.id.clone(), std::mem::take(&mut self.queues)))
    }

    /// The id, for its options, its addresses and all else that does not wait.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// How long each later call may wait in all; for ever with `None`, as at the beginning. A call
    /// that ran out of time has not ended the step it waited for.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// What the peer said last: in its request, in its answer or in its rejection.
    pub fn connection(&self) -> Option<&ConnectionData> {
        self.connection.as_ref()
    }

    /// Where datagrams to the peer go, after a connect.
    pub fn datagram(&self) -> Option<&DatagramPeer> {
        self.datagram.as_ref()
    }

    /// The protection domain that the id's queue pair is made in unless told otherwise.
    ///
    /// # Errors
    ///
    /// As [`CmId::protection_domain`].
    pub fn protection_domain(&self) -> Result<Pd> {
        self.id.protection_domain()
    }

    /// As [`CmId::bind_addr`].
    ///
    /// # Errors
    ///
    /// As [`CmId::bind_addr`].
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, local: impl Into<Address>) -> Result<()> {
        self.id.bind_addr(local)
    }

    /// Finds the device and the local address that lead to `peer`.
    ///
    /// # Errors
    ///
    /// As [`CmId::resolve_addr`], and when no device leads there or nobody answers in time.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &mut self,
        source: Option<Address>,
        peer: impl Into<Address>,
        timeout: Duration,
    ) -> Result<()> {
        self.id.resolve_addr(source, peer, timeout)?;
        self.wait("resolve_addr", |event| {
            matches!(event, Event::AddressResolved(_))
        })
        .map(drop)
    }

    /// Finds the route.
    ///
    /// # Errors
    ///
    /// As [`CmId::resolve_route`], and when there is none.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&mut self, timeout: Duration) -> Result<()> {
        self.id.resolve_route(timeout)?;
        self.wait("resolve_route", |event| {
            matches!(event, Event::RouteResolved(_))
        })
        .map(drop)
    }

    /// As [`CmId::listen`].
    ///
    /// # Errors
    ///
    /// As [`CmId::listen`].
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        self.id.listen(backlog)
    }

    /// Says what the queue pairs of the connections to come are made of: [`SyncId::get_request`]
    /// makes one for each, with completion queues of its own. Attributes that name objects of the
    /// program's do not live long enough for this: without request attributes `get_request` makes
    /// no queue pair, and [`SyncId::create_qp`] makes it on the id that it returns.
    pub fn set_request_attr(&mut self, attr: QpAttr<'static>) {
        self.request_attr = Some(attr);
    }

    /// Waits for a peer's request and returns its id, which has a channel of its own and waits as
    /// this one does. Several threads may wait: each request goes to one of them. Dropping the id
    /// rejects the peer.
    ///
    /// # Errors
    ///
    /// An id that does not listen; the removal of its device; a request that could not be taken over,
    /// or whose queue pair cannot be made: that peer is rejected, and the listener goes on.
    #[doc(alias = "rdma_get_request")]
    pub fn get_request(&self) -> Result<Self> {
        let operation = "get_request";
        if !self.id.is_listening() {
            return Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "the id does not listen",
            ));
        }
        let deadline = Deadline::after(self.timeout);
        let request = loop {
            match self.next(operation, deadline)? {
                Event::ConnectRequest(request) => break request,
                event @ Event::DeviceRemoval(_) => {
                    // For all that wait: there is one event.
                    self.channel.close();
                    return Err(event.into_error(operation));
                }
                event @ Event::RequestLost(_) => return Err(event.into_error(operation)),
                // Of requests that were dropped between their arrival and their answer.
                _ => {}
            }
        };
        let mut new = Self::from_id(request.id().clone())?;
        new.timeout = self.timeout;
        new.connection = Some(request.connection().clone());
        if let Some(attr) = &self.request_attr {
            new.create_qp(attr)?;
        }
        Ok(new)
    }

    /// Connects with the peer, or asks a peer for datagrams ([`SyncId::datagram`] is the way
    /// there). With a queue pair that `param` names it returns when the peer has answered; move
    /// that to RTS and call [`CmId::establish`].
    ///
    /// # Errors
    ///
    /// As [`CmId::connect`], rejection, and a peer that does not answer.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&mut self, param: &ConnParam) -> Result<()> {
        if self.connect_data.is_empty() {
            self.id.connect(param)?;
        } else {
            self.id.connect(&param.after(&self.connect_data)?)?;
        }
        let wanted =
            |event: &Event| matches!(event, Event::Established(_) | Event::ConnectResponse(_));
        let event = self.wait("connect", wanted)?;
        self.connection = event.content().map(|answer| answer.connection().clone());
        Ok(())
    }

    /// Accepts the peer's request and waits until the connection is made; for datagrams it does not
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`CmId::accept`], and when the peer has given up.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&mut self, param: &ConnParam) -> Result<()> {
        self.id.accept(param)?;
        if self.id.qp_type() == QpType::Ud {
            return Ok(());
        }
        self.wait("accept", |event| matches!(event, Event::Established(_)))
            .map(drop)
    }

    /// As [`CmId::reject`]; there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// As [`CmId::reject`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.id.reject(private_data)
    }

    /// Ends the connection and waits until the peer has ended it as well. It does not wait when the
    /// peer ended it before, nor for a connection that was never made.
    ///
    /// # Errors
    ///
    /// An id that never asked for a connection nor accepted one; a peer that does not answer: the
    /// connection is over all the same.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self) -> Result<()> {
        self.id.disconnect()?;
        // The kernel says nothing of the end of what never began.
        if !self.id.is_connected() || self.id.qp_type() == QpType::Ud {
            return Ok(());
        }
        let event = self.wait("disconnect", |event| {
            matches!(event, Event::Disconnected(_))
        })?;
        match event.status() {
            Status::Success => Ok(()),
            _ => Err(event.into_error("disconnect")),
        }
    }

    /// Joins a multicast group, and returns the way there.
    ///
    /// # Errors
    ///
    /// As [`CmId::join_multicast`], and when joining fails.
    #[doc(alias("rdma_join_multicast", "rdma_join_multicast_ex"))]
    pub fn join_multicast(
        &mut self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<DatagramPeer> {
        let (operation, address) = ("join_multicast", group.into());
        self.id.join_multicast(address, membership)?;
        let is_ours = |event: &Event| match event {
            Event::MulticastJoined { group, .. } | Event::MulticastError { group, .. } => {
                *group == address
            }
            _ => false,
        };
        let joined = self.wait(operation, is_ours).and_then(|event| {
            let way = event.content().and_then(|event| event.datagram().copied());
            match (&event, way) {
                (Event::MulticastJoined { .. }, Some(way)) => Ok(way),
                _ => Err(event.into_error(operation)),
            }
        });
        if joined.is_err() {
            self.id.unjoin(&address);
        }
        joined
    }

    /// As [`CmId::leave_multicast`].
    ///
    /// # Errors
    ///
    /// As [`CmId::leave_multicast`].
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: impl Into<Address>) -> Result<bool> {
        self.id.leave_multicast(group)
    }

    /// Destroys the queue pair, then the id. Completion queues and shared receive queue go with
    /// this value.
    ///
    /// # Errors
    ///
    /// As [`CmId::destroy`].
    #[doc(alias("rdma_destroy_id", "rdma_destroy_ep"))]
    pub fn destroy(self) -> Result<()> {
        self.id.destroy()
    }

    /// Reads an event that no call waits for: one of the program's own
    /// ([`CmId::write_user_event`]), which the waiting calls skip, or one that came along with
    /// [`SyncId::from_id`]. Waits for it as long as `timeout` allows, for ever with `None`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when none came in time, [`ErrorKind::Destroyed`] when another thread
    /// has destroyed the id.
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Event> {
        let event = self.channel.next_event(timeout);
        let event = event.map_err(|error| explain(&self.id, "next_event", error))?;
        self.note(&event);
        Ok(event)
    }

    /// Waits for the event that ends a step; any other that matters is an error.
    pub(super) fn wait(
        &mut self,
        operation: &'static str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        let deadline = Deadline::after(self.timeout);
        loop {
            let event = self.next(operation, deadline)?;
            self.note(&event);
            match event {
                event if wanted(&event) => return Ok(event),
                // Of the program, of another group, of a peer's new link address.
                Event::User { .. }
                | Event::MulticastJoined { .. }
                | Event::MulticastError { .. } => {}
                Event::Unreachable(_) if self.id.is_connected() => {}
                event => return Err(event.into_error(operation)),
            }
        }
    }

    /// Keeps what later calls want to know of an event.
    pub(super) fn note(&mut self, event: &Event) {
        if let Some(content) = event.content() {
            // Most events bring nothing from the peer.
            if !content.connection().private_data.is_empty() {
                self.connection = Some(content.connection().clone());
            }
        }
        if let Event::Established(event) = event {
            self.datagram = event.datagram().copied().or(self.datagram);
        }
        let ended = match event {
            Event::Disconnected(_) => (ErrorKind::Disconnected, "the connection ended"),
            Event::Rejected(_) => (ErrorKind::Rejected, "the connection was rejected"),
            Event::ConnectError(_) => (ErrorKind::Disconnected, "the connection failed"),
            Event::Unreachable(_) if self.id.is_over() => {
                (ErrorKind::Unreachable, "the peer did not answer")
            }
            Event::DeviceRemoval(_) => (ErrorKind::DeviceRemoved, "the RDMA device was removed"),
            _ => return,
        };
        self.ended = Some(ended);
    }

    fn next(&self, operation: &'static str, deadline: Deadline) -> Result<Event> {
        let event = self.channel.next_news(operation, deadline);
        event.map_err(|error| explain(&self.id, operation, error))
    }
}

impl Drop for SyncId {
    fn drop(&mut self) {
        if !self.is_handed_over {
            // Somebody may hold another handle of the id; the connection ends all the same.
            let _ = self.id.destroy();
        }
    }
}

/// The channel is closed by the id's end, or by its device's.
pub(super) fn explain(id: &CmId, operation: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed if id.is_removed() => Error::new(
            operation,
            ErrorKind::DeviceRemoved,
            "the RDMA device was removed; destroy the id",
        ),
        ErrorKind::Closed => Error::new(operation, ErrorKind::Destroyed, "the id was destroyed"),
        _ => error,
    }
}
