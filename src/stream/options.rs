//! What can be changed of a stream while it exists.

use std::time::{Duration, Instant};

use super::settings::StreamSettings;
use crate::sys::Deadline;

#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub is_nonblocking: bool,
    pub read_timeout: Option<Duration>,
    pub write_timeout: Option<Duration>,
    pub linger: Duration,
    pub spin: Duration,
    pub keepalive: Option<Duration>,
}

impl Options {
    pub(super) fn of(settings: &StreamSettings) -> Self {
        Self {
            is_nonblocking: false,
            read_timeout: None,
            write_timeout: None,
            linger: settings.linger,
            spin: settings.spin,
            keepalive: settings.keepalive,
        }
    }

    /// How long calls wait.
    pub(super) fn timeout(&self, side: Side) -> Option<Duration> {
        match side {
            Side::Read => self.read_timeout,
            Side::Write | Side::Sent => self.write_timeout,
        }
    }

    /// When a sleep is to end, so that the peer can be looked after.
    pub(super) fn wake_up_by(&self, deadline: Deadline, idle_since: Instant) -> Deadline {
        let Some(idle) = self.keepalive else {
            return deadline;
        };
        let left = idle.saturating_sub(idle_since.elapsed());
        match deadline.remaining() {
            Some(rest) if rest <= left => deadline,
            _ => Deadline::after(Some(left)),
        }
    }
}

/// What a call wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Write,
    /// That registered memory was sent.
    Sent,
}

impl Side {
    pub(super) fn operation(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sent => "wait_sent",
        }
    }
}
