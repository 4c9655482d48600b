//! The send half of a queue pair.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use super::mw::WindowChange;
use super::{Batch, ListError, Pd, SendRequest};
use crate::fastpath::{PostError, QpType, Request, SendQueue};
use crate::qp_table::QpEntry;
use crate::sys::is_inherited;

/// The half of a queue pair that requests are posted to.
#[derive(Debug)]
pub struct SendHalf {
    /// None where nothing can be sent.
    queue: Option<SendQueue>,
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
            generation: entry.context().generation(),
            entry,
            qp_type,
            pd,
            window_changes: Vec::new(),
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
        self.begin();
        Batch::new(self)
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
        self.check_state().map_err(|source| at(0, source))?;
        let mut batch = self.batch();
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

    /// Builds a request in the queue.
    #[inline(always)]
    pub(super) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        match &mut self.queue {
            Some(SendQueue::Rxe(queue)) => queue.push(request),
            Some(SendQueue::Mlx5(queue)) => queue.push(request),
            // The copy is for the call's sake: the request itself stays in registers.
            _ => self.push_elsewhere(&{ *request }),
        }
    }

    #[inline(never)]
    fn push_elsewhere(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        match &mut self.queue {
            Some(queue) => queue.push(request),
            None => Err(self.without_queue()),
        }
    }

    #[cold]
    fn without_queue(&self) -> PostError {
        let qp_type = self.qp_type;
        match qp_type.has_send_queue() {
            true => PostError::NoQueue,
            false => PostError::WrongQpType { qp_type },
        }
    }

    /// Starts the requests that were built. Where they cannot start they are forgotten.
    #[inline(always)]
    pub(super) fn start(&mut self) -> Result<(), PostError> {
        if let Err(error) = self.check_state() {
            self.discard();
            return Err(error);
        }
        match &mut self.queue {
            Some(SendQueue::Rxe(queue)) => queue.ring_doorbell(),
            Some(SendQueue::Mlx5(queue)) => {
                queue.ring_doorbell();
                Ok(())
            }
            _ => self.start_elsewhere(),
        }
    }

    #[inline(never)]
    fn start_elsewhere(&mut self) -> Result<(), PostError> {
        match &mut self.queue {
            Some(queue) => queue.ring_doorbell(),
            None => Ok(()),
        }
    }

    /// An earlier batch may have been forgotten instead of dropped.
    #[inline(always)]
    fn begin(&mut self) {
        if let Some(SendQueue::Mlx5(queue)) = &mut self.queue {
            return queue.begin();
        }
        self.discard();
    }

    /// Forgets requests that were built and not started.
    #[inline(always)]
    pub(super) fn discard(&mut self) {
        match &mut self.queue {
            Some(SendQueue::Rxe(queue)) => queue.discard(),
            Some(SendQueue::Mlx5(queue)) => queue.discard(),
            _ => self.discard_elsewhere(),
        }
    }

    #[inline(never)]
    fn discard_elsewhere(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.discard();
        }
    }

    #[cold]
    pub(super) fn undo_window_changes(&mut self) {
        while let Some(change) = self.window_changes.pop() {
            change.undo();
        }
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.entry.number()
    }

    /// Requests must not be queued below RTS: the kernel would refuse the doorbell but keep them,
    /// and carry them out at some later doorbell.
    #[inline(always)]
    fn check_state(&self) -> Result<(), PostError> {
        match self.entry.state() == uverbs::QpState::RTS.0 && !self.is_inherited() {
            true => Ok(()),
            false => self.check_other_state(),
        }
    }

    #[cold]
    fn check_other_state(&self) -> Result<(), PostError> {
        match self.entry.state() {
            _ if self.is_inherited() => Err(PostError::Inherited),
            QpEntry::DESTROYED => Err(PostError::Destroyed),
            state if state < uverbs::QpState::RTS.0 => Err(PostError::NotConnected),
            state if state > uverbs::QpState::RTS.0 => self.check_flushes(),
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

    #[cold]
    fn check_flushes(&self) -> Result<(), PostError> {
        match &self.queue {
            Some(queue) if !queue.flushes_late_requests() => Err(PostError::Disconnected),
            _ => Ok(()),
        }
    }

    /// Whether this process is a forked child of the one that made the queue pair.
    #[inline(always)]
    pub(super) fn is_inherited(&self) -> bool {
        is_inherited(self.generation)
    }
}
