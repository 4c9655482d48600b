//! RDMA or TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, sockopt};
use rdmacm::{RdmaListener, RdmaStream, StreamSettings};

use crate::measured::{Manner, wait_for};

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Read,
    Write,
}

/// How streams are made.
#[derive(Debug, Clone)]
pub struct Settings {
    pub uses_tcp: bool,
    pub is_nonblocking: bool,
    pub buffer_size: u32,
    pub keepalive: Option<Duration>,
    /// `None`: as usual.
    pub max_inline: Option<u16>,
    pub source: Option<SocketAddr>,
}

#[derive(Debug)]
pub enum Stream {
    Rdma(RdmaStream),
    Tcp(TcpStream),
}

#[derive(Debug)]
pub enum Listener {
    Rdma(RdmaListener),
    Tcp(TcpListener),
}

impl Settings {
    fn of_rdma(&self) -> StreamSettings {
        let mut settings = StreamSettings::new()
            .send_buffer(self.buffer_size)
            .receive_buffer(self.buffer_size)
            .keepalive(self.keepalive);
        if let Some(max_inline) = self.max_inline {
            settings = settings.max_inline(max_inline);
        }
        match self.source {
            Some(source) => settings.source(source),
            None => settings,
        }
    }

    /// What sockets have in common: a listener's go over to those that it accepts.
    fn give_to_socket(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let buffer_size = self.buffer_size as usize;
        socket::setsockopt(&socket, sockopt::SndBuf, &buffer_size)?;
        socket::setsockopt(&socket, sockopt::RcvBuf, &buffer_size)?;
        socket::setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
        if let Some(idle) = self.keepalive {
            let seconds = idle.as_secs() as u32;
            socket::setsockopt(&socket, sockopt::KeepAlive, &true)?;
            socket::setsockopt(&socket, sockopt::TcpKeepIdle, &seconds)?;
        }
        Ok(())
    }
}

impl Stream {
    /// Connects.
    pub fn connect(server: SocketAddr, settings: &Settings) -> io::Result<Self> {
        if settings.uses_tcp {
            return connect_tcp(server, settings).map(Self::Tcp);
        }
        if !settings.is_nonblocking {
            return RdmaStream::connect_with(server, &settings.of_rdma()).map(Self::Rdma);
        }
        let stream = RdmaStream::connect_nonblocking(&server, &settings.of_rdma())?;
        wait_for(stream.as_fd(), PollFlags::POLLIN, None)?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(Self::Rdma(stream)),
        }
    }

    pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Rdma(stream) => (&mut &*stream).read(bytes),
            Self::Tcp(stream) => (&mut &*stream).read(bytes),
        }
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Rdma(stream) => (&mut &*stream).write(bytes),
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    /// Waits, after a call would have had to, until it is worth another try.
    pub fn wait(&self, side: Side, manner: Manner) -> io::Result<()> {
        let flags = match (self, side) {
            // One sign for both directions.
            (Self::Rdma(_), _) | (Self::Tcp(_), Side::Read) => PollFlags::POLLIN,
            (Self::Tcp(_), Side::Write) => PollFlags::POLLOUT,
        };
        let fd = match self {
            Self::Rdma(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        };
        manner.wait(fd, flags)
    }

    /// Ends both directions. What was written arrives.
    pub fn end(self) {
        // A peer that was faster has ended the stream already.
        let _ = match &self {
            Self::Rdma(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Listener {
    pub fn bind(address: SocketAddr, settings: &Settings) -> io::Result<Self> {
        if settings.uses_tcp {
            let listener = TcpListener::bind(address)?;
            settings.give_to_socket(listener.as_fd())?;
            listener.set_nonblocking(settings.is_nonblocking)?;
            return Ok(Self::Tcp(listener));
        }
        let listener = RdmaListener::bind_with(address, &settings.of_rdma())?;
        listener.set_nonblocking(settings.is_nonblocking)?;
        Ok(Self::Rdma(listener))
    }

    /// Waits for the next client.
    pub fn accept(&self, settings: &Settings) -> io::Result<Stream> {
        loop {
            match self.try_accept(settings) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let fd = match self {
                        Self::Rdma(listener) => listener.as_fd(),
                        Self::Tcp(listener) => listener.as_fd(),
                    };
                    wait_for(fd, PollFlags::POLLIN, None)?;
                }
                outcome => return outcome,
            }
        }
    }

    fn try_accept(&self, settings: &Settings) -> io::Result<Stream> {
        match self {
            Self::Rdma(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(settings.is_nonblocking)?;
                Ok(Stream::Rdma(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                settings.give_to_socket(stream.as_fd())?;
                stream.set_nonblocking(settings.is_nonblocking)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

/// The buffers have to be known before the handshake, and so has the local address.
fn connect_tcp(server: SocketAddr, settings: &Settings) -> io::Result<TcpStream> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket::socket(family, SockType::Stream, flags, None)?;
    settings.give_to_socket(socket.as_fd())?;
    if let Some(source) = settings.source {
        socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(source))?;
    }
    socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(server))?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(settings.is_nonblocking)?;
    Ok(stream)
}
