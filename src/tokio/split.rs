//! The two directions of a stream, apart.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::RdmaStream;
use super::linger::Open;
use super::stream::{poll_read, poll_shutdown, poll_write};
use super::watch::Wait;

/// The direction of a stream that reads: see [`RdmaStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'s> {
    core: &'s Open,
    wait: &'s mut Wait,
}

/// The direction of a stream that writes: see [`RdmaStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'s> {
    core: &'s Open,
    wait: &'s mut Wait,
}

/// The direction of a stream that reads: see [`RdmaStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    core: Open,
    wait: Wait,
}

/// The direction of a stream that writes: see [`RdmaStream::into_split`].
#[derive(Debug)]
pub struct OwnedWriteHalf {
    core: Open,
    /// Taken where the halves become one again.
    wait: Option<Wait>,
}

pub(super) fn borrowed(stream: &mut RdmaStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    let (core, read, write) = (&stream.core, &mut stream.read, &mut stream.write);
    (
        ReadHalf { core, wait: read },
        WriteHalf { core, wait: write },
    )
}

pub(super) fn owned(stream: RdmaStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let RdmaStream { core, read, write } = stream;
    let other = core.clone();
    (
        OwnedReadHalf { core, wait: read },
        OwnedWriteHalf {
            core: other,
            wait: Some(write),
        },
    )
}

impl OwnedReadHalf {
    /// Makes one stream of the two halves again.
    ///
    /// # Errors
    ///
    /// Halves of two streams, which are given back.
    pub fn reunite(self, write: OwnedWriteHalf) -> Result<RdmaStream, ReuniteError> {
        if !self.core.is_same(&write.core) {
            return Err(ReuniteError(self, write));
        }
        let mut write = write;
        Ok(RdmaStream {
            core: self.core,
            read: self.wait,
            write: write.wait.take().unwrap_or_else(Wait::new),
        })
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.core.peer_addr()
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.core.local_addr()
    }
}

impl OwnedWriteHalf {
    /// The peer's address.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.core.peer_addr()
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.core.local_addr()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.wait.is_some() {
            // One that is not connected has nothing to end.
            let _ = self.core.shut_down(false, true);
        }
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        poll_read(this.core, this.wait, cx, buffer)
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        poll_read(&this.core, &mut this.wait, cx, buffer)
    }
}

/// What both halves that write have.
trait Writes: Unpin {
    fn parts(&mut self) -> (&Open, &mut Wait);
}

impl Writes for WriteHalf<'_> {
    fn parts(&mut self) -> (&Open, &mut Wait) {
        (self.core, self.wait)
    }
}

impl Writes for OwnedWriteHalf {
    fn parts(&mut self) -> (&Open, &mut Wait) {
        (&self.core, self.wait.get_or_insert_with(Wait::new))
    }
}

macro_rules! writes {
    ($half:ty) => {
        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                let (core, wait) = self.get_mut().parts();
                poll_write(core, wait, cx, &[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let (core, wait) = self.get_mut().parts();
                poll_write(core, wait, cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            /// Does nothing: what is written is on its way at once.
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let (core, wait) = self.get_mut().parts();
                poll_shutdown(core, wait, cx)
            }
        }
    };
}

writes!(WriteHalf<'_>);
writes!(OwnedWriteHalf);

/// Two halves that are not of one stream.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of two streams")
    }
}

impl Error for ReuniteError {}
