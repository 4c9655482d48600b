//! The send half of a queue pair.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use super::mw::WindowChange;
use super::{Batch, ListError, Pd, SendRequest};
use crate::fastpath::{Building, PostError, QpType, SendQueue};
use crate::qp_table::QpEntry;
use crate::sys::{generation, is_inherited};

/// The half of a queue pair that requests are posted to.
#[derive(Debug)]
pub struct SendHalf {
    /// None where nothing can be sent.
    queue: Option<SendQueue>,
    owner: Owner,
}

/// Whose a send queue is: what does not depend on the provider.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) entry: Arc<QpEntry>,
    pub(super) qp_type: QpType,
    pub(super) pd: Pd,
    /// What requests that were built and not started change of memory windows.
    pub(super) window_changes: Vec<WindowChange>,
    /// Which process made the queue pair.
    generation: u32,
}

impl SendHalf {
    pub(super) fn new(
        queue: Option<SendQueue>,
        entry: Arc<QpEntry>,
        qp_type: QpType,
        pd: Pd,
    ) -> Self {
        Self {
            queue,
            owner: Owner {
                generation: entry.context().generation(),
                entry,
                qp_type,
                pd,
                window_changes: Vec::new(),
            },
        }
    }

    /// Begins a batch: requests are built in the queue and started together by
    /// [`Batch::submit`]. A batch that is dropped starts nothing.
    ///
    /// ```no_run
    /// # fn example(send: &mut rdmacm::SendHalf, segment: rdmacm::Segment,
    /// #            remote: rdmacm::RemoteAddress) -> Result<(), rdmacm::PostError> {
    /// let mut batch = send.batch();
    /// batch.write(1, remote).from(&[segment])?;
    /// batch.send(2).signaled().inline(b"done")?;
    /// batch.submit()?; // one doorbell
    /// # Ok(()) }
    /// ```
    #[doc(alias("ibv_post_send", "ibv_wr_start"))]
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(Building::new(&mut self.queue), &mut self.owner)
    }

    /// Posts requests one after the other and starts them with one doorbell, as `ibv_post_send` does
    /// with a list. A request that cannot be posted ends it: those before it are started, it and
    /// those after it are not.
    ///
    /// ```no_run
    /// # fn example(send: &mut rdmacm::SendHalf, segment: rdmacm::Segment,
    /// #            to: rdmacm::RemoteAddress) -> Result<(), rdmacm::ListError> {
    /// use rdmacm::{Data, SendFlags, SendRequest, Work};
    ///
    /// send.post_list([
    ///     SendRequest {
    ///         wr_id: 1,
    ///         flags: SendFlags::empty(),
    ///         work: Work::Write { to, data: Data::Segments(&[segment]) },
    ///     },
    ///     SendRequest {
    ///         wr_id: 2,
    ///         flags: SendFlags::SIGNALED,
    ///         work: Work::Send(Data::Inline(b"done")),
    ///     },
    /// ])
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the first request that could not be posted, with its index. After
    /// [`PostError::Doorbell`] the index is that of the first request which is not in the queue.
    #[doc(alias("ibv_post_send", "bad_wr"))]
    pub fn post_list<'r>(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest<'r>>,
    ) -> Result<(), ListError> {
        let at = |index, source| ListError { index, source };
        let mut batch = self.batch();
        batch.check_state().map_err(|source| at(0, source))?;
        let mut refused = Ok(());
        let mut posted = 0;
        for request in requests {
            if let Err(source) = request.add_to(&mut batch) {
                refused = Err(at(posted, source));
                break;
            }
            posted += 1;
        }
        batch.submit().map_err(|source| at(posted, source))?;
        refused
    }

    /// How many requests can be outstanding; 0 without a send queue.
    pub fn depth(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.depth())
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.owner.entry.number()
    }
}

impl Owner {
    /// Why nothing can be built where there is no send queue.
    #[cold]
    pub(super) fn without_queue(&self) -> PostError {
        let qp_type = self.qp_type;
        match qp_type.has_send_queue() {
            true => PostError::NoQueue,
            false => PostError::WrongQpType { qp_type },
        }
    }

    #[cold]
    pub(super) fn undo_window_changes(&mut self) {
        while let Some(change) = self.window_changes.pop() {
            change.undo();
        }
    }

    /// Requests must not be queued below RTS: the kernel would refuse the doorbell but keep them,
    /// and carry them out at some later doorbell.
    #[inline(always)]
    pub(super) fn check_state(&self, building: &Building<'_>) -> Result<(), PostError> {
        match self.entry.may_send(generation()) {
            true => Ok(()),
            false => self.check_other_state(building.flushes_late_requests()),
        }
    }

    #[cold]
    fn check_other_state(&self, flushes_late_requests: bool) -> Result<(), PostError> {
        match self.entry.state() {
            _ if self.is_inherited() => Err(PostError::Inherited),
            QpEntry::DESTROYED => Err(PostError::Destroyed),
            state if state < uverbs::QpState::RTS.0 => Err(PostError::NotConnected),
            state if state > uverbs::QpState::RTS.0 && !flushes_late_requests => {
                Err(PostError::Disconnected)
            }
            _ => Ok(()),
        }
    }

    /// Why a request cannot be posted, whatever its data; `numbers` is the largest that it may have.
    #[cold]
    pub(super) fn refusal(&self, wr_id: u64, numbers: u64) -> PostError {
        match self.qp_type {
            _ if self.is_inherited() => PostError::Inherited,
            _ if wr_id > numbers => PostError::NumberTaken { wr_id },
            qp_type => PostError::WrongQpType { qp_type },
        }
    }

    /// Whether this process is a forked child of the one that made the queue pair.
    #[inline(always)]
    pub(super) fn is_inherited(&self) -> bool {
        is_inherited(self.generation)
    }
}
