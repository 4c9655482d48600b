//! The queues of any provider.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::request::{PostError, Request, Segment};
use super::{Completion, mlx5, rxe, siw};

/// The send queue of one queue pair.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
pub(crate) enum SendQueue {
    Rxe(rxe::SendQueue),
    Siw(siw::SendQueue),
    Mlx5(mlx5::SendQueue),
}

impl SendQueue {
    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
            Self::Mlx5(queue) => queue.depth(),
        }
    }
}

/// A send queue in which a batch is being built.
#[derive(Debug)]
pub(crate) struct Building<'q> {
    queue: &'q mut Option<SendQueue>,
    /// What was built, if the queue is mlx5's, and only then.
    built: Option<mlx5::Built>,
}

impl<'q> Building<'q> {
    /// Begins a batch. What was built before and not started is forgotten.
    #[inline(always)]
    pub(crate) fn new(queue: &'q mut Option<SendQueue>) -> Self {
        // One comparison after the other, here and below: a table of jumps would cost all more.
        let built = if let Some(SendQueue::Rxe(queue)) = queue {
            queue.discard();
            None
        } else if let Some(SendQueue::Mlx5(queue)) = queue {
            Some(queue.begin())
        } else {
            Unfinished(queue).discard(None);
            None
        };
        Self { queue, built }
    }

    /// Builds a request in the queue, without telling the device, unless `check` refuses it: that is
    /// asked where the queue itself cannot tell that the request may be posted, and always if it is said
    /// that it may be none of the usual ones.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        request: &Request<'_>,
        may_be_usual: impl Fn() -> bool,
        check: impl Fn() -> Result<(), PostError> + Copy,
    ) -> Result<(), PostError> {
        if let Some(SendQueue::Rxe(queue)) = self.queue {
            check()?;
            return queue.push(request);
        }
        // The copies are for the calls' sake: the request itself stays in registers.
        if let Some(SendQueue::Mlx5(queue)) = self.queue
            && let Some(built) = &mut self.built
        {
            if may_be_usual() && queue.push_usual(built, request) {
                return Ok(());
            }
            doubtful(check)?;
            let (now, pushed) = queue.push(*built, &{ *request });
            *built = now;
            return pushed;
        }
        doubtful(check)?;
        push_elsewhere(self.queue, &{ *request })
    }

    /// Hands the requests to the device and rings the doorbell, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) -> Result<(), PostError> {
        if let Some(SendQueue::Rxe(queue)) = self.queue {
            return queue.ring_doorbell();
        }
        if let Some(SendQueue::Mlx5(queue)) = self.queue
            && let Some(built) = self.built
        {
            queue.ring_doorbell(built);
            return Ok(());
        }
        ring_elsewhere(self.queue)
    }

    /// What is to be forgotten when the batch is not started, and where it ends.
    #[inline(always)]
    pub(crate) fn unfinished(&mut self) -> (Unfinished<'_>, Option<u32>) {
        (Unfinished(self.queue), self.built.map(mlx5::Built::end))
    }

    /// Whether a request that is posted after the end of the connection comes back as flushed.
    pub(crate) fn flushes_late_requests(&self) -> bool {
        !matches!(self.queue, Some(SendQueue::Siw(_)))
    }
}

/// A queue with a batch that is not to be started.
#[derive(Debug)]
pub(crate) struct Unfinished<'q>(&'q mut Option<SendQueue>);

impl Unfinished<'_> {
    /// Forgets the batch, which ends where [`Building::unfinished`] says.
    #[cold]
    pub(crate) fn discard(self, end: Option<u32>) {
        match (self.0, end) {
            (Some(SendQueue::Rxe(queue)), _) => queue.discard(),
            (Some(SendQueue::Siw(queue)), _) => queue.discard(),
            (Some(SendQueue::Mlx5(queue)), Some(end)) => queue.discard(end),
            (Some(SendQueue::Mlx5(_)), None) | (None, _) => {}
        }
    }
}

/// A check that is seldom made, apart from what is done often.
#[cold]
#[inline(never)]
fn doubtful(check: impl Fn() -> Result<(), PostError>) -> Result<(), PostError> {
    check()
}

#[cold]
#[inline(never)]
fn push_elsewhere(queue: &mut Option<SendQueue>, request: &Request<'_>) -> Result<(), PostError> {
    match queue {
        Some(SendQueue::Siw(queue)) => queue.push(request),
        _ => Err(PostError::NoQueue),
    }
}

#[inline(never)]
fn ring_elsewhere(queue: &mut Option<SendQueue>) -> Result<(), PostError> {
    match queue {
        Some(SendQueue::Siw(queue)) => queue.ring_doorbell(),
        _ => Ok(()),
    }
}

/// The receive queue of one queue pair, or one that several share.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
pub(crate) enum RecvQueue {
    Rxe(rxe::RecvQueue),
    Siw(siw::RecvQueue),
    Mlx5(mlx5::RecvQueue),
    Mlx5Shared(mlx5::SharedRecvQueue),
    /// A queue that the kernel made larger or smaller and that could not be mapped then. It has no
    /// more than this many receives, and takes none.
    Unmapped(u32),
}

