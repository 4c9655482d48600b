//! Sockets for datagrams, over RDMA or not, and how their calls wait.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{RdmaDatagram, StreamSettings};

/// What carries the datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Rdma,
    Udp,
}

/// How calls that can do nothing yet wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// They do.
    Blocking,
    /// They are made again at once.
    Nonblocking,
    /// They are made again when the descriptor says so.
    EventLoop,
}

pub struct Socket {
    carrier: Carrier,
    manner: Manner,
}

enum Carrier {
    Rdma(RdmaDatagram),
    Udp(UdpSocket),
}

impl Socket {
    pub fn bind(
        address: SocketAddr,
        kind: Kind,
        manner: Manner,
        buffer_size: u32,
    ) -> io::Result<Self> {
        let carrier = match kind {
            Kind::Rdma => {
                let depth = u16::try_from(buffer_size / 2048).unwrap_or(u16::MAX);
                let settings = StreamSettings::new()
                    .send_buffer(buffer_size)
                    .receive_buffer(buffer_size)
                    .send_depth(depth)
                    .receive_depth(depth);
                Carrier::Rdma(RdmaDatagram::bind_with(address, &settings)?)
            }
            Kind::Udp => Carrier::Udp(UdpSocket::bind(address)?),
        };
        let socket = Self { carrier, manner };
        let is_nonblocking = manner != Manner::Blocking;
        match &socket.carrier {
            Carrier::Rdma(socket) => socket.set_nonblocking(is_nonblocking)?,
            Carrier::Udp(socket) => socket.set_nonblocking(is_nonblocking)?,
        }
        Ok(socket)
    }

    pub fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.insist(PollFlags::POLLOUT, || match &self.carrier {
            Carrier::Rdma(socket) => socket.send_to(datagram, to),
            Carrier::Udp(socket) => socket.send_to(datagram, to),
        })?;
        Ok(())
    }

    pub fn recv_from(&self, datagram: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.insist(PollFlags::POLLIN, || self.try_recv_from(datagram))
    }

    /// Receives within a time. `None`: nothing came.
    pub fn recv_within(
        &self,
        datagram: &mut [u8],
        patience: Duration,
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        if self.manner == Manner::Blocking {
            self.set_read_timeout(patience)?;
            return in_time(self.try_recv_from(datagram));
        }
        // The descriptor may tell of something else than a datagram.
        let start = Instant::now();
        loop {
            let received = in_time(self.try_recv_from(datagram))?;
            let rest = patience.saturating_sub(start.elapsed());
            if received.is_some() || rest.is_zero() {
                return Ok(received);
            }
            self.wait(PollFlags::POLLIN, Some(rest))?;
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match &self.carrier {
            Carrier::Rdma(socket) => socket.set_read_timeout(Some(timeout)),
            Carrier::Udp(socket) => socket.set_read_timeout(Some(timeout)),
        }
    }

    fn try_recv_from(&self, datagram: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match &self.carrier {
            Carrier::Rdma(socket) => socket.recv_from(datagram),
            Carrier::Udp(socket) => socket.recv_from(datagram),
        }
    }

    /// Makes a call until it does something.
    fn insist<T>(
        &self,
        events: PollFlags,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.manner == Manner::EventLoop {
                        self.wait(events, None)?;
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn wait(&self, events: PollFlags, patience: Option<Duration>) -> io::Result<()> {
        let timeout = match patience {
            // In milliseconds, rounded up.
            Some(patience) => PollTimeout::try_from(patience.as_nanos().div_ceil(1_000_000))
                .unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        let mut fds = [match &self.carrier {
            // One descriptor tells of both, by being readable.
            Carrier::Rdma(socket) => PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            Carrier::Udp(socket) => PollFd::new(socket.as_fd(), events),
        }];
        poll(&mut fds, timeout)?;
        Ok(())
    }
}

/// `None` where nothing came.
fn in_time<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
