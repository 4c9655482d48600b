//! The receive queue of one queue pair.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rdmacm_kernel_abi::mlx5::{DataSeg, INVALID_LKEY, RCV_DBR, WQ_COUNTER_MASK};

use super::doorbell;
use super::posted::{FIRST, Receives, RecvSlot};
use super::record::Record;
use super::sizes::RecvSize;
use super::wqe::write_data;
use crate::fastpath::request::{PostError, Segment, total_length};

/// The receive queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// The number of the next receive.
    pushed: u64,
    hot: Hot,
    receives: Arc<Receives>,
    record: Arc<Record>,
    size: RecvSize,
    /// The number behind the last that was done when that was last looked up.
    done: u64,
    /// How often the queue pair was reset when that was last looked up.
    resets: u32,
}

/// Numbers and addresses that stay as they are. The queue keeps alive what they lead to.
#[derive(Debug, Clone, Copy)]
struct Hot {
    /// The first element, and the first slot of what is noted of receives.
    first: NonNull<u8>,
    slots: NonNull<RecvSlot>,
    /// One less than there are elements.
    mask: u32,
    /// Bytes of an element, as a power of two.
    shift: u32,
    /// Where the end of a list of one segment stands in an element: behind the segment, or where that
    /// is all there is room for, at the beginning, for the segment to be written over it.
    end: usize,
}

// SAFETY: addresses in objects that are `Send` and `Sync`, and that the queue keeps.
unsafe impl Send for Hot {}
// SAFETY: as above.
unsafe impl Sync for Hot {}

impl RecvQueue {
    pub(super) fn new(receives: Arc<Receives>, record: Arc<Record>, size: RecvSize) -> Self {
        assert!(size.depth == receives.memory.count() && size.max_segments > 0);
        let queue = Self {
            pushed: FIRST,
            hot: Hot {
                first: receives.memory.at(0),
                slots: receives.slots(),
                mask: size.depth - 1,
                shift: size.shift,
                end: match size.max_segments > 1 {
                    true => size_of::<DataSeg>(),
                    false => 0,
                },
            },
            receives,
            record,
            size,
            done: FIRST,
            resets: 0,
        };
        queue.set_limit();
        queue
    }

    fn set_limit(&self) {
        let limit = self.done + u64::from(self.size.depth);
        self.receives.progress.set_limit(limit, self.resets);
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.depth
    }

    /// How many receives no message has come for yet, at most.
    pub(crate) fn waiting(&self) -> u32 {
        // After a reset the last one that is done is from before.
        let done = self.receives.progress.done().max(self.done);
        self.pushed.saturating_sub(done) as u32
    }

    /// Posts a receive of one segment; the device sees it at once. False where it is another, or there is
    /// a reason for a closer look: [`RecvQueue::push`] is to be called then, after a look whether the
    /// queue pair is destroyed.
    #[inline(always)]
    pub(crate) fn post_usual(&mut self, wr_id: u64, segments: &[Segment]) -> bool {
        let (hot, number) = (self.hot, self.pushed);
        let [segment] = segments else { return false };
        if segment.is_empty() || number >= self.receives.progress.limit() {
            return false;
        }
        let index = (number as u32 & hot.mask) as usize;
        // SAFETY: there are as many elements and slots as the mask says. The element has room for a
        // segment, and for the end of the list behind it unless that is at its beginning; and it is
        // nobody's: its receive is done.
        unsafe {
            let to = hot.first.add(index << hot.shift).cast::<DataSeg>();
            to.byte_add(hot.end).write(END);
            write_data(to, segment, segment.length);
            hot.slots.add(index).as_ref().note(number, wr_id);
        }
        self.pushed = number + 1;
        self.publish();
        true
    }

    /// Writes a receive into the queue, without telling the device.
    pub(crate) fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if self.pushed >= self.receives.progress.limit() {
            self.look_for_room()?;
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

    /// Looks up whether the queue pair was reset, and how many receives are done.
    #[cold]
    fn look_for_room(&mut self) -> Result<(), PostError> {
        if self.receives.progress.resets() != self.resets {
            self.restart();
        } else {
            self.done = self.receives.progress.done().max(self.done);
        }
        self.set_limit();
        let depth = self.size.depth;
        match self.pushed < self.done + u64::from(depth) {
            true => Ok(()),
            false => Err(PostError::QueueFull { depth }),
        }
    }

    /// Tells the device of the pushed receives.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        // The receives before their count.
        doorbell::order_memory();
        self.record
            .set(RCV_DBR as usize, self.pushed as u32 & WQ_COUNTER_MASK);
    }

    /// Begins anew after the queue pair was reset.
    #[cold]
    fn restart(&mut self) {
        self.resets = self.receives.progress.resets();
        // Once more: a receive may have been pushed while the queue pair was reset.
        self.receives.forget();
        self.pushed = self.pushed.next_multiple_of(FIRST);
        self.done = self.pushed;
        // Who finds what is noted from here on sees the reset: see `Members::is_current`.
        fence(Ordering::Release);
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
        unsafe { write_data(to.add(count), segment, segment.length) };
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
