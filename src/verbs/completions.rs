//! Completions one by one.

use crate::fastpath::{Completion, CompletionQueue, Known};
use crate::sys::{generation, is_inherited};

/// The completions that a queue holds, one by one: see [`Cq::completions`](crate::Cq::completions).
///
/// Dropping it gives the places of those that were taken back to the device. The others stay in
/// the queue.
#[doc(alias = "ibv_end_poll")]
#[derive(Debug)]
pub struct Completions<'q> {
    queue: &'q mut Known<CompletionQueue>,
    end: u32,
    /// Which process made the queue.
    generation: u32,
}

impl<'q> Completions<'q> {
    pub(super) fn of(queue: &'q mut Known<CompletionQueue>, generation: u32) -> Self {
        // In a forked child, whose parent has the completions, it is not used.
        let end = queue.any().end();
        Self {
            queue,
            end,
            generation,
        }
    }

    /// Taking a completion may give its place back.
    #[inline(never)]
    fn next_elsewhere(&mut self) -> Option<Completion> {
        let end = self.end;
        match is_inherited(self.generation) {
            true => None,
            false => self.queue.change(|queue| queue.next_before(end)),
        }
    }
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        let now = generation();
        if let Some(queue) = self.queue.rxe(now) {
            return queue.next_before(self.end);
        }
        if let Some(queue) = self.queue.mlx5(now) {
            return queue.next_before(self.end);
        }
        self.next_elsewhere()
    }
}

impl std::iter::FusedIterator for Completions<'_> {}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        // The process may have been forked meanwhile.
        if !is_inherited(self.generation) {
            self.queue.change(CompletionQueue::give_back);
        }
    }
}
