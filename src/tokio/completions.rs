//! Completion queues and channels.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::watch::Wait;
use crate::error::Result;
use crate::{Completion, CqToken};

/// A completion queue whose completions a task waits for.
///
/// ```no_run
/// use rdmacm::{Completion, Context};
/// use rdmacm::tokio::Cq;
///
/// # async fn example(context: &Context) -> rdmacm::Result<()> {
/// let channel = context.completion_channel()?;
/// let mut cq = Cq::new(context.completion_queue(64).channel(&channel).build()?)?;
/// // ... make a queue pair with cq.get_ref(), post ...
/// let mut entries = [Completion::default(); 16];
/// for completion in cq.wait(&mut entries).await? {
///     println!("{}", completion.wr_id());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Cq {
    cq: crate::Cq,
    wait: Wait,
}

impl Cq {
    /// Makes a queue to wait for out of one with a channel of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) without a channel, and while other
    /// queues are on it.
    pub fn new(cq: crate::Cq) -> Result<Self> {
        cq.require_channel()?;
        let wait = Wait::new();
        Ok(Self { cq, wait })
    }

    /// Waits for at least one completion, and takes as many as there are, up to the length of
    /// `entries`. A future that is dropped has taken none.
    ///
    /// A peer that goes away causes no completion: a task that waits for a connection's completions
    /// waits for its events as well, with `select!`.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Cq::wait`](crate::Cq::wait).
    pub async fn wait<'e>(&mut self, entries: &'e mut [Completion]) -> Result<&'e [Completion]> {
        let taken = poll_fn(|cx| self.poll_wait(cx, entries)).await?;
        Ok(&entries[..taken])
    }

    /// As [`Cq::wait`], for futures that are written by hand. Returns how many were taken.
    pub fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        entries: &mut [Completion],
    ) -> Poll<Result<usize>> {
        self.cq.poll_wait(cx, &mut self.wait, entries)
    }

    /// The queue, for making queue pairs.
    pub fn get_ref(&self) -> &crate::Cq {
        &self.cq
    }

    /// The queue, for polling it.
    pub fn get_mut(&mut self) -> &mut crate::Cq {
        &mut self.cq
    }

    /// The queue as threads use it.
    pub fn into_inner(self) -> crate::Cq {
        self.cq
    }
}

/// A completion channel whose events a task waits for: for several queues on one channel.
#[derive(Debug)]
pub struct CompletionChannel {
    channel: crate::CompletionChannel,
    wait: Wait,
}

impl CompletionChannel {
    /// Waits for the next event and tells which queue it is of. The queue must have been armed
    /// ([`rdmacm::Cq::arm`](crate::Cq::arm)). A future that is dropped takes no event with it.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub async fn next_event(&mut self) -> Result<CqToken> {
        poll_fn(|cx| self.poll_next_event(cx)).await
    }

    /// As [`CompletionChannel::next_event`], for futures that are written by hand.
    pub fn poll_next_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CqToken>> {
        self.channel.poll_next_event(cx, &mut self.wait)
    }

    /// The channel, for making queues.
    pub fn get_ref(&self) -> &crate::CompletionChannel {
        &self.channel
    }
}

impl From<crate::CompletionChannel> for CompletionChannel {
    fn from(channel: crate::CompletionChannel) -> Self {
        let wait = Wait::new();
        Self { channel, wait }
    }
}
