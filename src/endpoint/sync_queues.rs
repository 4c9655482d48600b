//! The queues of an id that waits, and what is posted to them.

use std::os::fd::AsFd;

use super::SyncId;
use super::lateness::ACKNOWLEDGED_LATE;
use super::sync_id::explain;
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Completion, PostError, RemoteAddress, Segment, SendFlags};
use crate::sys::Deadline;
use crate::verbs::{
    Access, Batch, Buffer, Cq, Destination, Qp, QpAttr, Srq, SrqAttr, completion_room,
};

/// The queue pair of a [`SyncId`], and the queues that were made for it.
#[derive(Debug, Default)]
pub struct Queues {
    /// The queue pair.
    pub qp: Option<Qp>,
    /// The completions of requests, unless they go to a queue of the program's.
    pub send_cq: Option<Cq>,
    /// The completions of receives, unless they go to a queue of the program's.
    pub recv_cq: Option<Cq>,
    /// The shared receive queue.
    pub srq: Option<Srq>,
}

impl SyncId {
    /// Makes the id's queue pair. Completion queues that `attr` does not name are made for it, one
    /// for requests and one for receives, as long as its queues are; so is everything else that it
    /// leaves open: the protection domain is the device's shared one, the shared receive queue
    /// that of [`SyncId::create_srq`].
    ///
    /// # Errors
    ///
    /// As [`CmId::create_qp`](crate::CmId::create_qp). Nothing is left behind.
    #[doc(alias("rdma_create_qp", "rdma_create_qp_ex"))]
    pub fn create_qp(&mut self, attr: &QpAttr<'_>) -> Result<()> {
        let context = self.id.context()?;
        let make = |wanted: bool, entries: u32| -> Result<Option<Cq>> {
            if !wanted {
                return Ok(None);
            }
            // The program may get the queue in the end, and wait for it as it likes.
            let channel = context.completion_channel()?;
            let room = completion_room(&context, &[entries])?;
            let cq = context.completion_queue(room).channel(&channel).build()?;
            Ok(Some(cq))
        };
        let qp_type = attr.qp_type_or(self.id.qp_type());
        let shared = attr.srq_or(self.queues.srq.as_ref());
        let wants_send_cq = attr.has_send_queue(qp_type) && !attr.has_send_cq();
        let wants_recv_cq = !attr.has_recv_cq()
            && match shared {
                Some(_) => qp_type.has_receive_queue(),
                None => attr.has_own_receive_queue(qp_type),
            };
        let send_cq = make(wants_send_cq, attr.capabilities().max_send_wr)?;
        let receives = match shared {
            Some(srq) => srq.depth(),
            None => attr.capabilities().max_recv_wr,
        };
        let recv_cq = make(wants_recv_cq, receives)?;
        let mut whole = attr.clone();
        if let Some(cq) = &send_cq {
            whole = whole.send_cq(cq);
        }
        if let Some(cq) = &recv_cq {
            whole = whole.recv_cq(cq);
        }
        if let Some(srq) = shared {
            whole = whole.srq(srq);
        }
        let qp = self.id.create_qp(&whole)?;
        self.queues.qp = Some(qp);
        (self.queues.send_cq, self.queues.recv_cq) = (send_cq, recv_cq);
        Ok(())
    }

