//! Completion channels: waiting for completions instead of polling for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;
use zerocopy::{FromZeros, IntoBytes};

use super::CqToken;
use crate::device::Context;
use crate::error::{Error, Result};
use crate::sys::{Deadline, adopt_fd, wait_readable};

/// A descriptor that tells which completion queues have something new.
///
/// A cheap handle. Its descriptor is readable when an event waits, and fits any event loop.
#[doc(alias = "ibv_comp_channel")]
#[derive(Debug, Clone)]
pub struct CompletionChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    fd: OwnedFd,
    context: Context,
}

impl Context {
    /// Makes a completion channel.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left or the device is gone.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn completion_channel(&self) -> Result<CompletionChannel> {
        let channel = self.private_completion_channel()?;
        // Another thread may take the event that a wait was told of.
        self.kernel()
            .set_nonblocking(channel.as_fd())
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        Ok(channel)
    }

    /// A completion channel whose one user reads it only when it is readable.
    pub(crate) fn private_completion_channel(&self) -> Result<CompletionChannel> {
        let response: uverbs::CreateCompChannelResp = self
            .command(
                uverbs::Command::CREATE_COMP_CHANNEL,
                &uverbs::CreateCompChannel::default(),
            )
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        // SAFETY: the answer to this command is a descriptor that the kernel made for us just now.
        let fd = unsafe { adopt_fd(u64::from(response.fd)) }
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        Ok(CompletionChannel(Arc::new(ChannelInner {
            fd,
            context: self.clone(),
        })))
    }
}

impl CompletionChannel {
    /// Waits for the next event and tells which queue it is of. With `None` it waits for ever.
    /// The queue must have been armed ([`Cq::arm`](super::Cq::arm)), and gives one event per arm.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<CqToken> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(token) = self.try_next_event()? {
                return Ok(token);
            }
            let kernel = &**self.0.context.kernel();
            wait_readable(kernel, "next_cq_event", [self.as_fd()], deadline)?;
        }
    }

    /// The next event if one waits. Does not block.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn try_next_event(&self) -> Result<Option<CqToken>> {
        let operation = "next_cq_event";
        let mut event = uverbs::CompEventDesc::new_zeroed();
        let read = |()| {
            self.0
                .context
                .kernel()
                .read(self.as_fd(), event.as_mut_bytes())
        };
        match self.0.context.check_own().and_then(read) {
            Ok(length) if length == size_of_val(&event) => Ok(Some(CqToken(event.cq_handle))),
            Ok(_) => Err(Error::from_errno(operation, libc::ENODATA)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(Error::from_os(operation, &error)),
            },
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
