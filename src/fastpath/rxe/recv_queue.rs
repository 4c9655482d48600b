//! The receive queue, of a queue pair or shared.

use std::sync::Arc;

use rdmacm_kernel_abi::rxe;

use super::memory::{dma, write_payload};
use super::ring::Producer;
use crate::error::Error;
use crate::fastpath::request::{Payload, PostError, Segment, total_length};
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

    /// Posts a receive into `segments`; the kernel sees it at once.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments {
                segments: segments.len(),
                max: self.max_segments,
            });
        }
        let length = total_length(segments)?;
        let depth = self.ring.depth();
        let slot = self
            .ring
            .free_slot()
            .ok_or(PostError::QueueFull { depth })?;
        let wqe = rxe::RecvWqe {
            wr_id,
            dma: dma(length, segments.len() as u32),
            ..Default::default()
        };
        // SAFETY: the slot is ours until `publish`, and `new` checked that it holds a `RecvWqe`
        // with `max_segments` segments behind it; aligned as for the send queue.
        unsafe {
            slot.cast::<rxe::RecvWqe>().write(wqe);
            write_payload(
                slot.add(size_of::<rxe::RecvWqe>()),
                Payload::Segments(segments),
            );
        }
        self.ring.advance();
        self.ring.publish();
        Ok(())
    }
}
