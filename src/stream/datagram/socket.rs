//! Sockets for datagrams.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::super::options::Side;
use super::super::settings::StreamSettings;
use super::super::stream::{checked, first_that};
use super::core::Core;
use crate::error::Error;

/// A socket for datagrams, as [`std::net::UdpSocket`] is one. The C library calls it rsocket, of the
/// type `SOCK_DGRAM`, and the peer may be one of its.
///
/// Datagrams may be lost, come twice, or in another order. One has 2032 bytes at most, to an IPv6
/// address 2020.
///
/// ```no_run
/// use rdmacm::RdmaDatagram;
///
/// let socket = RdmaDatagram::bind("10.0.0.1:7174")?;
/// let mut bytes = [0; 2048];
/// let (length, from) = socket.recv_from(&mut bytes)?;
/// socket.send_to(&bytes[..length], from)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Two ways
///
/// Behind it are a UDP socket with the same address and port, and a queue pair for each local address
/// that is used. The first datagrams to a peer go over UDP: they ask for its queue pair. When it has
/// answered and the way there is found, they go from queue pair to queue pair. UDP also carries what
/// is longer than a packet of the device ([`PortAttr::active_mtu`](crate::PortAttr::active_mtu), with
/// 8 or 24 bytes of header), and once a second a datagram to a peer that sends nothing: so a program
/// that was started again at the same address is found.
///
/// No thread works for the socket. Questions of peers are answered in the calls of this type, mostly
/// in those that receive. Until it makes one, what is new to the socket stays in the kernel's buffer
/// for UDP, and is lost where that is full; peers go on over UDP. A program that only sends learns
/// of its peers' queue pairs when it sends.
///
/// Who can send packets to the address can make datagrams up, and can mislead this side about the
/// queue pair of a peer until that is heard again; as with UDP there is no proof of who sent what.
///
/// # Event loops
///
/// [`AsFd`] gives one descriptor for all that the socket waits for. It is *readable* when there may be
/// something to do, to receive, to send after `WouldBlock`, or to answer; it is never writable. Set
/// the socket [non-blocking](RdmaDatagram::set_nonblocking), receive until `WouldBlock`, and wait for
/// the descriptor to become readable.
#[doc(alias("rsocket", "SOCK_DGRAM"))]
pub struct RdmaDatagram {
    core: Arc<Core>,
}

impl RdmaDatagram {
    #[cfg(feature = "tokio")]
    pub(crate) fn of_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn into_core(self) -> Arc<Core> {
        self.core
    }

