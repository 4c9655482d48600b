//! tokio as an executor.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Handle;

use crate::executor::{Waiter, Watch};

/// A descriptor that tokio's reactor watches.
#[derive(Debug)]
pub(super) struct Watched(AsyncFd<OwnedFd>);

/// What a task waits through.
pub(super) type Wait = Waiter<Watched>;

impl Watch for Watched {
    fn begin(fd: OwnedFd) -> io::Result<Self> {
        // tokio would panic.
        Handle::try_current().map_err(io::Error::other)?;
        // Its successor is `unsafe`, for descriptors that can change, as this one cannot, and is not in
        // all versions of tokio that will do.
        #[allow(deprecated)]
        Ok(Self(AsyncFd::with_interest(fd, Interest::READABLE)?))
    }

    fn poll_sign(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The reactor is edge-triggered: what comes after this makes it ready again.
        ready!(self.0.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}
