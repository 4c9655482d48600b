//! The receive half of a queue pair.

use std::sync::Arc;

use super::{ListError, RecvRequest};
use crate::fastpath::{Known, PostError, QpType, RecvQueue, Segment};
use crate::qp_table::QpEntry;
use crate::sys::{generation, is_inherited};

/// The half of a queue pair that receives are posted to.
#[derive(Debug)]
pub struct RecvHalf {
    /// None where receives are shared, or there are none.
    queue: Known<Option<RecvQueue>>,
    entry: Arc<QpEntry>,
    qp_type: QpType,
    /// Which process made the queue pair.
    generation: u32,
}

impl RecvHalf {
    pub(super) fn new(queue: Option<RecvQueue>, entry: Arc<QpEntry>, qp_type: QpType) -> Self {
        let generation = entry.context().generation();
        Self {
            queue: Known::new(queue, generation),
            generation,
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
        let now = generation();
        if let Some(queue) = self.queue.mlx5(now) {
            // The queue knows by itself when the queue pair is destroyed.
            if queue.post_usual(wr_id, segments) {
                return Ok(());
            }
        } else if let Some(queue) = self.queue.rxe(now)
            && !self.entry.is_destroyed()
        {
            queue.push(wr_id, segments)?;
            queue.publish();
            return Ok(());
        }
        self.post_elsewhere(wr_id, segments)
    }

    #[cold]
    #[inline(never)]
    fn post_elsewhere(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        self.with_queue(|queue| queue.post(wr_id, segments))?
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
        self.with_queue(|queue| post_list(queue, receives))
            .map_err(|source| ListError { index: 0, source })?
    }

    /// Does something with the queue, if it can be used.
    fn with_queue<T>(&mut self, work: impl FnOnce(&mut RecvQueue) -> T) -> Result<T, PostError> {
        if is_inherited(self.generation) {
            return Err(PostError::Inherited);
        }
        if self.entry.is_destroyed() {
            return Err(PostError::Destroyed);
        }
        let (qp_type, entry) = (self.qp_type, &self.entry);
        let worked = self.queue.change(|queue| queue.as_mut().map(work));
        worked.ok_or_else(|| without_queue(qp_type, entry.has_srq()))
    }

    /// Whether the queue pair was destroyed: nothing completes any more.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.entry.is_destroyed()
    }

    /// How many receives can be outstanding; 0 without a receive queue of its own.
    pub fn depth(&self) -> u32 {
        self.queue.any().as_ref().map_or(0, |queue| queue.depth())
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
