//! The receive half of a queue pair.

use std::sync::Arc;

use crate::fastpath::{PostError, QpType, RecvQueue, Segment};
use crate::qp_table::QpEntry;
use crate::sys::is_inherited;

/// The half of a queue pair that receives are posted to.
#[derive(Debug)]
pub struct RecvHalf {
    /// None where receives are shared, or there are none.
    queue: Option<RecvQueue>,
    entry: Arc<QpEntry>,
    qp_type: QpType,
    /// Which process made the queue pair.
    generation: u32,
}

impl RecvHalf {
    pub(super) fn new(queue: Option<RecvQueue>, entry: Arc<QpEntry>, qp_type: QpType) -> Self {
        Self {
            queue,
            generation: entry.context().generation(),
            entry,
            qp_type,
        }
    }

    /// Posts a receive: the next message is placed into the segments, one after the other.
    ///
    /// Post receives before the connection is made: a message that finds none is repeated by the
    /// sender, or fails there. Does not enter the kernel. `wr_id` comes back in the completion.
    ///
    /// A datagram comes with [`GRH_LENGTH`](crate::GRH_LENGTH) bytes in front of it, for which the
    /// segments need room as well.
    ///
    /// # Errors
    ///
    /// A full queue and more segments than the queue pair was made for; the queue stays as it was.
    /// [`PostError::SharedReceiveQueue`] where the receives are those of a
    /// [shared receive queue](crate::Srq::post), [`PostError::NoQueue`] where there are none.
    #[doc(alias("ibv_post_recv", "rdma_post_recv", "rdma_post_recvv"))]
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if is_inherited(self.generation) {
            return Err(PostError::Inherited);
        }
        if self.entry.state() == QpEntry::DESTROYED {
            return Err(PostError::Destroyed);
        }
        match &mut self.queue {
            Some(queue) => queue.post(wr_id, segments),
            None => Err(self.without_queue()),
        }
    }

    #[cold]
    fn without_queue(&self) -> PostError {
        let qp_type = self.qp_type;
        match qp_type.has_receive_queue() {
            true if self.entry.has_srq() => PostError::SharedReceiveQueue,
            true => PostError::NoQueue,
            false => PostError::WrongQpType { qp_type },
        }
    }

    /// Whether the queue pair was destroyed: nothing completes any more.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.entry.state() == QpEntry::DESTROYED
    }

    /// How many receives can be outstanding; 0 without a receive queue of its own.
    pub fn depth(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.depth())
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.entry.number()
    }
}