    /// Destroys the queue pair, then the completion queues that were made for it. False when there
    /// is none.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_qp(&mut self) -> Result<bool> {
        let destroyed = self.id.destroy_qp()?;
        let srq = self.queues.srq.take();
        self.queues = Queues {
            srq,
            ..Queues::default()
        };
        Ok(destroyed)
    }

    /// Makes a shared receive queue, which the id's queue pair will receive from; receives are
    /// posted to it with [`SyncId::post_recv`].
    ///
    /// # Errors
    ///
    /// Before the address is resolved; sizes beyond the device's; an id that has one or a queue
    /// pair.
    #[doc(alias("rdma_create_srq", "rdma_create_srq_ex"))]
    pub fn create_srq(&mut self, attr: &SrqAttr) -> Result<()> {
        if self.queues.srq.is_some() || self.queues.qp.is_some() {
            return Err(Error::new(
                "create_srq",
                ErrorKind::InvalidState,
                "the id has a shared receive queue or a queue pair already",
            ));
        }
        self.queues.srq = Some(self.id.protection_domain()?.create_srq(attr)?);
        Ok(())
    }

    /// Destroys the shared receive queue. False when there is none.
    ///
    /// # Errors
    ///
    /// While the id has its queue pair, which receives from it; when the kernel refuses.
    #[doc(alias = "rdma_destroy_srq")]
    pub fn destroy_srq(&mut self) -> Result<bool> {
        if self.queues.srq.is_some() && self.queues.qp.is_some() {
            return Err(Error::new(
                "destroy_srq",
                ErrorKind::InvalidState,
                "the queue pair receives from it: destroy that first",
            ));
        }
        match self.queues.srq.take() {
            None => Ok(false),
            Some(srq) => srq.destroy().map(|()| true),
        }
    }

    /// Allocates and registers memory for messages.
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`](crate::Pd::alloc).
    #[doc(alias = "rdma_reg_msgs")]
    pub fn alloc(&self, length: usize) -> Result<Buffer> {
        self.alloc_with(length, Access::LOCAL_WRITE)
    }

    /// Allocates and registers memory for more than messages: that the peer may read
    /// (`rdma_reg_read`: [`Access::LOCAL_WRITE`] and [`Access::REMOTE_READ`]) or write
    /// (`rdma_reg_write`: with [`Access::REMOTE_WRITE`]).
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`](crate::Pd::alloc).
    #[doc(alias("rdma_reg_read", "rdma_reg_write"))]
    pub fn alloc_with(&self, length: usize, access: Access) -> Result<Buffer> {
        self.id.protection_domain()?.alloc(length, access)
    }

    /// The queue pair, for what the methods here do not do.
    ///
    /// # Errors
    ///
    /// An id without one.
    pub fn qp(&mut self) -> Result<&mut Qp> {
        self.queues.qp.as_mut().ok_or_else(|| {
            Error::new(
                "post",
                ErrorKind::InvalidState,
                "the id has no queue pair of its own: make one with SyncId::create_qp",
            )
        })
    }

    /// Posts a receive into the segments, to the shared receive queue where the id has one. A
    /// datagram comes with [`GRH_LENGTH`](crate::GRH_LENGTH) bytes in front of it.
    ///
    /// # Errors
    ///
    /// A full queue, more segments than it was made for, no queue.
    #[doc(alias("rdma_post_recv", "rdma_post_recvv"))]
    pub fn post_recv(&mut self, wr_id: u64, segments: &[Segment]) -> Result<()> {
        if let Some(srq) = &mut self.queues.srq {
            return Ok(srq.post(wr_id, segments)?);
        }
        Ok(self.qp()?.recv_half().post(wr_id, segments)?)
    }

    /// Posts a message out of registered memory.
    ///
    /// # Errors
    ///
    /// A full queue, more segments than it was made for, no connection.
    #[doc(alias("rdma_post_send", "rdma_post_sendv"))]
    pub fn post_send(&mut self, wr_id: u64, segments: &[Segment], flags: SendFlags) -> Result<()> {
        self.post(|batch| batch.send(wr_id).flags(flags).from(segments))
    }

    /// Posts a message that is copied into the queue.
    ///
    /// # Errors
    ///
    /// A full queue, more bytes than it was made for, no connection.
    #[doc(alias("rdma_post_send", "rdma_post_sendv"))]
    pub fn post_send_inline(&mut self, wr_id: u64, bytes: &[u8], flags: SendFlags) -> Result<()> {
        self.post(|batch| batch.send(wr_id).flags(flags).inline(bytes))
    }

    /// Posts a read from the peer's memory.
    ///
    /// # Errors
    ///
    /// As [`SyncId::post_send`]; where the two sides agreed on no reads.
    #[doc(alias("rdma_post_read", "rdma_post_readv"))]
    pub fn post_read(
        &mut self,
        wr_id: u64,
        segments: &[Segment],
        flags: SendFlags,
        from: RemoteAddress,
    ) -> Result<()> {
        self.post(|batch| batch.read(wr_id, from).flags(flags).into(segments))
    }

    /// Posts a write into the peer's memory.
    ///
    /// # Errors
    ///
    /// As [`SyncId::post_send`].
    #[doc(alias("rdma_post_write", "rdma_post_writev"))]
    pub fn post_write(
        &mut self,
        wr_id: u64,
        segments: &[Segment],
        flags: SendFlags,
        to: RemoteAddress,
    ) -> Result<()> {
        self.post(|batch| batch.write(wr_id, to).flags(flags).from(segments))
    }

    /// Posts a write of bytes that are copied into the queue.
    ///
    /// # Errors
    ///
    /// As [`SyncId::post_send_inline`].
    #[doc(alias("rdma_post_write", "rdma_post_writev"))]
    pub fn post_write_inline(
        &mut self,
        wr_id: u64,
        bytes: &[u8],
        flags: SendFlags,
        to: RemoteAddress,
    ) -> Result<()> {
        self.post(|batch| batch.write(wr_id, to).flags(flags).inline(bytes))
    }

    /// Posts a datagram.
    ///
    /// # Errors
    ///
    /// As [`SyncId::post_send`].
    #[doc(alias = "rdma_post_ud_send")]
    pub fn post_datagram(
        &mut self,
        wr_id: u64,
        segments: &[Segment],
        flags: SendFlags,
        to: Destination<'_>,
    ) -> Result<()> {
        self.post(|batch| batch.send_datagram(wr_id, to).flags(flags).from(segments))
    }

    fn post(&mut self, build: impl FnOnce(&mut Batch<'_>) -> Result<(), PostError>) -> Result<()> {
        let mut batch = self.qp()?.send_half().batch();
        build(&mut batch)?;
        Ok(batch.submit()?)
    }

    /// Waits for the next completion of a request. A request that failed is a completion too: see
    /// [`Completion::result`].
    ///
    /// # Errors
    ///
    /// The end of the connection before any completion, the timeout; an id whose completions go to
    /// a queue of the program's.
    #[doc(alias = "rdma_get_send_comp")]
    pub fn send_completion(&mut self) -> Result<Completion> {
        self.completion("send_completion", |queues| &mut queues.send_cq)
    }

    /// Waits for the next completion of a receive, as [`SyncId::send_completion`] does.
    ///
    /// # Errors
    ///
    /// As [`SyncId::send_completion`].
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn recv_completion(&mut self) -> Result<Completion> {
        self.completion("recv_completion", |queues| &mut queues.recv_cq)
    }

    fn completion(
        &mut self,
        operation: &'static str,
        choose: impl Fn(&mut Queues) -> &mut Option<Cq>,
    ) -> Result<Completion> {
        let deadline = Deadline::after(self.timeout);
        let mut entry = [Completion::default()];
        let mut last = None;
        loop {
            // Asked before the queue is polled: nothing completes after it.
            let is_destroyed = self.queues.is_qp_destroyed();
            let cq = choose(&mut self.queues).as_mut().ok_or_else(|| {
                Error::new(
                    operation,
                    ErrorKind::InvalidState,
                    "the id has no completion queue of its own for this",
                )
            })?;
            // What came before the end is not lost.
            if cq.poll_or_arm(&mut entry)? > 0 {
                return Ok(entry[0]);
            }
            if let Some((kind, reason)) = self.ended {
                let last = *last.get_or_insert_with(|| Deadline::after(Some(ACKNOWLEDGED_LATE)));
                let is_late = kind == ErrorKind::Disconnected && cq.event_comes(last)?;
                if is_late {
                    continue;
                }
                return Err(Error::new(operation, kind, reason));
            }
            if is_destroyed {
                let reason = "the queue pair was destroyed";
                return Err(Error::new(operation, ErrorKind::Destroyed, reason));
            }
            let completions = cq.require_channel()?.as_fd();
            let ready = self
                .channel
                .wait(operation, Some(completions), deadline)
                .map_err(|error| explain(&self.id, operation, error))?;
            if ready.beside {
                cq.take_event()?;
            }
            if ready.event {
                self.take_events(operation)?;
            }
        }
    }

    /// Notes the events that came while completions were waited for. Those that end no connection
    /// end no wait either.
    fn take_events(&mut self, operation: &'static str) -> Result<()> {
        while let Some(event) = self
            .channel
            .try_next_event()
            .map_err(|error| explain(&self.id, operation, error))?
        {
            self.note(&event);
        }
        Ok(())
    }
}

impl Queues {
    /// Another thread may have destroyed the queue pair, through the id.
    fn is_qp_destroyed(&mut self) -> bool {
        self.qp
            .as_mut()
            .is_some_and(|qp| qp.recv_half().is_destroyed())
    }
}
