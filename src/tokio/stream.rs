//! Byte streams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ::tokio::net::{ToSocketAddrs, lookup_host};

use super::linger::Open;
use super::names::no_address;
use super::reading::ReadHalf;
use super::split::{self, OwnedReadHalf, OwnedWriteHalf};
use super::watch::Wait;
use super::writing::WriteHalf;
use crate::StreamSettings;
use crate::error::Result;
use crate::stream::Core;

/// A stream of bytes between two programs, as tokio's `TcpStream` is one. It is
/// [`rdmacm::RdmaStream`](crate::RdmaStream) for tasks: the peer may use either, or the C library's
/// rsockets.
///
/// ```no_run
/// use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use rdmacm::tokio::RdmaStream;
///
/// # async fn example() -> std::io::Result<()> {
/// let mut stream = RdmaStream::connect("10.0.0.1:7471").await?;
/// stream.write_all(b"hello").await?;
/// let mut answer = [0; 100];
/// let length = stream.read(&mut answer).await?;
/// # Ok(()) }
/// ```
///
/// Reads and writes can be dropped while they wait: nothing is lost, and nothing was written of a
/// write that did not say so. (`read_exact`, `write_all` and the like are made of several, and do
/// not tell how far they came.)
///
/// # The end
///
/// As with [`rdmacm::RdmaStream`](crate::RdmaStream#the-end). `shutdown` ends writing and waits until
/// the peer has what was written. A stream that is dropped does the same in the background, on the
/// runtime, for [so long at most](StreamSettings::linger); outside of a runtime dropping waits.
pub struct RdmaStream {
    pub(super) core: Open,
    pub(super) read: Wait,
    pub(super) write: Wait,
}

impl RdmaStream {
    pub(super) fn new(core: Core) -> Self {
        Self::of(Open::new(Arc::new(core)))
    }

    fn of(core: Open) -> Self {
        Self {
            core,
            read: Wait::new(),
            write: Wait::new(),
        }
    }

    /// Connects; tries each address that a name has, and returns the last error when none answers.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaStream::connect`](crate::RdmaStream::connect).
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::connect_with(address, &StreamSettings::new()).await
    }

    /// As [`RdmaStream::connect`], with other settings.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::connect`].
    pub async fn connect_with(
        address: impl ToSocketAddrs,
        settings: &StreamSettings,
    ) -> io::Result<Self> {
        let mut outcome = Err(no_address("connect"));
        for address in lookup_host(address).await? {
            outcome = Self::connect_one(address, settings).await;
            if outcome.is_ok() {
                break;
            }
        }
        Ok(outcome?)
    }

    async fn connect_one(address: SocketAddr, settings: &StreamSettings) -> Result<Self> {
        let mut stream = Self::new(Core::connecting(address, settings)?);
        let patience = stream.core.patience().unwrap_or(Duration::ZERO);
        let _alarm = stream.core.alarm(patience)?;
        poll_fn(|cx| stream.core.poll_connected(cx, &mut stream.read)).await?;
        Ok(stream)
    }

    /// Makes a stream of one that threads use. Other handles of it go on to wait as they did.
    pub fn from_std(stream: crate::RdmaStream) -> Self {
        Self::of(Open::new(stream.into_core()))
    }

    /// The stream as threads use it; its calls wait, unless it was
    /// [told](crate::RdmaStream::set_nonblocking) not to before.
    pub fn into_std(self) -> crate::RdmaStream {
        crate::RdmaStream::of_core(self.core.into_inner())
    }

    /// How long a stream that is dropped goes on to send what was written.
    pub fn set_linger(&self, time: Duration) {
        self.core.set_linger(time);
    }

    /// Why the connection was lost, once; `None` where it is well.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.core.take_error().map(Into::into))
    }

    /// Two halves, for reading and for writing in one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        let (core, read, write) = (&self.core, &mut self.read, &mut self.write);
        (ReadHalf::new(core, read), WriteHalf::new(core, write))
    }

    pub(super) fn reader(&mut self) -> ReadHalf<'_> {
        self.split().0
    }

    pub(super) fn writer(&mut self) -> WriteHalf<'_> {
        self.split().1
    }

    /// Two halves, for reading and for writing in two tasks. Dropping the one that writes ends
    /// writing; the stream is closed when both are dropped.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::owned(self)
    }
}

impl AsFd for RdmaStream {
    /// As with [`rdmacm::RdmaStream`](crate::RdmaStream): readable when there may be something to do,
    /// in either direction.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.readiness().as_fd()
    }
}

impl fmt::Debug for RdmaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaStream")
            .field("local_addr", &self.local_addr().ok())
            .field("peer_addr", &self.peer_addr().ok())
            .finish_non_exhaustive()
    }
}
