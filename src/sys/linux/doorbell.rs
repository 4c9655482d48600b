//! The doorbell as the running kernel takes it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU32;

use crate::sys::{DOORBELL_LENGTH, DoorbellCommand};

/// A command with the place of its answer.
#[derive(Debug)]
pub(super) struct Doorbell {
    request: [u8; DOORBELL_LENGTH],
    /// Atomic, since the kernel writes to it while references exist.
    _answer: Box<AtomicU32>,
}

impl Doorbell {
    pub(super) fn new(mut request: [u8; DOORBELL_LENGTH], answer_at: usize) -> Self {
        let answer = Box::new(AtomicU32::new(0));
        let address = answer.as_ptr().expose_provenance() as u64;
        super::put_address(&mut request, answer_at, address);
        Self {
            request,
            _answer: answer,
        }
    }
}

impl DoorbellCommand for Doorbell {
    fn send(&self, fd: BorrowedFd<'_>) -> isize {
        // SAFETY: the request is as long as is said, and the answer, whose address is in it, lives
        // as long.
        unsafe {
            libc::write(
                fd.as_raw_fd(),
                self.request.as_ptr().cast(),
                DOORBELL_LENGTH,
            )
        }
    }
}
