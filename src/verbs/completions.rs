//! Completions one by one.

use crate::fastpath::{Completion, CompletionQueue};
use crate::sys::is_inherited;

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
    /// Which process made the queue.
    generation: u32,
}

impl<'q> Completions<'q> {
    pub(super) fn of(queue: &'q mut CompletionQueue, generation: u32) -> Self {
        let queue = (!is_inherited(generation)).then_some(queue);
        let end = queue.as_ref().map_or(0, |queue| queue.end());
        Self {
            queue,
            end,
            generation,
        }
    }

    /// Taking a completion may give its place back.
    #[inline(never)]
    fn next_elsewhere(&mut self) -> Option<Completion> {
        match &mut self.queue {
            Some(queue) if !is_inherited(self.generation) => queue.next_before(self.end),
            _ => None,
        }
    }
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        match &mut self.queue {
            Some(CompletionQueue::Rxe(queue)) => queue.next_before(self.end),
            Some(CompletionQueue::Mlx5(queue)) if !is_inherited(self.generation) => {
                queue.next_before(self.end)
            }
            _ => self.next_elsewhere(),
        }
    }
}

impl std::iter::FusedIterator for Completions<'_> {}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        match &mut self.queue {
            // The process may have been forked meanwhile.
            Some(queue) if !is_inherited(self.generation) => queue.give_back(),
            _ => {}
        }
    }
}
