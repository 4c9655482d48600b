//! Waiting for several descriptors through one.

use std::io;
#[cfg(feature = "tokio")]
use std::os::fd::OwnedFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::Deadline;
use crate::error::{Error, Result};

/// Descriptors that are waited for together. It is a descriptor itself, readable while one of them
/// is, so that event loops have one to watch.
#[derive(Debug)]
pub(crate) struct Readiness(Epoll);

/// Which of the descriptors are readable, by the numbers that they are watched under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readable(u64);

impl Readable {
    pub(crate) fn has(self, number: u8) -> bool {
        self.0 & 1 << number != 0
    }

    pub(crate) fn is_any(self) -> bool {
        self.0 != 0
    }
}

impl Readiness {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches a descriptor under a number below 64; several may have the same.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, number: u8) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, number.into());
        Ok(self.0.add(fd, event)?)
    }

    /// As [`Readiness::watch`], but tells once of each time that there is more to read.
    pub(crate) fn watch_edges(&self, fd: BorrowedFd<'_>, number: u8) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        Ok(self.0.add(fd, EpollEvent::new(flags, number.into()))?)
    }

    /// Also tells when there is room to write to a descriptor that is watched, or no longer.
    pub(crate) fn watch_room(
        &self,
        fd: BorrowedFd<'_>,
        number: u8,
        wanted: bool,
    ) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, wanted);
        Ok(self
            .0
            .modify(fd, &mut EpollEvent::new(flags, number.into()))?)
    }

    /// The descriptor, for who watches it and does not ask what is readable.
    #[cfg(feature = "tokio")]
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0.0
    }

    /// Another descriptor of the same readiness, for who watches each only once.
    #[cfg(feature = "tokio")]
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    /// Watches a descriptor no more. One that is closed everywhere is not watched of itself.
    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) {
        // It is gone in any case.
        let _ = self.0.delete(fd);
    }

    /// What is readable now.
    pub(crate) fn look(&self, operation: &'static str) -> Result<Readable> {
        self.wait_for(EpollTimeout::ZERO)
            .map_err(|error| Error::from_os(operation, &error))
    }

    /// Waits until something is readable; nothing is when the deadline came first.
    pub(crate) fn wait(&self, operation: &'static str, deadline: Deadline) -> Result<Readable> {
        loop {
            let remaining = deadline.remaining();
            let readable = self
                .wait_for(timeout(remaining))
                .map_err(|error| Error::from_os(operation, &error))?;
            if readable.is_any() || remaining == Some(Duration::ZERO) {
                return Ok(readable);
            }
        }
    }

    fn wait_for(&self, timeout: EpollTimeout) -> io::Result<Readable> {
        let mut events = [EpollEvent::empty(); 8];
        match self.0.wait(&mut events, timeout) {
            Ok(count) => {
                let numbers = events[..count].iter().map(|event| 1 << (event.data() & 63));
                Ok(Readable(numbers.fold(0, |all, one| all | one)))
            }
            Err(Errno::EINTR) => Ok(Readable(0)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Rounded up to the milliseconds that the kernel takes, and no longer than it can.
fn timeout(remaining: Option<Duration>) -> EpollTimeout {
    match remaining {
        None => EpollTimeout::NONE,
        Some(rest) => {
            let milliseconds = rest.as_nanos().div_ceil(1_000_000);
            let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
            EpollTimeout::try_from(milliseconds).unwrap_or(EpollTimeout::ZERO)
        }
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Wake;

    #[test]
    fn what_is_readable_is_told_by_its_number() {
        let readiness = Readiness::new().unwrap();
        let (one, other) = (Wake::new().unwrap(), Wake::new().unwrap());
        readiness.watch(one.as_fd(), 3).unwrap();
        readiness.watch(other.as_fd(), 5).unwrap();
        assert!(!readiness.look("test").unwrap().is_any());
        other.raise();
        let readable = readiness.wait("test", Deadline::after(None)).unwrap();
        assert!(readable.has(5) && !readable.has(3));
        readiness.forget(other.as_fd());
        assert!(!readiness.look("test").unwrap().is_any());
    }

    #[test]
    fn room_is_told_of_while_it_is_wanted() {
        let readiness = Readiness::new().unwrap();
        let wake = Wake::new().unwrap();
        readiness.watch(wake.as_fd(), 3).unwrap();
        readiness.watch_room(wake.as_fd(), 3, true).unwrap();
        assert!(readiness.look("test").unwrap().has(3));
        readiness.watch_room(wake.as_fd(), 3, false).unwrap();
        assert!(!readiness.look("test").unwrap().is_any());
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let readiness = Readiness::new().unwrap();
        let deadline = Deadline::after(Some(Duration::from_millis(3)));
        assert!(!readiness.wait("test", deadline).unwrap().is_any());
        assert_eq!(deadline.remaining(), Some(Duration::ZERO));
    }

    #[test]
    fn the_longest_timeout_is_the_kernels() {
        assert_eq!(timeout(None), EpollTimeout::NONE);
        assert_eq!(timeout(Some(Duration::ZERO)), EpollTimeout::ZERO);
        let long = timeout(Some(Duration::MAX));
        assert_eq!(long, EpollTimeout::try_from(i32::MAX).unwrap());
        let short = timeout(Some(Duration::from_micros(1)));
        assert_eq!(short, EpollTimeout::try_from(1).unwrap());
    }
}
