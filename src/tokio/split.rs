//! The two directions of a stream, apart.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::RdmaStream;
use super::linger::Open;
use super::reading::ReadHalf;
use super::watch::Wait;
use super::writing::WriteHalf;

/// The direction of a stream that reads: see [`RdmaStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    pub(super) core: Open,
    wait: Wait,
}

/// The direction of a stream that writes: see [`RdmaStream::into_split`].
#[derive(Debug)]
pub struct OwnedWriteHalf {
    pub(super) core: Open,
    /// Taken where the halves become one again.
    wait: Option<Wait>,
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
    pub(super) fn reader(&mut self) -> ReadHalf<'_> {
        ReadHalf::new(&self.core, &mut self.wait)
    }

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
}

impl OwnedWriteHalf {
    pub(super) fn writer(&mut self) -> WriteHalf<'_> {
        let wait = self.wait.get_or_insert_with(Wait::new);
        WriteHalf::new(&self.core, wait)
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

/// The addresses of the connection, for the stream and each half.
macro_rules! addresses {
    ($type:ty) => {
        impl $type {
            /// The peer's address.
            ///
            /// # Errors
            ///
            /// `NotConnected` where it is not known.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.core.peer_addr()
            }

            /// The local address.
            ///
            /// # Errors
            ///
            /// `NotConnected` where it is not known.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.core.local_addr()
            }
        }
    };
}

addresses!(RdmaStream);
addresses!(OwnedReadHalf);
addresses!(OwnedWriteHalf);

/// Two halves that are not of one stream.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of two streams")
    }
}

impl Error for ReuniteError {}
