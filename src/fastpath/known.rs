//! Queues whose provider is known by one comparison.

use std::hint::unreachable_unchecked;

use super::{CompletionQueue, RecvQueue, mlx5, rxe};
use crate::sys::NO_GENERATION;

/// Queues of any provider, of which the ways of two are short.
pub(crate) trait Queues {
    /// rxe's queue.
    type Rxe;
    /// mlx5's queue.
    type Mlx5;

    /// The queue, if it is rxe's.
    fn as_rxe(&mut self) -> Option<&mut Self::Rxe>;

    /// The queue, if it is mlx5's.
    fn as_mlx5(&mut self) -> Option<&mut Self::Mlx5>;
}

/// A queue with what the data path asks of it first: whether this process is the one that made it,
/// and whose it is. Both are one question here: which generation of processes may use the queue as
/// rxe's, and which as mlx5's.
#[derive(Debug)]
pub(crate) struct Known<Q> {
    rxe: u32,
    mlx5: u32,
    generation: u32,
    /// Not replaced without a look at the two numbers above.
    queue: Q,
}

impl<Q: Queues> Known<Q> {
    /// A queue that a process of this generation made.
    pub(crate) fn new(queue: Q, generation: u32) -> Self {
        let mut known = Self {
            rxe: NO_GENERATION,
            mlx5: NO_GENERATION,
            generation,
            queue,
        };
        known.look();
        known
    }

    fn look(&mut self) {
        let only = |is_it| {
            if is_it {
                self.generation
            } else {
                NO_GENERATION
            }
        };
        self.rxe = only(self.queue.as_rxe().is_some());
        self.mlx5 = only(self.queue.as_mlx5().is_some());
    }

    /// The queue, if it is rxe's and was made by a process of the generation `now`, which is that of
    /// this process.
    #[inline(always)]
    pub(crate) fn rxe(&mut self, now: u32) -> Option<&mut Q::Rxe> {
        if now != self.rxe {
            return None;
        }
        match self.queue.as_rxe() {
            // SAFETY: `look` has seen that the queue is rxe's, or the number would be that of no
            // process, and the queue is not changed without another look.
            None => unsafe { unreachable_unchecked() },
            queue => queue,
        }
    }

    /// The same for mlx5.
    #[inline(always)]
    pub(crate) fn mlx5(&mut self, now: u32) -> Option<&mut Q::Mlx5> {
        if now != self.mlx5 {
            return None;
        }
        match self.queue.as_mlx5() {
            // SAFETY: as above.
            None => unsafe { unreachable_unchecked() },
            queue => queue,
        }
    }

    /// The queue, whosever it is.
    pub(crate) fn any(&self) -> &Q {
        &self.queue
    }

    /// Does something to the queue that may make it another's.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Q) -> T) -> T {
        // Also where `change` panics.
        (self.rxe, self.mlx5) = (NO_GENERATION, NO_GENERATION);
        let result = change(&mut self.queue);
        self.look();
        result
    }
}

impl Queues for CompletionQueue {
    type Rxe = rxe::CompletionQueue;
    type Mlx5 = mlx5::CompletionQueue;

    #[inline(always)]
    fn as_rxe(&mut self) -> Option<&mut rxe::CompletionQueue> {
        match self {
            Self::Rxe(queue) => Some(queue),
            _ => None,
        }
    }

    #[inline(always)]
    fn as_mlx5(&mut self) -> Option<&mut mlx5::CompletionQueue> {
        match self {
            Self::Mlx5(queue) => Some(queue),
            _ => None,
        }
    }
}

/// There may be none.
impl Queues for Option<RecvQueue> {
    type Rxe = rxe::RecvQueue;
    type Mlx5 = mlx5::RecvQueue;

    #[inline(always)]
    fn as_rxe(&mut self) -> Option<&mut rxe::RecvQueue> {
        match self {
            Some(RecvQueue::Rxe(queue)) => Some(queue),
            _ => None,
        }
    }

    #[inline(always)]
    fn as_mlx5(&mut self) -> Option<&mut mlx5::RecvQueue> {
        match self {
            Some(RecvQueue::Mlx5(queue)) => Some(queue),
            _ => None,
        }
    }
}
