//! Ending a wait from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{fork_generation, is_inherited};

/// A descriptor that is readable after [`Wake::raise`], for waiting on it beside others.
#[derive(Debug)]
pub(crate) struct Wake {
    fd: EventFd,
    generation: u32,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            fd: EventFd::from_flags(flags)?,
            generation: fork_generation(),
        })
    }

    /// Ends the waits, until [`Wake::calm`]. A forked child shares the descriptor and leaves its
    /// parent alone.
    pub(crate) fn raise(&self) {
        if !is_inherited(self.generation) {
            // A counter that is full is raised already.
            let _ = self.fd.write(1);
        }
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn calm(&self) {
        if !is_inherited(self.generation) {
            // It may be calm already.
            let _ = self.fd.read();
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
