//! The receive half of a queue pair.

use std::sync::Arc;

use super::{ListError, RecvRequest};
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
        self.usable_queue()?.post(wr_id, segments)
    }

    /// Posts receives one after the other, as `ibv_post_recv` does with a list. One that cannot be
    /// posted ends it: those before it are posted, it and those after it are not.
    ///
    /// ```no_run
    /// # fn example(recv: &mut rdmacm::RecvHalf, inbox: &rdmacm::Buffer) -> rdmacm::Result<()> {
    /// use rdmacm::RecvRequest;
    ///
    /// let halves = [[inbox.slice(..2048)?], [inbox.slice(2048..)?]];
    /// recv.post_list((1..).zip(&halves).map(|(wr_id, segments)| RecvRequest { wr_id, segments }))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`RecvHalf::post`], with the index of the receive.
    #[doc(alias("ibv_post_recv", "bad_wr"))]
    pub fn post_list<'r>(
        &mut self,
        receives: impl IntoIterator<Item = RecvRequest<'r>>,
    ) -> Result<(), ListError> {
        let queue = self
            .usable_queue()
            .map_err(|source| ListError { index: 0, source })?;
        post_list(queue, receives)
    }

    #[inline(always)]
    fn usable_queue(&mut self) -> Result<&mut RecvQueue, PostError> {
        if is_inherited(self.generation) {
            return Err(PostError::Inherited);
        }
        if self.entry.state() == QpEntry::DESTROYED {
            return Err(PostError::Destroyed);
        }
        let (qp_type, entry) = (self.qp_type, &self.entry);
        self.queue
            .as_mut()
            .ok_or_else(|| without_queue(qp_type, entry.has_srq()))
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

/// Why receives cannot be posted to a queue pair that has no queue for them.
#[cold]
fn without_queue(qp_type: QpType, has_srq: bool) -> PostError {
    match qp_type.has_receive_queue() {
        true if has_srq => PostError::SharedReceiveQueue,
        true => PostError::NoQueue,
        false => PostError::WrongQpType { qp_type },
    }
}

pub(super) fn post_list<'r>(
    queue: &mut RecvQueue,
    receives: impl IntoIterator<Item = RecvRequest<'r>>,
) -> Result<(), ListError> {
    let receives = receives.into_iter();
    queue
        .post_list(receives.map(|receive| (receive.wr_id, receive.segments)))
        .map_err(|(index, source)| ListError { index, source })
}
