//! What a connection's end is told as, where no event tells it.

use crate::error::{Error, ErrorKind};

/// The doorbell of an iWARP queue pair that is just ending.
pub(super) fn refused_at_end() -> Error {
    Error::from_errno("post", libc::ENOTCONN)
        .of_kind(ErrorKind::Disconnected)
        .because("the connection ended")
}

/// The end of a connection whose queue pair ended before any event said why.
pub(super) fn ended_of_itself() -> Error {
    Error::new(
        "connection",
        ErrorKind::Disconnected,
        "the connection ended: its queue pair is in the error state",
    )
}

/// A wait on the channel that failed. It is closed by another thread that destroys the id.
pub(super) fn closed_or(operation: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed => destroyed(operation),
        _ => error,
    }
}

pub(super) fn destroyed(operation: &'static str) -> Error {
    Error::new(
        operation,
        ErrorKind::Destroyed,
        "the connection's queue pair or id was destroyed",
    )
}
