//! Listening for streams.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::net::ToSocketAddrs;

use super::RdmaStream;
use super::names::first_bound;
use super::watch::Wait;
use crate::StreamSettings;
use crate::stream::Backlog;
use crate::sys::Alarm;

/// Listens for streams, as tokio's `TcpListener` does.
///
/// Peers are connected while a task waits in [`RdmaListener::accept`], all that ask at the same time
/// together. Meanwhile others wait in the kernel.
///
/// ```no_run
/// use ::tokio::io::AsyncWriteExt;
/// use rdmacm::tokio::RdmaListener;
///
/// # async fn example() -> std::io::Result<()> {
/// let listener = RdmaListener::bind("0.0.0.0:7471").await?;
/// loop {
///     let (mut stream, peer) = listener.accept().await?;
///     stream.write_all(b"hello").await?;
/// }
/// # }
/// ```
pub struct RdmaListener {
    backlog: Backlog,
}

impl RdmaListener {
    /// Listens on an address: see [`rdmacm::RdmaListener::bind`](crate::RdmaListener::bind).
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaListener::bind`](crate::RdmaListener::bind).
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(address, &StreamSettings::new()).await
    }

    /// As [`RdmaListener::bind`], with settings for the streams to come.
    ///
    /// # Errors
    ///
    /// As [`RdmaListener::bind`].
    pub async fn bind_with(
        address: impl ToSocketAddrs,
        settings: &StreamSettings,
    ) -> io::Result<Self> {
        let listen = |address| Backlog::listen(address, settings.clone());
        let backlog = first_bound(address, listen).await?;
        Ok(Self { backlog })
    }

    /// Waits for the next peer. Several tasks may; each peer goes to one of them.
    ///
    /// A future that is dropped takes no peer with it.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaListener::accept`](crate::RdmaListener::accept).
    pub async fn accept(&self) -> io::Result<(RdmaStream, SocketAddr)> {
        let accept = Accept {
            backlog: &self.backlog,
            wait: Wait::new(),
            end: None,
        };
        let stream = accept.await?;
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// The address that is listened on.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.backlog
            .local_addr()
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

/// Waiting for a peer.
struct Accept<'l> {
    backlog: &'l Backlog,
    /// Its own, since several tasks may wait, and each of them may be dropped.
    wait: Wait,
    end: Option<Alarm>,
}

impl Future for Accept<'_> {
    type Output = io::Result<RdmaStream>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let core = ready!(this.backlog.poll_accept(cx, &mut this.wait, &mut this.end));
        Poll::Ready(Ok(RdmaStream::new(core?)))
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        self.backlog.withdraw(&self.wait);
    }
}

impl AsFd for RdmaListener {
    /// Readable when something happened to a peer.
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
