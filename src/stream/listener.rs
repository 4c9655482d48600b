//! Listening for streams.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::backlog::Backlog;
use super::core::Core;
use super::service;
use super::settings::StreamSettings;
use super::stream::{RdmaStream, first_that};
use crate::sys::Deadline;

/// Listens for streams, as [`std::net::TcpListener`] does.
///
/// Peers are connected while the program does something else, by a thread that all listeners of the
/// process share, and wait to be accepted.
///
/// ```no_run
/// use std::io::Write;
/// use rdmacm::RdmaListener;
///
/// let listener = RdmaListener::bind("0.0.0.0:7471")?;
/// for stream in listener.incoming() {
///     stream?.write_all(b"hello")?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias("rsocket", "rclose", "rpoll", "rselect"))]
pub struct RdmaListener {
    backlog: Arc<Backlog>,
    /// Behind the handle: the thread looks when that is gone.
    _notice: Notice,
}

/// Has the thread that makes the handshakes look whether there is anybody left.
struct Notice;

impl Drop for Notice {
    fn drop(&mut self) {
        service::notice();
    }
}

impl RdmaListener {
    fn of(backlog: Arc<Backlog>) -> Self {
        Self {
            backlog,
            _notice: Notice,
        }
    }

    /// Listens on an address. A wildcard address listens on all RDMA devices, port 0 takes a free
    /// port. Of several addresses that a name has the first that can be had is taken.
    ///
    /// # Errors
    ///
    /// Addresses that are not this machine's or belong to no RDMA device, ports in use.
    #[doc(alias("rbind", "rlisten"))]
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(address, &StreamSettings::new())
    }

    /// As [`RdmaListener::bind`], with settings for the streams to come.
    ///
    /// # Errors
    ///
    /// As [`RdmaListener::bind`].
    pub fn bind_with(address: impl ToSocketAddrs, settings: &StreamSettings) -> io::Result<Self> {
        first_that(address, |address| {
            let backlog = Arc::new(Backlog::listen(address, settings.clone())?);
            service::register(&backlog)?;
            Ok(Self::of(backlog))
        })
    }

    /// Waits for the next peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where the listener is [non-blocking](RdmaListener::set_nonblocking) and nobody
    /// waits; too few descriptors or too little memory for the stream, after which the listener goes
    /// on; a device that was removed, after which it does not.
    #[doc(alias = "raccept")]
    pub fn accept(&self) -> io::Result<(RdmaStream, SocketAddr)> {
        self.accept_by(Deadline::after(None))
    }

    /// As [`RdmaListener::accept`], for so long at most.
    ///
    /// # Errors
    ///
    /// `TimedOut`, and as [`RdmaListener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> io::Result<(RdmaStream, SocketAddr)> {
        self.accept_by(Deadline::after(Some(timeout)))
    }

    fn accept_by(&self, deadline: Deadline) -> io::Result<(RdmaStream, SocketAddr)> {
        let (link, readiness) = self.backlog.accept(deadline)?;
        let settings = self.backlog.lock().content.settings.clone();
        let stream = RdmaStream::new(Core::accepted(link, readiness, &settings)?);
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// The peers, one after the other; never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address that is listened on.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias = "rgetsockname")]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.backlog
            .local_addr()
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Another handle of the listener.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn try_clone(&self) -> io::Result<Self> {
        let backlog = Arc::clone(&self.backlog);
        Ok(Self::of(backlog))
    }

    /// Whether [`RdmaListener::accept`] waits; it does at first. Streams that are accepted wait in any
    /// case, until they are told otherwise.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias("rfcntl", "O_NONBLOCK"))]
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.backlog.lock().content.is_nonblocking = is_nonblocking;
        Ok(())
    }
}

impl AsFd for RdmaListener {
    /// Readable when a peer may wait, for event loops; [`RdmaListener::accept`] may still find none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backlog.readiness().as_fd()
    }
}

impl fmt::Debug for RdmaListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaListener")
            .field("local_addr", &self.backlog.local_addr())
            .finish_non_exhaustive()
    }
}

/// The peers of a listener: see [`RdmaListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'l> {
    listener: &'l RdmaListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<RdmaStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
