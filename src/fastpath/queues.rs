//! The queues of any provider.

use super::request::{PostError, Request, Segment};
use super::{Completion, rxe, siw};

/// The send queue of one queue pair.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
pub(crate) enum SendQueue {
    Rxe(rxe::SendQueue),
    Siw(siw::SendQueue),
}

impl SendQueue {
    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
        }
    }

    /// Builds a request in the queue, without telling the kernel.
    #[inline]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        match self {
            Self::Rxe(queue) => queue.push(request),
            Self::Siw(queue) => queue.push(request),
        }
    }

    /// Forgets the requests that were pushed since the last doorbell.
    #[inline]
    pub(crate) fn discard(&mut self) {
        match self {
            Self::Rxe(queue) => queue.discard(),
            Self::Siw(queue) => queue.discard(),
        }
    }

    /// Hands the pushed requests to the kernel and rings the doorbell, if there are any.
    #[inline]
    pub(crate) fn ring_doorbell(&mut self) -> Result<(), PostError> {
        match self {
            Self::Rxe(queue) => queue.ring_doorbell(),
            Self::Siw(queue) => queue.ring_doorbell(),
        }
    }
}

/// The receive queue of one queue pair, or one that several share.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
pub(crate) enum RecvQueue {
    Rxe(rxe::RecvQueue),
    Siw(siw::RecvQueue),
}

impl RecvQueue {
    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
        }
    }

    /// Posts a receive into `segments`; the kernel sees it at once.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        match self {
            Self::Rxe(queue) => queue.post(wr_id, segments),
            Self::Siw(queue) => queue.post(wr_id, segments),
        }
    }
}

/// A completion queue.
#[derive(Debug)]
#[repr(u8)] // A tag, which an `Option` around it shares: one comparison finds the provider.
pub(crate) enum CompletionQueue {
    Rxe(rxe::CompletionQueue),
    Siw(siw::CompletionQueue),
}

impl CompletionQueue {
    /// How many completions fit.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Rxe(queue) => queue.depth(),
            Self::Siw(queue) => queue.depth(),
        }
    }

    /// Takes out as many completions as there are, up to the length of `entries`, and returns them.
    #[inline(always)]
    pub(crate) fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        match self {
            Self::Rxe(queue) => queue.poll(entries),
            Self::Siw(queue) => queue.poll(entries),
        }
    }

    /// Asks for an event at the next completion where that is a matter of memory. False where the
    /// kernel has to be asked.
    pub(crate) fn arm(&self) -> bool {
        match self {
            Self::Rxe(_) => false,
            Self::Siw(queue) => {
                queue.arm();
                true
            }
        }
    }
}
