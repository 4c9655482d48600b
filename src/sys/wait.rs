//! Waiting with a deadline.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::Kernel;
use crate::error::{Error, ErrorKind, Result};

/// The moment at which a wait gives up; none waits for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    timeout: Option<Duration>,
}

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self {
            start: Instant::now(),
            timeout,
        }
    }

    /// What is left of the time: `None` when there is no limit, zero when it is over.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.timeout
            .map(|timeout| timeout.saturating_sub(self.start.elapsed()))
    }

    /// The error of a wait that was given what remained of this deadline. That wait ran out of the
    /// rest; what the caller set is the whole.
    pub(crate) fn as_a_whole(&self, operation: &'static str, error: Error) -> Error {
        let is_own = error.kind() == ErrorKind::TimedOut && error.errno().is_none();
        if is_own {
            self.expired(operation)
        } else {
            error
        }
    }

    /// The error of an operation that this deadline ended.
    pub(crate) fn expired(&self, operation: &'static str) -> Error {
        Error::timed_out(operation, self.timeout.unwrap_or(Duration::MAX))
    }
}

fn reports(polled: &PollFd<'_>, flags: PollFlags) -> bool {
    // Bits that nobody knows are taken for an error.
    let reported = polled.revents().unwrap_or(PollFlags::POLLERR);
    reported.intersects(flags)
}

/// Waits until one of `fds` is readable, and says which. Signals do not end the wait. The deadline
/// ends it with the error of an `operation` that ran out of time. When nothing is readable and one
/// is in error, as after the removal of a device, it ends with `EIO`: it would never end otherwise.
pub(crate) fn wait_readable<const N: usize>(
    kernel: &dyn Kernel,
    operation: &'static str,
    fds: [BorrowedFd<'_>; N],
    deadline: Deadline,
) -> Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        let remaining = deadline.remaining();
        match kernel.poll(&mut polled, remaining) {
            Ok(()) => {
                let ready = std::array::from_fn(|i| reports(&polled[i], PollFlags::POLLIN));
                if ready.contains(&true) {
                    return Ok(ready);
                }
                if polled.iter().any(|fd| reports(fd, PollFlags::all())) {
                    return Err(Error::from_errno(operation, libc::EIO));
                }
                if remaining == Some(Duration::ZERO) {
                    return Err(deadline.expired(operation));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::from_os(operation, &error)),
        }
    }
}
