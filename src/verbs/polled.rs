//! How tasks wait for completions, whatever executor they run on.

use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use super::{CompletionChannel, Cq};
use crate::device::CqToken;
use crate::error::{Error, Result};
use crate::executor::{Waiter, Watch};
use crate::fastpath::Completion;

impl Cq {
    /// As [`Cq::wait`]: how many completions were taken, as soon as there are some. The channel must be
    /// non-blocking.
    pub(crate) fn poll_wait<W: Watch>(
        &mut self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        entries: &mut [Completion],
    ) -> Poll<Result<usize>> {
        if entries.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let channel = self.require_channel()?.clone();
            let taken = self.poll_or_arm(entries)?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            ready!(channel.poll_sign(cx, waiter))?;
            // One is all: there is one for each time that the queue is armed.
            self.take_event()?;
        }
    }
}

impl CompletionChannel {
    /// The next event, as soon as one comes. The channel must be non-blocking.
    pub(crate) fn poll_next_event<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<Result<CqToken>> {
        loop {
            if let Some(event) = self.try_next_event()? {
                return Poll::Ready(Ok(event));
            }
            ready!(self.poll_sign(cx, waiter))?;
        }
    }

    fn poll_sign<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<Result<()>> {
        let sign = waiter.poll_sign(cx, || self.as_fd().try_clone_to_owned());
        sign.map_err(|error| Error::from_os("wait", &error))
    }
}
