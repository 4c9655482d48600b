//! Byte streams.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::options::Side;
use super::service::{self, Served};
use super::settings::StreamSettings;
use crate::cm::PathRecord;
use crate::error::{Error, Result};
use crate::sys::Readiness;

/// A stream of bytes between two programs, as [`std::net::TcpStream`] is one. The C library calls it
/// rsocket, and the peer may be one of its.
///
/// Reading and writing may be done by different threads, through shared references or through handles
/// that [`RdmaStream::try_clone`] makes. The stream is closed when the last handle is dropped, which
/// waits a while for what was written to reach the peer ([`StreamSettings::linger`]).
///
/// ```no_run
/// use std::io::{Read, Write};
/// use rdmacm::RdmaStream;
///
/// let mut stream = RdmaStream::connect("10.0.0.1:7471")?;
/// stream.write_all(b"hello")?;
/// let mut answer = [0; 100];
/// let length = stream.read(&mut answer)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # The end
///
/// A peer that closes its stream, or shuts down writing, causes reads to return 0 once all is read.
/// A peer that is killed or loses its machine causes `ConnectionReset` (or another error) instead, in
/// calls that wait as well. Writing to a peer that closed is `BrokenPipe`.
///
/// # Event loops
///
/// [`AsFd`] gives one descriptor for both directions. It is *readable* when there may be something to
/// do in either; it is never writable. Set the stream [non-blocking](RdmaStream::set_nonblocking), try,
/// and wait for the descriptor to become readable after `WouldBlock`.
#[doc(alias("rsocket", "rclose", "rsend", "rwrite", "rrecv", "rread"))]
#[doc(alias("rsendmsg", "rwritev", "rrecvmsg", "rreadv"))]
#[doc(alias("rpoll", "rselect", "repoll_create", "repoll_ctl", "repoll_wait"))]
pub struct RdmaStream {
    core: Arc<Core>,
}

impl RdmaStream {
    pub(super) fn new(core: Core) -> Self {
        let core = Arc::new(core);
        Self { core }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn of_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn into_core(self) -> Arc<Core> {
        self.core
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Connects; tries each address that a name has, and returns the last error when none answers.
    ///
    /// # Errors
    ///
    /// Names that do not resolve, addresses that no RDMA device leads to, `ConnectionRefused` where
    /// nobody listens, no answer in [time](StreamSettings::connect_timeout), a peer that does not
    /// speak the protocol of streams.
    #[doc(alias = "rconnect")]
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::connect_with(address, &StreamSettings::new())
    }

    /// As [`RdmaStream::connect`], for so long at most.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::connect`].
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::connect_with(address, &StreamSettings::new().connect_timeout(timeout))
    }

    /// As [`RdmaStream::connect`], with other settings.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::connect`].
    pub fn connect_with(
        address: impl ToSocketAddrs,
        settings: &StreamSettings,
    ) -> io::Result<Self> {
        first_that(address, |address| {
            let core = Core::connecting(address, settings)?;
            core.wait_connected()?;
            Ok(Self::new(core))
        })
    }

    /// Begins to connect and does not wait. The stream is non-blocking. Calls that read or write say
    /// `WouldBlock` until the connection is made, or tell why it was not; the descriptor is readable
    /// when one of these happened, and [`RdmaStream::take_error`] tells which.
    ///
    /// # Errors
    ///
    /// What is known at once: a machine without RDMA, an address that no RDMA device leads to.
    #[doc(alias = "rconnect")]
    pub fn connect_nonblocking(
        address: &SocketAddr,
        settings: &StreamSettings,
    ) -> io::Result<Self> {
        let stream = Self::new(Core::connecting(*address, settings)?);
        stream.set_nonblocking(true)?;
        service::register(&stream.core)?;
        Ok(stream)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// `NotConnected` where it is not known yet.
    #[doc(alias = "rgetpeername")]
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.core.peer_addr()
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// `NotConnected` where it is not known yet.
    #[doc(alias = "rgetsockname")]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.core.local_addr()
    }

    /// The paths of the connection's route, the one in use first; none on iWARP.
    /// [`StreamSettings::route`] connects by them.
    ///
    /// # Errors
    ///
    /// `NotConnected` before the connection is made; a device that is gone.
    #[doc(alias("rgetsockopt", "RDMA_ROUTE"))]
    pub fn route(&self) -> io::Result<Vec<PathRecord>> {
        self.core.with_link(|link| Ok(link.queues.id.paths()?))
    }

