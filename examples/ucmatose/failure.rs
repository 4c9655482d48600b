//! What ends the program early.

use std::error::Error;
use std::fmt;

use rdmacm::{Event, Status};

use crate::say;

pub type Result<T> = std::result::Result<T, Failure>;

/// A text for people, and the number that the C program prints: an event's status, or −1.
#[derive(Debug)]
pub struct Failure {
    status: i32,
    cause: Box<dyn Error>,
}

impl Failure {
    /// An event that is none of those that were hoped for, which is printed as the C program does.
    pub fn of_event(event: Event) -> Self {
        let status = match event.status() {
            Status::Rejected(reason) => reason.0.cast_signed(),
            Status::Errno(errno) => -errno,
            _ => 0,
        };
        let name = event.name();
        let _ = say(format_args!(
            "cmatose: event: RDMA_CM_EVENT_{name}, error: {status}"
        ));
        Self {
            // An event without a status ends the program as well.
            status: if status == 0 { -1 } else { status },
            cause: event.into_error("connect").into(),
        }
    }

    pub fn new(text: impl Into<String>) -> Self {
        Self {
            status: -1,
            cause: text.into().into(),
        }
    }

    pub fn status(&self) -> i32 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            status: -1,
            cause: error.into(),
        }
    }
}
