//! The active side.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::prepared::{Prepared, Side};
use super::{Connection, Settings};
use crate::cm::{CmId, Event, EventChannel, PortSpace};
use crate::error::{Error, Result};
use crate::sys::Deadline;

/// Connects to listeners.
///
/// ```no_run
/// use std::time::Duration;
/// use rdmacm::Connector;
///
/// let mut connection = Connector::new().timeout(Duration::from_secs(2)).connect("10.0.0.1:7471")?;
/// connection.send(b"hello")?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Connector {
    settings: Settings,
    source: Option<SocketAddr>,
}

impl Connector {
    /// A connector with the default [`Settings`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses these settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How long making a connection may take; 10 seconds at first. Over iWARP a host that does not
    /// answer at all can take longer ([`CmId::connect`](crate::CmId::connect)).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings = self.settings.connect_timeout(timeout);
        self
    }

    /// Connects from this local address, which also chooses the device.
    pub fn source(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Connects; tries each address that a name has, and returns the last error when none answers.
    ///
    /// # Errors
    ///
    /// Names that do not resolve, addresses that no RDMA device leads to, nobody listening, no
    /// answer in time.
    #[doc(alias = "rdma_create_ep")]
    pub fn connect(&self, peer: impl ToSocketAddrs) -> Result<Connection> {
        self.each_address(peer, |peer, deadline| {
            self.prepare_one(peer, deadline)?.establish()
        })
    }

    /// As [`Connector::connect`], up to the handshake, so that receives can be posted before it.
    /// The first address that an RDMA device leads to is the one.
    ///
    /// # Errors
    ///
    /// As [`Connector::connect`], but for the peer's answer.
    pub fn prepare(&self, peer: impl ToSocketAddrs) -> Result<Prepared> {
        self.each_address(peer, |peer, deadline| self.prepare_one(peer, deadline))
    }

    fn each_address<T>(
        &self,
        peer: impl ToSocketAddrs,
        attempt: impl Fn(SocketAddr, Deadline) -> Result<T>,
    ) -> Result<T> {
        let deadline = Deadline::after(Some(self.settings.connect_timeout));
        try_each("connect", peer, |peer| attempt(peer, deadline))
    }

    /// How long making a connection may take.
    #[cfg(feature = "tokio")]
    pub(super) fn patience(&self) -> Duration {
        self.settings.connect_timeout
    }

    fn prepare_one(&self, peer: SocketAddr, deadline: Deadline) -> Result<Prepared> {
        let (channel, id) = self.ask(peer, deadline)?;
        let wanted = |event: &Event| matches!(event, Event::AddressResolved(_));
        channel.expect_by("resolve_addr", deadline, wanted)?;
        id.resolve_route(left(deadline))?;
        let wanted = |event: &Event| matches!(event, Event::RouteResolved(_));
        channel.expect_by("resolve_route", deadline, wanted)?;
        self.prepared(channel, id, deadline)
    }

    /// Makes an id whose address is being resolved.
    pub(super) fn ask(&self, peer: SocketAddr, deadline: Deadline) -> Result<(EventChannel, CmId)> {
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.resolve_addr(self.source.map(Into::into), peer, left(deadline))?;
        Ok((channel, id))
    }

    /// What a connection needs, on an id whose route is resolved.
    pub(super) fn prepared(
        &self,
        channel: EventChannel,
        id: CmId,
        deadline: Deadline,
    ) -> Result<Prepared> {
        Prepared::new(channel, id, &self.settings, Side::Active, deadline)
    }
}

/// What is left of the time, for the kernel, which wants at least a millisecond.
pub(super) fn left(deadline: Deadline) -> Duration {
    deadline
        .remaining()
        .unwrap_or(Duration::MAX)
        .max(Duration::from_millis(1))
}

/// Tries each address that the system's resolver has for a name; the last error when none will do.
pub(super) fn try_each<T>(
    operation: &'static str,
    name: impl ToSocketAddrs,
    attempt: impl Fn(SocketAddr) -> Result<T>,
) -> Result<T> {
    let addresses = name.to_socket_addrs().map_err(|error| {
        // The resolver's errors are not errnos; its text is all there is.
        Error::invalid(operation, format!("the address does not resolve: {error}"))
    })?;
    let mut outcome = Err(Error::invalid(operation, "the name has no address"));
    for address in addresses {
        outcome = attempt(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
