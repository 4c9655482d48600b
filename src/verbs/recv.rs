//! The receive half of a queue pair.

use std::sync::Arc;

use crate::fastpath::{self, PostError, Segment};
use crate::qp_table::QpEntry;

/// The half of a queue pair that receives are posted to.
#[derive(Debug)]
pub struct RecvHalf {
    queue: fastpath::rxe::RecvQueue,
    entry: Arc<QpEntry>,
}

impl RecvHalf {
    pub(super) fn new(queue: fastpath::rxe::RecvQueue, entry: Arc<QpEntry>) -> Self {
        Self { queue, entry }
    }

    /// Posts a receive: the next message is placed into the segments, one after the other.
    ///
    /// Post receives before the connection is made: a message that finds none is repeated by the
    /// sender, or fails there. Does not enter the kernel. `wr_id` comes back in the completion.
    ///
    /// # Errors
    ///
    /// A full queue and more segments than the queue pair was made for; the queue stays as it was.
    #[doc(alias("ibv_post_recv", "rdma_post_recv", "rdma_post_recvv"))]
    #[inline]
    pub fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if self.entry.is_inherited() {
            return Err(PostError::Inherited);
        }
        if self.entry.state() == QpEntry::DESTROYED {
            return Err(PostError::Destroyed);
        }
        self.queue.post(wr_id, segments)
    }

    /// Whether the queue pair was destroyed: nothing completes any more.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.entry.state() == QpEntry::DESTROYED
    }

    /// How many receives can be outstanding.
    pub fn depth(&self) -> u32 {
        self.queue.depth()
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.entry.number()
    }
}
