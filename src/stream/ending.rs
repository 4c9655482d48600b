//! How the end of a stream is told.

use std::fmt;
use std::io;

use crate::error::{Error, ErrorKind};

/// The peer does not keep to the protocol.
pub(super) fn of_violation(violation: impl fmt::Display) -> Error {
    Error::new(
        "stream",
        ErrorKind::Protocol,
        format!("the connection was ended: {violation}"),
    )
}

/// The queue pair does no more, and nobody said why.
pub(super) fn of_queue_pair() -> Error {
    Error::new(
        "stream",
        ErrorKind::Disconnected,
        "the connection ended: its queue pair failed",
    )
}

/// The connection is gone without a goodbye.
pub(super) fn of_lost(error: &Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Rejected | ErrorKind::Destroyed | ErrorKind::Closed => {
            io::ErrorKind::ConnectionReset
        }
        ErrorKind::WorkFailed => io::ErrorKind::ConnectionReset,
        _ => return error.clone().into(),
    };
    io::Error::new(kind, error.clone())
}

/// One of the two sides has ended what is to be written to.
pub(super) fn of_writing() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the stream was shut down: nothing can be written any more",
    )
}

/// The peer has mapped nothing at an offset that is to be written to.
pub(super) fn of_unmapped(offset: u64) -> io::Error {
    let text = format!("the peer has mapped no memory at offset {offset:#x}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
