//! The receive queue, of a queue pair or shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rdmacm_kernel_abi::siw::{MAX_SGE, Opcode, Rqe, Sge, WqeFlags};

use super::elements::Elements;
use crate::error::Result;
use crate::fastpath::request::{PostError, Segment, total_length};
use crate::sys::Mapping;

/// The receive queue of one queue pair, or one that several share.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    elements: Elements<Rqe>,
    next: u32,
    max_segments: u32,
}

impl RecvQueue {
    /// Takes over the memory of `count` elements. `max_segments` is what the kernel granted.
    pub(crate) fn new(mapping: Arc<Mapping>, count: u32, max_segments: u32) -> Result<Self> {
        Ok(Self {
            elements: Elements::new(mapping, count)?,
            next: 0,
            max_segments: max_segments.min(MAX_SGE as u32),
        })
    }

    /// How many receives fit.
    pub(crate) fn depth(&self) -> u32 {
        self.elements.count()
    }

    /// Posts a receive into `segments`; the kernel sees it at once.
    #[inline(never)]
    pub(crate) fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments {
                segments: segments.len(),
                max: self.max_segments,
            });
        }
        if segments.is_empty() {
            return Err(PostError::NoSegments);
        }
        total_length(segments)?;
        let depth = self.depth();
        let to = self.elements.at(self.next).as_ptr();
        // SAFETY: the element is in the mapping for as long as `self` lives, and its flags are
        // accessed as an atomic only.
        let flags = unsafe { AtomicU16::from_ptr(&raw mut (*to).flags) };
        // Acquire pairs with the kernel's clearing of the flag: it read the element before.
        if flags.load(Ordering::Acquire) & WqeFlags::VALID.bits() != 0 {
            return Err(PostError::QueueFull { depth });
        }
        // SAFETY: the element is ours until the flag is set. It has room for six segments, which
        // `max_segments` does not exceed.
        unsafe {
            (&raw mut (*to).id).write(wr_id);
            (&raw mut (*to).num_sge).write(segments.len() as u8);
            (&raw mut (*to).opcode).write(Opcode::RECEIVE.0);
            (&raw mut (*to).unused).write(0);
            let first: *mut Sge = (&raw mut (*to).sge).cast();
            for (index, segment) in segments.iter().enumerate() {
                first.add(index).write(sge(segment));
            }
        }
        // Release: the element is in memory before the flag that gives it away.
        flags.store(WqeFlags::VALID.bits(), Ordering::Release);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }
}

#[inline]
pub(super) fn sge(segment: &Segment) -> Sge {
    Sge {
        laddr: segment.address,
        length: segment.length,
        lkey: segment.lkey,
    }
}