    /// Ends reading, writing or both, for all handles. What was written before reaches the peer. Does
    /// not wait, and wakes calls that do. Whoever waits for the descriptor in an event loop of another
    /// thread is woken by it as well.
    ///
    /// # Errors
    ///
    /// `NotConnected` before the connection is made.
    #[doc(alias = "rshutdown")]
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let read = matches!(how, Shutdown::Read | Shutdown::Both);
        let write = matches!(how, Shutdown::Write | Shutdown::Both);
        self.core.shut_down(read, write)
    }

    /// Another handle of the stream.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn try_clone(&self) -> io::Result<Self> {
        let core = Arc::clone(&self.core);
        Ok(Self { core })
    }

    /// Copies what can be read and leaves it there. Waits as [`Read::read`] does.
    ///
    /// # Errors
    ///
    /// As reading.
    #[doc(alias = "MSG_PEEK")]
    pub fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.core.run(Side::Read, |link| link.peek(bytes))
    }

    /// Whether calls that read and write wait; they do at first. For all handles.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias("rfcntl", "O_NONBLOCK"))]
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.core.set_nonblocking(is_nonblocking);
        Ok(())
    }

    /// How long reading waits; `None`, as at first, for ever. Reads that run out of time end with
    /// `TimedOut`. For all handles.
    ///
    /// # Errors
    ///
    /// A timeout of zero, as in [`std::net::TcpStream::set_read_timeout`].
    #[doc(alias("rsetsockopt", "SO_RCVTIMEO"))]
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.core.lock().content.options.read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long writing waits; `None`, as at first, for ever. For all handles.
    ///
    /// # Errors
    ///
    /// A timeout of zero.
    #[doc(alias("rsetsockopt", "SO_SNDTIMEO"))]
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.core.lock().content.options.write_timeout = checked(timeout)?;
        Ok(())
    }

    /// What [`RdmaStream::set_read_timeout`] set.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.core.lock().content.options.read_timeout)
    }

    /// What [`RdmaStream::set_write_timeout`] set.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.core.lock().content.options.write_timeout)
    }

    /// How long closing waits for what was written to reach the peer; what has not by then is given
    /// up.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias = "SO_LINGER")]
    pub fn set_linger(&self, time: Duration) -> io::Result<()> {
        self.core.set_linger(time);
        Ok(())
    }

    /// What could be done now without waiting. For event loops that watch the descriptor together with
    /// others: look here before each wait, since what was seen already makes it readable no more.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    #[doc(alias("rpoll", "rselect"))]
    pub fn ready(&self) -> io::Result<StreamReady> {
        Ok(self.core.ready())
    }

    /// Looks after so long without news, in calls that wait, whether the peer's device still answers;
    /// `None`, as at first, does not. For all handles.
    ///
    /// # Errors
    ///
    /// A time of zero.
    #[doc(alias("SO_KEEPALIVE", "TCP_KEEPIDLE"))]
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.core.lock().content.options.keepalive = checked(idle)?;
        Ok(())
    }

    /// Why the connection was not made or was lost, once; `None` where it is well.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias("rgetsockopt", "SO_ERROR"))]
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.core.take_error().map(Into::into))
    }
}

/// What a stream is ready for: see [`RdmaStream::ready`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamReady {
    /// A read would not wait: there is data, an end, or an error.
    #[doc(alias = "POLLIN")]
    pub readable: bool,
    /// A write would not wait: there is room, or an error.
    #[doc(alias = "POLLOUT")]
    pub writable: bool,
    /// The connection was not made, or was lost; [`RdmaStream::take_error`] tells why.
    #[doc(alias = "POLLERR")]
    pub has_failed: bool,
}

pub(super) fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    match timeout {
        Some(Duration::ZERO) => Err(Error::invalid("set_timeout", "a timeout of zero").into()),
        _ => Ok(timeout),
    }
}

/// Makes an attempt with each address that a name has; the last error when none will do.
pub(super) fn first_that<T>(
    name: impl ToSocketAddrs,
    attempt: impl Fn(SocketAddr) -> Result<T>,
) -> io::Result<T> {
    let mut outcome = Err(Error::invalid("stream", "the name has no address"));
    for address in name.to_socket_addrs()? {
        outcome = attempt(address);
        if outcome.is_ok() {
            break;
        }
    }
    Ok(outcome?)
}

impl Read for &RdmaStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.core.run(Side::Read, |link| link.read(bytes))
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.core.run(Side::Read, |link| link.read_vectored(slices))
    }
}

impl Write for &RdmaStream {
    /// Copies as much as there is room for in the send buffer, and waits where there is none at all.
    /// The device sends it meanwhile.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.core.run(Side::Write, |link| link.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.core
            .run(Side::Write, |link| link.write_vectored(slices))
    }

    /// Does nothing: what is written is on its way at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for RdmaStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(slices)
    }
}

impl Write for RdmaStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for RdmaStream {
    /// Readable when there may be something to do, in either direction.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.readiness().as_fd()
    }
}

impl fmt::Debug for RdmaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaStream")
            .field("local_addr", &self.core.local_addr().ok())
            .field("peer_addr", &self.core.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

impl Served for Core {
    fn readiness(&self) -> &Readiness {
        self.readiness()
    }

    /// Goes on with connecting, until the program has the connection or the error.
    fn serve(&self) -> bool {
        self.advance_connecting()
    }
}
