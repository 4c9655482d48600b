//! Making a connection, step by step and without waiting: each step ends with an event.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use super::ending::of_violation;
use super::link::Link;
use super::protocol::{Hello, Violation};
use super::queues::{Queues, watched};
use super::settings::StreamSettings;
use crate::cm::{CmId, ConnectRequest, Event, EventChannel, PortSpace};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, Readiness};

/// The side that connects, on its way.
#[derive(Debug)]
pub(super) struct Connecting {
    channel: EventChannel,
    id: CmId,
    settings: StreamSettings,
    deadline: Deadline,
    /// Once the route is known.
    queues: Option<Queues>,
}

impl Connecting {
    /// Begins. The events that lead on are watched.
    pub(super) fn begin(
        peer: SocketAddr,
        settings: &StreamSettings,
        readiness: &Readiness,
    ) -> Result<Self> {
        let deadline = Deadline::after(Some(settings.connect_timeout));
        let channel = EventChannel::open()?;
        watch(readiness, &channel)?;
        let id = channel.create_id(PortSpace::Tcp)?;
        if let Some(type_of_service) = settings.type_of_service {
            id.set_type_of_service(type_of_service)?;
        }
        id.resolve_addr(settings.source.map(Into::into), peer, left(deadline))?;
        Ok(Self {
            channel,
            id,
            settings: settings.clone(),
            deadline,
            queues: None,
        })
    }

    pub(super) fn id(&self) -> &CmId {
        &self.id
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Goes on as far as events allow.
    ///
    /// # Errors
    ///
    /// What ended the attempt. Nothing is left of it.
    pub(super) fn advance(&mut self, readiness: &Readiness) -> Result<Option<Link>> {
        while let Some(event) = self.channel.try_next_event()? {
            match event {
                Event::AddressResolved(_) if !self.settings.route.is_empty() => {
                    self.id.set_path(&self.settings.route)?;
                }
                Event::AddressResolved(_) => self.id.resolve_route(left(self.deadline))?,
                Event::RouteResolved(_) => self.ask(readiness)?,
                Event::Established(established) => {
                    let hello = Hello::from_bytes(&established.connection().private_data)
                        .map_err(of_handshake)?;
                    let queues = self.queues.take().ok_or_else(out_of_turn)?;
                    return Ok(Some(Link::new(queues, hello)));
                }
                Event::AddressChange(_) | Event::TimewaitExit(_) => {}
                other => return Err(other.into_error("connect")),
            }
        }
        Ok(None)
    }

    fn ask(&mut self, readiness: &Readiness) -> Result<()> {
        let (channel, id) = (self.channel.clone(), self.id.clone());
        let queues = Queues::new(channel, id, &self.settings, readiness, true)?;
        let param = queues.conn_param(&self.settings)?;
        self.queues = Some(queues);
        self.id.connect(&param)
    }

    /// The error of an attempt that took too long.
    pub(super) fn timed_out(&self) -> Error {
        Error::timed_out("connect", self.settings.connect_timeout)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        // Those of a link keep the id.
        if self.queues.is_some() {
            let _ = self.id.destroy();
        }
    }
}

/// The side that accepts, on its way: it has said yes and waits for the peer to hear it.
#[derive(Debug)]
pub(super) struct Accepting {
    queues: Queues,
    peer: Hello,
    deadline: Deadline,
}

impl Accepting {
    /// Accepts a request, on a channel of its own. A peer that does not speak the protocol of streams
    /// is rejected.
    pub(super) fn begin(
        request: ConnectRequest,
        settings: &StreamSettings,
        readiness: &Readiness,
    ) -> Result<Self> {
        let deadline = Deadline::after(Some(settings.connect_timeout));
        // Dropping the request rejects the peer. Whatever it speaks, it is of no concern to who accepts.
        let peer = Hello::from_bytes(&request.connection().private_data).map_err(of_violation)?;
        let channel = EventChannel::open()?;
        watch(readiness, &channel)?;
        let id = request.into_id();
        id.migrate(&channel)?;
        let queues = Queues::new(channel, id, settings, readiness, false)?;
        queues.id.accept(&queues.conn_param(settings)?)?;
        Ok(Self {
            queues,
            peer,
            deadline,
        })
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Whether the peer has heard the answer.
    ///
    /// # Errors
    ///
    /// A peer that is gone.
    pub(super) fn is_heard(&self) -> Result<bool> {
        while let Some(event) = self.queues.channel.try_next_event()? {
            match event {
                Event::Established(_) => return Ok(true),
                Event::AddressChange(_) | Event::TimewaitExit(_) => {}
                other => return Err(other.into_error("accept")),
            }
        }
        Ok(false)
    }

    /// The connection, once the peer has heard the answer.
    pub(super) fn into_link(self) -> Link {
        Link::new(self.queues, self.peer)
    }
}

fn watch(readiness: &Readiness, channel: &EventChannel) -> Result<()> {
    readiness
        .watch(channel.as_fd(), watched::EVENT)
        .map_err(|error| Error::from_os("stream", &error))
}

/// What is left of the time, for the kernel, which wants at least a millisecond.
fn left(deadline: Deadline) -> Duration {
    deadline
        .remaining()
        .unwrap_or(Duration::MAX)
        .max(Duration::from_millis(1))
}

fn of_handshake(violation: Violation) -> Error {
    let error = of_violation(violation);
    match violation {
        Violation::Version(_) => error.of_kind(ErrorKind::NotSupported),
        _ => error,
    }
}

/// The kernel reports a connection that was not asked for.
fn out_of_turn() -> Error {
    Error::new(
        "connect",
        ErrorKind::Protocol,
        "the kernel reports a connection before it was asked for one",
    )
}
