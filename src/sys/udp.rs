//! A UDP socket, which never waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// A UDP socket whose calls say `WouldBlock` instead of waiting.
#[derive(Debug)]
pub(crate) struct Udp(UdpSocket);

impl Udp {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Takes packets from no other address any more, and hears when nobody is there.
    pub(crate) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        retried(|| self.0.connect(peer))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// What went wrong since it was asked last.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    pub(crate) fn send_to(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        // It goes as a whole or not at all.
        retried(|| self.0.send_to(packet, to)).map(drop)
    }

    /// The beginning of the next packet, as much of it as fits.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        retried(|| self.0.recv_from(buffer))
    }

    /// The local address that packets to a peer come from, where the socket is bound to none.
    pub(crate) fn source_towards(peer: SocketAddr) -> io::Result<IpAddr> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let probe = UdpSocket::bind((any, 0))?;
        // Sends nothing: the kernel only looks for the route.
        retried(|| probe.connect(peer))?;
        Ok(probe.local_addr()?.ip())
    }
}

/// Repeats what a signal interrupted.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn packets_come_and_nothing_waits() {
        let (one, other) = (
            Udp::bind(HERE.into()).unwrap(),
            Udp::bind(HERE.into()).unwrap(),
        );
        let mut buffer = [0; 4];
        let nothing = other.receive(&mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        one.send_to(b"hello", other.local_addr().unwrap()).unwrap();
        let (length, from) = other.receive(&mut buffer).unwrap();
        assert_eq!((length, &buffer), (4, b"hell"));
        assert_eq!(from, one.local_addr().unwrap());
    }

    #[test]
    fn the_source_is_that_of_the_route() {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(Udp::source_towards(peer).unwrap(), peer.ip());
    }
}
