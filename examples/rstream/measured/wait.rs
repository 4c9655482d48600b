//! Waiting for descriptors.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Waits for a descriptor. False when it has nothing within that time.
pub fn wait_for(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    patience: Option<Duration>,
) -> io::Result<bool> {
    let timeout = match patience {
        Some(patience) => PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    match poll(&mut [PollFd::new(fd, flags)], timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::Error::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl super::Manner {
    /// Waits, after a call would have had to, until it is worth another try.
    pub fn wait(self, fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
        match self {
            Self::Blocking | Self::Spinning => {}
            Self::Polling => while !wait_for(fd, flags, Some(Duration::ZERO))? {},
            Self::Sleeping => {
                wait_for(fd, flags, None)?;
            }
        }
        Ok(())
    }
}
