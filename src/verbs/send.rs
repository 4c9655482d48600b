//! The send half of a queue pair.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use super::mw::WindowChange;
use super::{Batch, ListError, Pd, SendRequest};
use crate::fastpath::{Building, Operation, PostError, QpType, Request, SendQueue};
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
    #[cold]
    pub(super) fn undo_window_changes(&mut self) {
        while let Some(change) = self.window_changes.pop() {
            change.undo();
        }
    }

    /// Keeps what the requests of a batch change of windows, or undoes it where they did not start.
    #[cold]
    pub(super) fn settle_windows(&mut self, started: Result<(), PostError>) {
        match started {
            // The kernel has the requests also where it refused the doorbell.
            Ok(()) | Err(PostError::Doorbell { .. }) => {
                for change in self.window_changes.drain(..) {
                    change.keep();
                }
            }
            Err(_) => self.undo_window_changes(),
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

    /// False for a read where the two sides agreed on none.
    #[inline(always)]
    pub(super) fn can_read(&self, request: &Request<'_>) -> bool {
        !matches!(request.operation, Operation::Read(_)) || self.entry.can_read()
    }

    /// Refuses what this queue pair cannot carry out. `numbers` is the largest number that a request
    /// may have; `is_foreign` says that an address handle is of another protection domain.
    #[inline(always)]
    pub(super) fn check(
        &self,
        request: &Request<'_>,
        numbers: u64,
        is_foreign: bool,
    ) -> Result<(), PostError> {
        let wr_id = request.wr_id;
        // One after the other, each with its own end: that is what they are compared in.
        if self.is_inherited() {
            return Err(PostError::Inherited);
        }
        if wr_id > numbers {
            return Err(PostError::NumberTaken { wr_id });
        }
        if !self.qp_type.can(&request.operation) {
            return Err(PostError::WrongQpType {
                qp_type: self.qp_type,
            });
        }
        if !self.can_read(request) {
            return Err(PostError::NoReads);
        }
        if self.qp_type != QpType::Ud {
            return Ok(());
        }
        if is_foreign {
            return Err(PostError::ForeignAddressHandle);
        }
        let (length, max) = (request.payload.length()?, self.entry.max_datagram());
        match length <= max as usize {
            true => Ok(()),
            false => Err(PostError::DatagramTooLong { length, max }),
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

    /// Whether this process is a forked child of the one that made the queue pair.
    #[inline(always)]
    pub(super) fn is_inherited(&self) -> bool {
        is_inherited(self.generation)
    }
}
