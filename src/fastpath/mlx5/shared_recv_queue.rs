//! The shared receive queue: a list of places, in which the device follows what is posted.
//!
//! Each place names the next. The device begins at the first and goes on with each receive that is
//! posted. Receives are done in any order, so the places of those that are done are put to the end of
//! the list anew, in runs, whenever the list has run out.

use std::sync::Arc;

use rdmacm_kernel_abi::mlx5::{RCV_DBR, SrqNextSeg, WQ_COUNTER_MASK};

use super::doorbell;
use super::posted::SharedReceives;
use super::record::Record;
use super::recv_queue::{check_segments, write_scatter_list};
use super::sizes::SharedSize;
use crate::fastpath::request::{PostError, Segment};

/// The shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedRecvQueue {
    receives: Arc<SharedReceives>,
    record: Arc<Record>,
    size: SharedSize,
    /// Where the next receive goes.
    head: u32,
    /// The end of the list, which is not used itself.
    tail: u32,
    /// How many receives were pushed, all in all.
    pushed: u32,
}

impl SharedRecvQueue {
    /// Takes over memory of zeros, and makes the list.
    pub(super) fn new(
        receives: Arc<SharedReceives>,
        record: Arc<Record>,
        size: SharedSize,
    ) -> Self {
        let queue = Self {
            receives,
            record,
            size,
            head: 0,
            tail: size.used - 1,
            pushed: 0,
        };
        for place in 0..size.places {
            let is_last = place == size.used - 1 || place == size.places - 1;
            if !is_last {
                queue.set_next(place, place + 1);
            }
        }
        queue
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.used - 1
    }

    /// What completion queues have to know of it.
    pub(super) fn receives(&self) -> &Arc<SharedReceives> {
        &self.receives
    }

    /// Writes a receive into the queue, without telling the device.
    #[inline]
    pub(crate) fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        check_segments(segments, self.size.max_segments)?;
        if self.head == self.tail && !self.lengthen() {
            return Err(PostError::QueueFull {
                depth: self.depth(),
            });
        }
        let place = self.head;
        self.receives.note(place, wr_id);
        self.head = self.next(place);
        let first = self.receives.memory.at(place);
        // SAFETY: a place has room for `max_segments` behind the link, and this one is nobody's: it
        // is in the list of free ones.
        unsafe {
            let to = first.add(size_of::<SrqNextSeg>()).cast();
            write_scatter_list(to, segments, self.size.max_segments);
        }
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Tells the device of the pushed receives.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // The receives, and the links to them, before their count.
        doorbell::order_memory();
        self.record
            .set(RCV_DBR as usize, self.pushed & WQ_COUNTER_MASK);
    }

    /// Puts places that are free again to the end of the list: the one behind the end if it is, else
    /// the first run of them. False when there is none.
    #[cold]
    fn lengthen(&mut self) -> bool {
        let free = &self.receives.free;
        let behind = (self.tail + 1) % self.size.used;
        let run = match free.has(behind) {
            true => Some((behind, 1)),
            false => {
                let above = free.first_run(self.head + 1..self.size.used);
                above.or_else(|| free.first_run(0..self.head))
            }
        };
        let Some((first, length)) = run else {
            return false;
        };
        self.set_next(self.tail, first);
        self.tail = first + length - 1;
        for place in first..self.tail {
            self.set_next(place, place + 1);
        }
        for place in first..=self.tail {
            self.receives.free.clear(place);
        }
        true
    }

    /// The place behind another. Only this queue writes links; what a device may have done to them is
    /// cut to the places that there are.
    fn next(&self, place: u32) -> u32 {
        let link = self.receives.memory.at(place).cast::<SrqNextSeg>();
        // SAFETY: each place begins with a link.
        let link = unsafe { link.read() };
        u32::from(link.next_wqe_index.get()) % self.size.used
    }

    fn set_next(&self, place: u32, next: u32) {
        let link = self.receives.memory.at(place).cast::<SrqNextSeg>();
        // SAFETY: each place begins with a link, which only the owner of this queue writes. The
        // device reads it after the count that follows.
        unsafe { (&raw mut (*link.as_ptr()).next_wqe_index).write((next as u16).into()) };
    }

    /// A copy of the queue's memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        // SAFETY: only this queue writes to it.
        unsafe { self.receives.memory.bytes() }
    }
}
