//! Completions one by one.

use crate::fastpath::{Completion, CompletionQueue};

/// The completions that a queue holds, one by one: see [`Cq::completions`](crate::Cq::completions).
///
/// Dropping it gives the places of those that were taken back to the device. The others stay in
/// the queue.
#[doc(alias = "ibv_end_poll")]
#[derive(Debug)]
pub struct Completions<'q> {
    /// None in a forked child, whose parent has the completions.
    queue: Option<&'q mut CompletionQueue>,
    end: u32,
}

impl<'q> Completions<'q> {
    pub(super) fn of(queue: Option<&'q mut CompletionQueue>) -> Self {
        let end = queue.as_ref().map_or(0, |queue| queue.end());
        Self { queue, end }
    }
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        self.queue.as_mut()?.next_before(self.end)
    }
}

impl std::iter::FusedIterator for Completions<'_> {}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.give_back();
        }
    }
}
