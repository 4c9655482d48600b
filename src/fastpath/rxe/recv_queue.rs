//! The receive queue, of a queue pair or shared.

use std::sync::Arc;

use rdmacm_kernel_abi::rxe;

use super::memory::{message, write_segments};
use super::ring::Producer;
use crate::error::Error;
use crate::fastpath::request::{PostError, Segment, total_length};
use crate::sys::Mapping;

/// The receive queue of one queue pair, or one that several share.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    ring: Producer,
    max_segments: u32,
}

impl RecvQueue {
    /// Takes the ring over. `max_segments` is what the kernel granted.
    pub(crate) fn new(mapping: Arc<Mapping>, max_segments: u32) -> Result<Self, Error> {
        let element = size_of::<rxe::RecvWqe>() + max_segments as usize * size_of::<rxe::Sge>();
        Ok(Self {
            ring: Producer::new(mapping, element)?,
            max_segments,
        })
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// How many receives no message has come for yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }

    /// Puts a receive into the ring, without telling the kernel.
    #[inline(always)]
    pub(crate) fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        match segments {
            [segment] if self.max_segments > 0 => {
                self.build(wr_id, &[*segment], message(segment.length, 1))
            }
            // Apart, as in the send queue.
            _ => self.push_segments(wr_id, segments),
        }
    }

    #[inline(never)]
    fn push_segments(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments {
                segments: segments.len(),
                max: self.max_segments,
            });
        }
        let message = message(total_length(segments)?, segments.len() as u32);
        self.build(wr_id, segments, message)
    }

    /// Builds a receive of no more than `max_segments`.
    #[inline(always)]
    fn build(
        &mut self,
        wr_id: u64,
        segments: &[Segment],
        message: rxe::DmaInfo,
    ) -> Result<(), PostError> {
        let Some(slot) = self.ring.free_slot() else {
            return Err(self.full());
        };
        let at = self.ring.address(&slot);
        let wqe = at.cast::<rxe::RecvWqe>().as_ptr();
        // SAFETY: the slot is ours until `publish`, and `new` checked that it holds a `RecvWqe`
        // with `max_segments` segments behind it; aligned as for the send queue. The two reserved
        // fields are zero from the beginning.
        unsafe {
            write_segments(at.add(size_of::<rxe::RecvWqe>()), segments);
            (&raw mut (*wqe).wr_id).write(wr_id);
            (&raw mut (*wqe).dma).write(message);
        }
        self.ring.advance(slot);
        Ok(())
    }

    /// Tells the kernel of the receives in the ring.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.publish();
    }

    #[cold]
    fn full(&self) -> PostError {
        PostError::QueueFull {
            depth: self.ring.depth(),
        }
    }
}
