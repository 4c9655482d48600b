//! Event channels.

use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use super::watch::Wait;
use crate::Event;
use crate::error::Result;

/// An event channel whose events tasks wait for.
///
/// ```no_run
/// use std::time::Duration;
/// use rdmacm::{Event, PortSpace};
/// use rdmacm::tokio::EventChannel;
///
/// # async fn example(peer: std::net::SocketAddr) -> rdmacm::Result<()> {
/// let mut channel = EventChannel::open()?;
/// let id = channel.get_ref().create_id(PortSpace::Tcp)?;
/// id.resolve_addr(None, peer, Duration::from_secs(2))?;
/// channel.expect("resolve_addr", |event| matches!(event, Event::AddressResolved(_))).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EventChannel {
    channel: crate::EventChannel,
    wait: Wait,
}

impl EventChannel {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::EventChannel::open`](crate::EventChannel::open).
    pub fn open() -> Result<Self> {
        crate::EventChannel::open().map(Self::from)
    }

    /// The channel as threads use it, and for making ids. Each handle that other tasks are given
    /// becomes a channel of theirs with [`EventChannel::from`]; each event goes to one of them.
    pub fn get_ref(&self) -> &crate::EventChannel {
        &self.channel
    }

    /// The channel as threads use it.
    pub fn into_inner(self) -> crate::EventChannel {
        self.channel
    }

    /// Waits for the next event. A future that is dropped takes no event with it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after
    /// [`rdmacm::EventChannel::close`](crate::EventChannel::close), which ends the wait as well.
    pub async fn next_event(&mut self) -> Result<Event> {
        poll_fn(|cx| self.poll_next_event(cx)).await
    }

    /// As [`EventChannel::next_event`], for futures that are written by hand.
    pub fn poll_next_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event>> {
        self.channel.poll_next_event(cx, &mut self.wait)
    }

    /// Waits for one event, and makes any other that matters an error of `operation`: see
    /// [`rdmacm::EventChannel::expect`](crate::EventChannel::expect).
    ///
    /// # Errors
    ///
    /// The event that came instead, as an error.
    pub async fn expect(
        &mut self,
        operation: &'static str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        loop {
            match self.next_event().await? {
                event if wanted(&event) => return Ok(event),
                Event::AddressChange(_) | Event::TimewaitExit(_) => {}
                other => return Err(other.into_error(operation)),
            }
        }
    }
}

impl From<crate::EventChannel> for EventChannel {
    fn from(channel: crate::EventChannel) -> Self {
        let wait = Wait::new();
        Self { channel, wait }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
