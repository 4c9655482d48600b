//! The receive queue of one queue pair.

use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::mlx5::{DataSeg, INVALID_LKEY, RCV_DBR, WQ_COUNTER_MASK};

use super::doorbell;
use super::posted::{FIRST, Receives};
use super::record::Record;
use super::sizes::RecvSize;
use super::wqe::data;
use crate::fastpath::request::{PostError, Segment, total_length};

/// The receive queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    receives: Arc<Receives>,
    record: Arc<Record>,
    size: RecvSize,
    /// The number of the next receive.
    pushed: u64,
    /// The number behind the last that was done when that was last looked up.
    done: u64,
    resets: u32,
}

impl RecvQueue {
    pub(super) fn new(receives: Arc<Receives>, record: Arc<Record>, size: RecvSize) -> Self {
        Self {
            receives,
            record,
            size,
            pushed: FIRST,
            done: FIRST,
            resets: 0,
        }
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.depth
    }

    /// How many receives no message has come for yet, at most.
    pub(crate) fn waiting(&self) -> u32 {
        // After a reset the last one that is done is from before.
        let done = self.receives.done().max(self.done);
        self.pushed.saturating_sub(done) as u32
    }

    /// Posts a receive; the device sees it at once. Of one segment, with room for it, that takes few
    /// steps.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        let has_room = self.pushed < self.done + u64::from(self.size.depth);
        match segments {
            [segment] if has_room && !segment.is_empty() && !self.was_reset() => {
                let to = self
                    .receives
                    .memory
                    .at(self.pushed as u32)
                    .cast::<DataSeg>();
                // SAFETY: the element has room for a segment, and for another where it takes more, and
                // is nobody's: its receive is done.
                unsafe {
                    to.write(data(segment, segment.length));
                    if self.size.max_segments > 1 {
                        to.add(1).write(END);
                    }
                }
                self.receives.note(self.pushed, wr_id);
                self.pushed += 1;
            }
            _ => self.push(wr_id, segments)?,
        }
        self.publish();
        Ok(())
    }

    fn was_reset(&self) -> bool {
        self.receives.resets() != self.resets
    }

    /// Writes a receive into the queue, without telling the device.
    pub(crate) fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if self.was_reset() {
            self.restart();
        }
        let depth = u64::from(self.size.depth);
        if self.pushed >= self.done + depth {
            self.done = self.receives.done().max(self.done);
            if self.pushed >= self.done + depth {
                return Err(PostError::QueueFull {
                    depth: self.size.depth,
                });
            }
        }
        check_segments(segments, self.size.max_segments)?;
        let to = self.receives.memory.at(self.pushed as u32).cast();
        // SAFETY: the element has room for so many segments as `max_segments`, and is nobody's: its
        // receive is done.
        unsafe { write_scatter_list(to, segments, self.size.max_segments) };
        self.receives.note(self.pushed, wr_id);
        self.pushed += 1;
        Ok(())
    }

    /// Tells the device of the pushed receives.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // The receives before their count.
        doorbell::order_memory();
        self.record
            .set(RCV_DBR as usize, self.pushed as u32 & WQ_COUNTER_MASK);
    }

    /// Begins anew after the queue pair was reset.
    #[cold]
    fn restart(&mut self) {
        self.resets = self.receives.resets();
        // Once more: a receive may have been pushed while the queue pair was reset.
        self.receives.forget();
        self.pushed = self.pushed.next_multiple_of(FIRST);
        self.done = self.pushed;
    }
}

/// # Errors
///
/// More segments than `max`, and more bytes than a message has.
#[inline(always)]
pub(super) fn check_segments(segments: &[Segment], max: u32) -> Result<(), PostError> {
    match segments {
        [_] | [] => Ok(()),
        _ if segments.len() > max as usize => Err(PostError::TooManySegments {
            segments: segments.len(),
            max,
        }),
        _ => total_length(segments).map(drop),
    }
}

/// Writes where a message is to go. Segments of no bytes are left out, since their length would mean
/// 2 GiB; a list that is not full ends with a key that is none.
///
/// # Safety
///
/// `to` must be valid for writes of `max` segments, of which there are no more, and 16-aligned.
#[inline(always)]
pub(super) unsafe fn write_scatter_list(to: NonNull<DataSeg>, segments: &[Segment], max: u32) {
    let mut count = 0;
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        // SAFETY: by the caller.
        unsafe { to.add(count).write(data(segment, segment.length)) };
        count += 1;
    }
    if count < max as usize {
        // SAFETY: by the caller: one more fits.
        unsafe { to.add(count).write(END) };
    }
}

/// The end of a list that is not full.
const END: DataSeg = DataSeg {
    byte_count: zerocopy::byteorder::big_endian::U32::ZERO,
    lkey: zerocopy::byteorder::big_endian::U32::new(INVALID_LKEY),
    addr: zerocopy::byteorder::big_endian::U64::ZERO,
};
