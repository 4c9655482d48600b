//! Descriptors that events are read from, one record at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use super::Context;
use crate::error::{Error, Result};
use crate::sys::{Deadline, wait_readable};

/// A completion channel, or a stream of asynchronous events.
#[derive(Debug)]
pub(crate) struct EventFile {
    /// The context's as well, where there is only one stream of asynchronous events.
    fd: Arc<OwnedFd>,
    context: Context,
}

impl EventFile {
    pub(crate) fn new(fd: impl Into<Arc<OwnedFd>>, context: Context) -> Self {
        let fd = fd.into();
        Self { fd, context }
    }

    /// The next record; waits for it as long as `timeout` allows, for ever with `None`. The file
    /// must be non-blocking: another thread may take the record that the wait was told of.
    pub(crate) fn next<Record: FromBytes + IntoBytes>(
        &self,
        operation: &'static str,
        timeout: Option<Duration>,
    ) -> Result<Record> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(record) = self.try_next(operation)? {
                return Ok(record);
            }
            self.wait(operation, deadline)?;
        }
    }

    /// The next record if one is there.
    pub(crate) fn try_next<Record: FromBytes + IntoBytes>(
        &self,
        operation: &'static str,
    ) -> Result<Option<Record>> {
        let mut record = Record::new_zeroed();
        let bytes = record.as_mut_bytes();
        let wanted = bytes.len();
        let read = |()| self.context.kernel().read(self.as_fd(), bytes);
        match self.context.check_own().and_then(read) {
            Ok(length) if length == wanted => Ok(Some(record)),
            Ok(_) => Err(Error::from_errno(operation, libc::ENODATA)),
            // A signal came before a record did.
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(Error::from_os(operation, &error)),
            },
        }
    }

    /// Waits until a record may be there.
    pub(crate) fn wait(&self, operation: &'static str, deadline: Deadline) -> Result<()> {
        let kernel = &**self.context.kernel();
        wait_readable(kernel, operation, [self.as_fd()], deadline).map(drop)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
