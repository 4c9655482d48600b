//! The passive side.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::connector::try_each;
use super::prepared::{Prepared, Side};
use super::{Connection, Settings};
use crate::cm::{CmId, ConnectRequest, ConnectionData, Event, EventChannel, PortSpace};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::Deadline;

/// Waits for connections.
///
/// ```no_run
/// use rdmacm::Listener;
///
/// let listener = Listener::bind("0.0.0.0:7471")?;
/// let mut connection = listener.accept()?;
/// println!("{:?} is connected", connection.peer_addr());
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
    settings: Settings,
}

impl Listener {
    /// Listens on an address; a wildcard address listens on all RDMA devices, port 0 takes a free
    /// port.
    ///
    /// # Errors
    ///
    /// Addresses that are not this machine's or belong to no RDMA device, ports in use.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self> {
        Self::bind_with(address, Settings::new())
    }

    /// As [`Listener::bind`], with settings for the connections to come.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub fn bind_with(address: impl ToSocketAddrs, settings: Settings) -> Result<Self> {
        try_each("bind", address, |address| {
            Self::bind_one(address, settings.clone())
        })
    }

    fn bind_one(address: SocketAddr, settings: Settings) -> Result<Self> {
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.bind_addr(address)?;
        id.listen(settings.backlog)?;
        Ok(Self {
            id,
            channel,
            settings,
        })
    }

    /// The address that the listener listens on.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// Waits for a peer and connects with it, for ever. A peer that does not finish its handshake
    /// takes up to [`Settings::connect_timeout`]; a server of many clients takes their requests
    /// with [`Listener::incoming`] and makes the connections in threads of their own. Post receives
    /// before the handshake, in the same way, where the peer sends at once.
    ///
    /// # Errors
    ///
    /// When the peer gives up during the handshake, and as [`Listener::incoming`]; the listener goes
    /// on.
    pub fn accept(&self) -> Result<Connection> {
        self.incoming(None)?.prepare()?.establish()
    }

    /// Stops listening. Waits of other threads for requests end with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed); peers whose requests nobody has fetched are
    /// rejected. Connections and requests that were fetched stay.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn close(&self) -> Result<()> {
        self.channel.close();
        self.id.destroy()
    }

    /// Waits for a peer's request, for ever with `None`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time;
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`Listener::close`];
    /// [`ErrorKind::DeviceRemoved`](crate::ErrorKind::DeviceRemoved) when the listener's device is
    /// gone. Any other error is about one peer, whose request could not be taken over, and which is
    /// rejected; the listener goes on.
    #[doc(alias = "rdma_get_request")]
    pub fn incoming(&self, timeout: Option<Duration>) -> Result<Incoming> {
        let deadline = Deadline::after(timeout);
        loop {
            let event = self
                .channel
                .next_event(deadline.remaining())
                .map_err(|error| self.explain(deadline.as_a_whole("accept", error)))?;
            if let Some(incoming) = self.take(event)? {
                return Ok(incoming);
            }
        }
    }
}

impl Listener {
    /// The peer that an event is about, if it is about a new one.
    pub(super) fn take(&self, event: Event) -> Result<Option<Incoming>> {
        match event {
            Event::ConnectRequest(request) => Ok(Some(Incoming {
                request,
                settings: self.settings.clone(),
            })),
            Event::DeviceRemoval(_) => {
                // For all that wait: there is one event.
                self.channel.close();
                Err(event.into_error("accept"))
            }
            Event::RequestLost(_) => Err(event.into_error("accept")),
            // Of requests that were dropped between their arrival and their answer.
            _ => Ok(None),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// A channel that is closed because the device went.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Closed if self.id.is_removed() => error
                .of_kind(ErrorKind::DeviceRemoved)
                .because("the RDMA device was removed; listen anew"),
            _ => error,
        }
    }
}

impl AsFd for Listener {
    /// Readable when a request waits, and for other events, which the listener skips. Take what is
    /// there with [`Listener::incoming`] and a timeout of zero
    /// ([`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut): no request).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A peer that wants to connect. Dropping it rejects the peer. The kernel sets no limit to how long
/// the peer waits for the answer; its program may.
#[derive(Debug)]
pub struct Incoming {
    request: ConnectRequest,
    settings: Settings,
}

impl Incoming {
    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.request.id().peer_addr()
    }

    /// What the peer asks for, its private data among it.
    pub fn connection(&self) -> &ConnectionData {
        self.request.connection()
    }

    /// Rejects the peer, with up to 148 bytes of private data.
    ///
    /// # Errors
    ///
    /// When the peer is gone, or for too much data.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.id().reject(private_data)
    }

    /// Uses these settings instead of the listener's, e.g. to answer with private data.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Makes what the connection needs, up to the handshake, so that receives can be posted
    /// before it. The connection gets an event channel of its own.
    ///
    /// # Errors
    ///
    /// When the device runs out of something.
    pub fn prepare(self) -> Result<Prepared> {
        let deadline = Deadline::after(Some(self.settings.connect_timeout));
        let channel = EventChannel::open()?;
        let id = self.request.id().clone();
        id.migrate(&channel)?;
        let mut prepared = Prepared::new(channel, id, &self.settings, Side::Passive, deadline)?;
        prepared.set_private_data(&self.request.connection().private_data);
        Ok(prepared)
    }
}