impl RecvQueue {
    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
            Self::Mlx5(queue) => queue.depth(),
            Self::Mlx5Shared(queue) => queue.depth(),
            Self::Unmapped(_) => 0,
        }
    }

    /// How many receives no message has come for yet, at most.
    pub(crate) fn waiting(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.waiting(),
            Self::Siw(queue) => queue.depth(),
            Self::Mlx5(queue) => queue.waiting(),
            Self::Mlx5Shared(queue) => queue.depth(),
            Self::Unmapped(receives) => *receives,
        }
    }

    /// Posts a receive into `segments`; the device sees it at once.
    #[inline(never)]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        self.push(wr_id, segments)?;
        self.publish();
        Ok(())
    }

    /// Posts receives, and stops at the first that is refused: says how many were posted, and why
    /// no more. The kernel sees them at the end, where the queue has an index to tell it.
    pub(crate) fn post_list<'r>(
        &mut self,
        receives: impl Iterator<Item = (u64, &'r [Segment])>,
    ) -> Result<(), (usize, PostError)> {
        // Publishes what was pushed also when the program's iterator panics.
        let queue = Publishing(self);
        for (index, (wr_id, segments)) in receives.enumerate() {
            let pushed = queue.0.push(wr_id, segments);
            pushed.map_err(|refused| (index, refused))?;
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        match self {
            Self::Rxe(queue) => queue.push(wr_id, segments),
            Self::Siw(queue) => queue.post(wr_id, segments),
            Self::Mlx5(queue) => queue.push(wr_id, segments),
            Self::Mlx5Shared(queue) => queue.push(wr_id, segments),
            Self::Unmapped(_) => Err(PostError::QueueFull { depth: 0 }),
        }
    }

    #[inline(always)]
    fn publish(&mut self) {
        match self {
            Self::Rxe(queue) => queue.publish(),
            Self::Mlx5(queue) => queue.publish(),
            Self::Mlx5Shared(queue) => queue.publish(),
            // Its elements go one by one.
            Self::Siw(_) | Self::Unmapped(_) => {}
        }
    }
}

struct Publishing<'q>(&'q mut RecvQueue);

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.publish();
    }
}

/// A completion queue.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be one more load for each poll; a program has few queues"
)]
pub(crate) enum CompletionQueue {
    Rxe(rxe::CompletionQueue),
    Siw(siw::CompletionQueue),
    Mlx5(mlx5::CompletionQueue),
    /// A queue that the kernel made larger or smaller and that could not be mapped then. Its
    /// completions wait for it to be mapped.
    Unmapped,
}

impl CompletionQueue {
    /// How many completions fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
            Self::Mlx5(queue) => queue.depth(),
            Self::Unmapped => 0,
        }
    }

    /// How many completions there are for certain. More may come at any time.
    pub(crate) fn waiting(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.waiting(),
            Self::Mlx5(queue) => queue.waiting(),
            Self::Siw(_) | Self::Unmapped => 0,
        }
    }

    /// Where the completions that there are now end.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.end(),
            Self::Siw(queue) => queue.end(),
            Self::Mlx5(queue) => queue.end(),
            Self::Unmapped => 0,
        }
    }

    /// Takes the next completion before `end`.
    #[inline]
    pub(crate) fn next_before(&mut self, end: u32) -> Option<Completion> {
        match self {
            Self::Rxe(queue) => queue.next_before(end),
            Self::Siw(queue) => queue.next_before(end),
            Self::Mlx5(queue) => queue.next_before(end),
            Self::Unmapped => None,
        }
    }

    /// Gives the slots that `next_before` emptied to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        match self {
            Self::Rxe(queue) => queue.give_back(),
            Self::Mlx5(queue) => queue.give_back(),
            // Each slot went back when it was emptied.
            Self::Siw(_) | Self::Unmapped => {}
        }
    }

    /// Takes out as many completions as there are, up to the length of `entries`, and returns them.
    #[inline(never)]
    pub(crate) fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        match self {
            Self::Rxe(queue) => queue.poll(entries),
            Self::Siw(queue) => queue.poll(entries),
            Self::Mlx5(queue) => queue.poll(entries),
            Self::Unmapped => &[],
        }
    }

    /// Asks for an event at the next completion where that is a matter of memory. False where the
    /// kernel has to be asked.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        match self {
            Self::Rxe(_) | Self::Unmapped => return false,
            Self::Siw(queue) => queue.arm(),
            Self::Mlx5(queue) => queue.arm(solicited_only),
        }
        true
    }

    /// What is to be held while the queue is resized, where the library moves it itself.
    pub(crate) fn directory(&self) -> Option<Arc<mlx5::Directory>> {
        match self {
            Self::Mlx5(queue) => Some(Arc::clone(queue.directory())),
            Self::Rxe(_) | Self::Siw(_) | Self::Unmapped => None,
        }
    }

    /// Takes out what queue pairs left that are gone.
    pub(crate) fn catch_up(&mut self, held: Option<&mut mlx5::Held<'_>>) {
        if let (Self::Mlx5(queue), Some(held)) = (self, held) {
            queue.catch_up_with(held);
        }
    }

    /// What counts the events of the queue that are read, where the device wants to know.
    pub(crate) fn events(&self) -> Option<&Arc<AtomicU32>> {
        match self {
            Self::Mlx5(queue) => Some(queue.events()),
            Self::Rxe(_) | Self::Siw(_) | Self::Unmapped => None,
        }
    }
}
