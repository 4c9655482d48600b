//! Datagrams.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use ::tokio::net::{ToSocketAddrs, lookup_host};
use ::tokio::task::coop::poll_proceed;

use super::names::{first_bound, no_address};
use super::watch::Wait;
use crate::StreamSettings;
use crate::stream::DatagramCore;

/// A socket for datagrams, as tokio's `UdpSocket` is one. It is
/// [`rdmacm::RdmaDatagram`](crate::RdmaDatagram) for tasks, of which several may use it at a time.
///
/// ```no_run
/// use rdmacm::tokio::RdmaDatagram;
///
/// # async fn example() -> std::io::Result<()> {
/// let socket = RdmaDatagram::bind("10.0.0.1:7174").await?;
/// let mut bytes = [0; 2048];
/// let (length, from) = socket.recv_from(&mut bytes).await?;
/// socket.send_to(&bytes[..length], from).await?;
/// # Ok(()) }
/// ```
///
/// Calls can be dropped while they wait: no datagram is lost, and none was sent. A socket that is
/// dropped waits a moment for what was sent to leave, at most the [linger
/// time](StreamSettings::linger).
pub struct RdmaDatagram {
    core: Arc<DatagramCore>,
    /// What calls that are over waited through, for the next ones.
    waits: Mutex<Vec<Wait>>,
}

impl RdmaDatagram {
    /// A socket with a local address: see [`rdmacm::RdmaDatagram::bind`](crate::RdmaDatagram::bind).
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaDatagram::bind`](crate::RdmaDatagram::bind).
    #[doc(alias("rsocket", "SOCK_DGRAM", "rbind"))]
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(address, &StreamSettings::new()).await
    }

    /// As [`RdmaDatagram::bind`], with other settings.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::bind`].
    pub async fn bind_with(
        address: impl ToSocketAddrs,
        settings: &StreamSettings,
    ) -> io::Result<Self> {
        let bound = first_bound(address, |address| DatagramCore::bind(address, settings)).await?;
        Ok(Self::of(Arc::new(bound)))
    }

    fn of(core: Arc<DatagramCore>) -> Self {
        let waits = Mutex::default();
        Self { core, waits }
    }

    /// Makes a socket of one that threads use. Other handles of it go on to wait as they did.
    pub fn from_std(socket: crate::RdmaDatagram) -> Self {
        Self::of(socket.into_core())
    }

    /// The socket as threads use it; its calls wait, unless it was
    /// [told](crate::RdmaDatagram::set_nonblocking) not to before.
    pub fn into_std(self) -> crate::RdmaDatagram {
        crate::RdmaDatagram::of_core(self.core)
    }

    /// Has one peer only from now on: see
    /// [`rdmacm::RdmaDatagram::connect`](crate::RdmaDatagram::connect).
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaDatagram::connect`](crate::RdmaDatagram::connect).
    #[doc(alias = "rconnect")]
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let mut outcome = Err(no_address("connect").into());
        for address in lookup_host(address).await? {
            outcome = self.core.connect(address);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Sends a datagram to the first address of a name, as soon as there is room.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaDatagram::send_to`](crate::RdmaDatagram::send_to).
    #[doc(alias = "rsendto")]
    pub async fn send_to(&self, bytes: &[u8], address: impl ToSocketAddrs) -> io::Result<usize> {
        let first = lookup_host(address).await?.next();
        let to = first.ok_or_else(|| no_address("send_to"))?;
        self.call(|core, wait, cx| core.poll_send(cx, wait, bytes, to))
            .await
    }

    /// Receives a datagram, and says who sent it. Of one that is longer than the room for it the rest
    /// is dropped.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::RdmaDatagram::recv_from`](crate::RdmaDatagram::recv_from).
    #[doc(alias = "rrecvfrom")]
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.call(|core, wait, cx| core.poll_receive(cx, wait, bytes, false))
            .await
    }

    /// As [`RdmaDatagram::recv_from`], and leaves it there for the next call.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::recv_from`].
    #[doc(alias = "MSG_PEEK")]
    pub async fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.call(|core, wait, cx| core.poll_receive(cx, wait, bytes, true))
            .await
    }

    /// As [`RdmaDatagram::send_to`], to the peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::send_to`]; `NotConnected` without a peer.
    #[doc(alias = "rsend")]
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_to(bytes, self.peer_addr()?).await
    }

    /// As [`RdmaDatagram::recv_from`], without saying who sent it.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::recv_from`].
    #[doc(alias = "rrecv")]
    pub async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(bytes).await?.0)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.core.local_addr()
    }

    /// The peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` without one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.core.peer_addr()
    }

    /// What went wrong since the last call, once; `None` where nothing did.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to tell.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.core.take_error()
    }

    fn call<T, F>(&self, poll: F) -> Call<'_, F>
    where
        F: FnMut(&DatagramCore, &mut Wait, &mut Context<'_>) -> Poll<io::Result<T>> + Unpin,
    {
        let idle = self.waits().pop();
        Call {
            socket: self,
            wait: idle.unwrap_or_else(Wait::new),
            poll,
        }
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Vec<Wait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that may wait.
struct Call<'s, F> {
    socket: &'s RdmaDatagram,
    wait: Wait,
    poll: F,
}

impl<T, F> Future for Call<'_, F>
where
    F: FnMut(&DatagramCore, &mut Wait, &mut Context<'_>) -> Poll<io::Result<T>> + Unpin,
{
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let fair = ready!(poll_proceed(cx));
        let done = ready!((this.poll)(&this.socket.core, &mut this.wait, cx));
        fair.made_progress();
        Poll::Ready(done)
    }
}

impl<F> Drop for Call<'_, F> {
    fn drop(&mut self) {
        self.socket.core.withdraw(&self.wait);
        let wait = std::mem::replace(&mut self.wait, Wait::new());
        self.socket.waits().push(wait);
    }
}

impl AsFd for RdmaDatagram {
    /// Readable when there may be something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.readiness().as_fd()
    }
}

impl fmt::Debug for RdmaDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaDatagram")
            .field("local_addr", &self.local_addr().ok())
            .field("peer_addr", &self.peer_addr().ok())
            .finish_non_exhaustive()
    }
}