    /// A socket with a local address. With a wildcard address it uses the devices that lead to its
    /// peers; one of IPv6 is not for peers of IPv4.
    ///
    /// # Errors
    ///
    /// Addresses that are not this machine's or are in use, those that belong to no RDMA device, and
    /// devices without datagrams (iWARP).
    #[doc(alias = "rbind")]
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(address, &StreamSettings::new())
    }

    /// As [`RdmaDatagram::bind`], with other settings. Of these count the buffers and depths, a
    /// datagram taking up 2048 bytes, the bytes inline, the polling, the linger time and the type of
    /// service.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::bind`].
    pub fn bind_with(address: impl ToSocketAddrs, settings: &StreamSettings) -> io::Result<Self> {
        first_that(address, |address| {
            let core = Arc::new(Core::bind(address, settings)?);
            Ok(Self { core })
        })
    }

    /// Has one peer only from now on: [`RdmaDatagram::send`] sends to it, and nothing comes from
    /// others. That nobody is there may become an error of a later call, `ConnectionRefused`. Takes
    /// the first address of a name that will do.
    ///
    /// # Errors
    ///
    /// Addresses that no RDMA device leads to, or of another family than the local address.
    #[doc(alias = "rconnect")]
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let mut outcome = Err(Error::invalid("connect", "the name has no address").into());
        for address in address.to_socket_addrs()? {
            outcome = self.core.connect(address);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Sends a datagram to the first address of a name. Waits for room where there is none; that it
    /// arrives is not waited for.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for one that is too long (`EMSGSIZE` within) and addresses of another family,
    /// no RDMA device that leads there; `WouldBlock` and `TimedOut` where there is no room.
    #[doc(alias = "rsendto")]
    pub fn send_to(&self, bytes: &[u8], address: impl ToSocketAddrs) -> io::Result<usize> {
        let Some(to) = address.to_socket_addrs()?.next() else {
            return Err(Error::invalid("send_to", "the name has no address").into());
        };
        self.core.run(Side::Write, |exchange, readiness| {
            exchange.send(to, bytes, readiness)
        })
    }

    /// Receives a datagram, and says who sent it. Of one that is longer than the room for it the rest
    /// is dropped.
    ///
    /// # Errors
    ///
    /// `WouldBlock` and `TimedOut` when none came; what was noticed since the last call, as a device
    /// that was removed, or that nobody is at the address that the socket is connected to.
    #[doc(alias = "rrecvfrom")]
    pub fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.core.run(Side::Read, |exchange, readiness| {
            exchange.receive(bytes, false, readiness)
        })
    }

    /// As [`RdmaDatagram::recv_from`], and leaves it there for the next call.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::recv_from`].
    #[doc(alias = "MSG_PEEK")]
    pub fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.core.run(Side::Read, |exchange, readiness| {
            exchange.receive(bytes, true, readiness)
        })
    }

    /// As [`RdmaDatagram::send_to`], to the peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::send_to`]; `NotConnected` without a peer.
    #[doc(alias = "rsend")]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let peer = self.peer_addr()?;
        self.send_to(bytes, peer)
    }

    /// As [`RdmaDatagram::recv_from`], without saying who sent it.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::recv_from`].
    #[doc(alias = "rrecv")]
    pub fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(bytes)?.0)
    }

    /// As [`RdmaDatagram::peek_from`], without saying who sent it.
    ///
    /// # Errors
    ///
    /// As [`RdmaDatagram::recv_from`].
    pub fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.peek_from(bytes)?.0)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to tell.
    #[doc(alias = "rgetsockname")]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.core.local_addr()
    }

    /// The peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` without one.
    #[doc(alias = "rgetpeername")]
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.core.peer_addr()
    }

    /// Another handle of the socket.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn try_clone(&self) -> io::Result<Self> {
        let core = Arc::clone(&self.core);
        Ok(Self { core })
    }

    /// Whether calls wait; they do at first. For all handles.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias("rfcntl", "O_NONBLOCK"))]
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.core.lock().content.options.is_nonblocking = is_nonblocking;
        Ok(())
    }

    /// How long receiving waits; `None`, as at first, for ever. Calls that run out of time end with
    /// `TimedOut`. For all handles.
    ///
    /// # Errors
    ///
    /// A timeout of zero.
    #[doc(alias = "SO_RCVTIMEO")]
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.core.lock().content.options.read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long sending waits for room; `None`, as at first, for ever. For all handles.
    ///
    /// # Errors
    ///
    /// A timeout of zero.
    #[doc(alias = "SO_SNDTIMEO")]
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.core.lock().content.options.write_timeout = checked(timeout)?;
        Ok(())
    }

    /// What [`RdmaDatagram::set_read_timeout`] set.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.core.lock().content.options.read_timeout)
    }

    /// What [`RdmaDatagram::set_write_timeout`] set.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.core.lock().content.options.write_timeout)
    }

    /// What went wrong since the last call, once; `None` where nothing did.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to tell.
    #[doc(alias = "SO_ERROR")]
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.core.take_error()
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
        let guard = self.core.lock();
        let exchange = &guard.content.exchange;
        f.debug_struct("RdmaDatagram")
            .field("local_addr", &exchange.local_addr().ok())
            .field("peer_addr", &exchange.connected())
            .finish_non_exhaustive()
    }
}
