//! What the library asks of an executor: to watch a descriptor. All else about waiting without a
//! thread is written for any executor; `tokio` has the adapter of that one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// A descriptor that an executor watches.
pub(crate) trait Watch: Sized {
    /// Begins to watch a descriptor, which nothing else watches.
    fn begin(fd: OwnedFd) -> io::Result<Self>;

    /// Ready when the descriptor has become readable since this was last ready, or was when it began
    /// to be watched. Otherwise the task is woken when it does; of several tasks the last that asked.
    /// What is behind the descriptor is to be looked at after this was ready, never before alone.
    fn poll_sign(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// What one task at a time waits through: each direction of a stream has its own, so that a task
/// which waits no more, and does not say so, keeps no sign from another.
#[derive(Debug)]
pub(crate) struct Waiter<W> {
    number: u64,
    watch: Option<W>,
}

impl<W: Watch> Waiter<W> {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            watch: None,
        }
    }

    /// A number that no other has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// As [`Watch::poll_sign`]. What is watched is made when it is first waited for.
    pub(crate) fn poll_sign(
        &mut self,
        cx: &mut Context<'_>,
        watched: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> Poll<io::Result<()>> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => none.insert(W::begin(watched()?)?),
        };
        watch.poll_sign(cx)
    }
}
