//! Requests on their way into the send queue.

use std::mem::ManuallyDrop;

use super::builder::{
    AtomicBuilder, AtomicWriteBuilder, BindBuilder, FlushBuilder, InvalidateBuilder, ReadBuilder,
    RequestBuilder,
};
use super::send::Owner;
use super::{Destination, Mw};
use crate::fastpath::{
    Building, Flush, FlushPlacement, Operation, PostError, RemoteAddress, Unfinished,
};

/// Requests that are being built and not yet started.
#[derive(Debug)]
#[must_use = "a batch starts nothing until it is submitted"]
pub struct Batch<'q> {
    pub(super) building: Building<'q>,
    pub(super) owner: &'q mut Owner,
    /// The largest number that a request may have.
    pub(super) numbers: u64,
    /// Whether requests of the batch may change memory windows.
    has_windows: bool,
}

impl<'q> Batch<'q> {
    #[inline]
    pub(super) fn new(building: Building<'q>, owner: &'q mut Owner) -> Self {
        Self {
            building,
            owner,
            numbers: u64::MAX,
            has_windows: false,
        }
    }

    /// Keeps larger numbers for a layer that marks its own requests with them.
    pub(crate) fn with_numbers_up_to(mut self, numbers: u64) -> Self {
        self.numbers = numbers;
        self
    }

    /// A message for the peer's next receive.
    ///
    /// Over a reliable connection its completion says that the peer has it; over iWARP only that it
    /// is on its way.
    #[doc(alias("rdma_post_send", "rdma_post_sendv", "ibv_wr_send"))]
    #[inline]
    pub fn send(&mut self, wr_id: u64) -> RequestBuilder<'_, 'q> {
        self.request(wr_id, Operation::Send)
    }

    /// A message with a number that comes out of the peer's completion.
    #[doc(alias = "ibv_wr_send_imm")]
    #[inline]
    pub fn send_immediate(&mut self, wr_id: u64, immediate: u32) -> RequestBuilder<'_, 'q> {
        self.request(wr_id, Operation::SendImmediate(immediate))
    }

    /// A message that also closes a memory window of the peer's, of type 2, by its key. The peer's
    /// completion says which ([`Success::invalidated`](crate::Success::invalidated)); what comes
    /// after it cannot use the window. A key that is no such window's fails the peer's receive
    /// ([`CompletionStatus::RemoteInvalidRequest`](crate::CompletionStatus::RemoteInvalidRequest)), and
    /// ends the connection.
    ///
    /// siw has no windows. There the key is that of a registration of the peer's, and what uses it
    /// later ends the connection.
    #[doc(alias("ibv_wr_send_inv", "IBV_WR_SEND_WITH_INV"))]
    #[inline]
    pub fn send_invalidate(&mut self, wr_id: u64, rkey: u32) -> RequestBuilder<'_, 'q> {
        self.request(wr_id, Operation::SendInvalidate(rkey))
    }

    /// An RDMA write into the peer's memory, which the peer does not notice. What the completion says
    /// is as for [`Batch::send`]: over iWARP not even that the peer allowed it. Where it did not, the
    /// connection ends.
    #[doc(alias("rdma_post_write", "rdma_post_writev", "ibv_wr_rdma_write"))]
    #[inline]
    pub fn write(&mut self, wr_id: u64, to: RemoteAddress) -> RequestBuilder<'_, 'q> {
        self.request(wr_id, Operation::Write(to))
    }

    /// An RDMA write that also uses up a receive of the peer's and hands it a number.
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    #[inline]
    pub fn write_immediate(
        &mut self,
        wr_id: u64,
        to: RemoteAddress,
        immediate: u32,
    ) -> RequestBuilder<'_, 'q> {
        self.request(wr_id, Operation::WriteImmediate(to, immediate))
    }

    /// An RDMA read from the peer's memory.
    #[doc(alias("rdma_post_read", "rdma_post_readv", "ibv_wr_rdma_read"))]
    #[inline]
    pub fn read(&mut self, wr_id: u64, from: RemoteAddress) -> ReadBuilder<'_, 'q> {
        let request = self.request(wr_id, Operation::Read(from));
        ReadBuilder { request }
    }

    /// Compares 8 bytes of the peer's memory with `compare`, and puts `swap` in their place where
    /// they are equal. What was there before is the answer, and tells whether they were.
    ///
    /// The 8 bytes are a number in the byte order of the peer's machine, as the answer is one in the
    /// order of this ([`u64::from_ne_bytes`]). They begin at a multiple of 8, in memory with
    /// [`Access::REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC).
    ///
    /// Nothing comes in between from another atomic of the same device. What processors and writes
    /// do to the 8 bytes meanwhile is another matter: rxe does not keep them away.
    ///
    /// ```no_run
    /// # fn example(send: &mut rdmacm::SendHalf, answer: &rdmacm::Buffer,
    /// #            lock: rdmacm::RemoteAddress) -> rdmacm::Result<()> {
    /// let mut batch = send.batch();
    /// let free = 0;
    /// batch.compare_swap(1, lock, free, 17).signaled().into(answer.slice(..8)?)?;
    /// batch.submit()?;
    /// // After the completion: 17 has the lock if `answer` is `free`.
    /// # Ok(()) }
    /// ```
    #[doc(alias("ibv_wr_atomic_cmp_swp", "IBV_WR_ATOMIC_CMP_AND_SWP"))]
    #[inline]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        at: RemoteAddress,
        compare: u64,
        swap: u64,
    ) -> AtomicBuilder<'_, 'q> {
        let request = self.request(wr_id, Operation::CompareSwap { at, compare, swap });
        AtomicBuilder { request, at }
    }

    /// Adds to 8 bytes of the peer's memory, beginning again at 0 beyond 2^64 − 1. What was there
    /// before is the answer. All else is as for [`Batch::compare_swap`].
    #[doc(alias("ibv_wr_atomic_fetch_add", "IBV_WR_ATOMIC_FETCH_AND_ADD"))]
    #[inline]
    pub fn fetch_add(&mut self, wr_id: u64, at: RemoteAddress, add: u64) -> AtomicBuilder<'_, 'q> {
        let request = self.request(wr_id, Operation::FetchAdd { at, add });
        AtomicBuilder { request, at }
    }

    /// Writes 8 bytes of the peer's memory at once: who reads them there sees all of them or none.
    /// They begin at a multiple of 8, in memory with
    /// [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE). The two sides must have agreed on
    /// reads and atomics, since the peer remembers it as one of these.
    ///
    /// Not every device has it: [`DeviceAttr::has_atomic_write`].
    ///
    /// [`DeviceAttr::has_atomic_write`]: crate::DeviceAttr::has_atomic_write
    #[doc(alias("ibv_wr_atomic_write", "IBV_WR_ATOMIC_WRITE"))]
    #[inline]
    pub fn atomic_write(&mut self, wr_id: u64, to: RemoteAddress) -> AtomicWriteBuilder<'_, 'q> {
        let request = self.request(wr_id, Operation::AtomicWrite(to));
        AtomicWriteBuilder { request, to }
    }

    /// Has the peer flush what this queue pair wrote to its memory before. The completion comes when
    /// it has. Access that the memory and the peer's queue pair need:
    /// [`Access::FLUSH_GLOBAL`](crate::Access::FLUSH_GLOBAL),
    /// [`Access::FLUSH_PERSISTENT`](crate::Access::FLUSH_PERSISTENT). The two sides must have agreed
    /// on reads and atomics, since the peer remembers it as one of these.
    ///
    /// Not every device has it: [`DeviceAttr::has_flush_global`].
    ///
    /// ```no_run
    /// # fn example(send: &mut rdmacm::SendHalf, log: rdmacm::RemoteAddress)
    /// #     -> Result<(), rdmacm::PostError> {
    /// use rdmacm::FlushPlacement;
    ///
    /// let mut batch = send.batch();
    /// batch.write(1, log).inline(b"entry")?;
    /// batch.flush(2, log, FlushPlacement::Persistent).signaled().range(5)?;
    /// batch.submit()
    /// # }
    /// ```
    ///
    /// [`DeviceAttr::has_flush_global`]: crate::DeviceAttr::has_flush_global
    #[doc(alias("ibv_wr_flush", "IBV_WR_FLUSH"))]
    #[inline]
    pub fn flush(
        &mut self,
        wr_id: u64,
        at: RemoteAddress,
        placement: FlushPlacement,
    ) -> FlushBuilder<'_, 'q> {
        let length = None;
        FlushBuilder::new(
            self,
            wr_id,
            Flush {
                at,
                length,
                placement,
            },
        )
    }

    /// Opens a memory window, or closes one of type 1. What is posted later finds it so.
    ///
    /// The window's [key](Mw::rkey) is the new one as soon as the request is in the batch, and the one
    /// before again when the batch is dropped or cannot be submitted. A bind that the device refuses
    /// fails with [`CompletionStatus::MemoryWindowBind`](crate::CompletionStatus::MemoryWindowBind)
    /// or as flushed, and ends the connection; then [`Mw::set_rkey`] has to say which key the window
    /// has.
    #[doc(alias("ibv_bind_mw", "ibv_wr_bind_mw", "IBV_WR_BIND_MW"))]
    #[inline]
    pub fn bind_window<'w>(&mut self, wr_id: u64, window: &'w mut Mw) -> BindBuilder<'_, 'q, 'w> {
        self.expect_windows();
        BindBuilder::new(self, wr_id, window)
    }

    /// Closes a memory window of type 2. Requests of the peer that use it fail from then on.
    ///
    /// The window must be open, and have been bound through this queue pair. rxe does not look whether
    /// it is: a window that the peer has closed
    /// ([`Success::invalidated`](crate::Success::invalidated)) must not be closed again, or the
    /// kernel of this machine crashes. [`Mw::set_rkey`] notes that it is closed.
    #[doc(alias("ibv_wr_local_inv", "IBV_WR_LOCAL_INV"))]
    #[inline]
    pub fn invalidate<'w>(&mut self, wr_id: u64, window: &'w Mw) -> InvalidateBuilder<'_, 'q, 'w> {
        self.expect_windows();
        let request = self.request(wr_id, Operation::LocalInvalidate(window.rkey()));
        InvalidateBuilder { request, window }
    }

    /// A datagram to any receiver, from a UD queue pair. It fits one packet: it has at most as many
    /// bytes as the port's path MTU ([`PortAttr::active_mtu`](crate::PortAttr::active_mtu)).
    ///
    /// Nobody hears of a datagram that is lost: because nobody is there, because the queue key is
    /// another, or because the receiver has no receive posted or one without room for the
    /// [`GRH_LENGTH`](crate::GRH_LENGTH) bytes that are put in front.
    #[doc(alias("rdma_post_ud_send", "ibv_wr_set_ud_addr"))]
    #[inline]
    pub fn send_datagram<'b>(
        &'b mut self,
        wr_id: u64,
        to: Destination<'b>,
    ) -> RequestBuilder<'b, 'q> {
        self.datagram(wr_id, to, Operation::Datagram(to.to_request()))
    }

    /// A datagram with a number that comes out of the receiver's completion.
    #[inline]
    pub fn send_datagram_immediate<'b>(
        &'b mut self,
        wr_id: u64,
        to: Destination<'b>,
        immediate: u32,
    ) -> RequestBuilder<'b, 'q> {
        let operation = Operation::DatagramImmediate(to.to_request(), immediate);
        self.datagram(wr_id, to, operation)
    }

    #[inline]
    fn datagram<'b>(
        &'b mut self,
        wr_id: u64,
        to: Destination<'b>,
        operation: Operation<'b>,
    ) -> RequestBuilder<'b, 'q> {
        let is_foreign = *to.handle.pd() != self.owner.pd;
        let mut request = self.request(wr_id, operation);
        request.is_foreign = is_foreign;
        request
    }

    /// What requests have changed of windows so far is of a batch that was forgotten.
    fn expect_windows(&mut self) {
        if !self.has_windows {
            self.owner.undo_window_changes();
            self.has_windows = true;
        }
    }

    #[inline(always)]
    pub(super) fn request<'b>(
        &'b mut self,
        wr_id: u64,
        operation: Operation<'b>,
    ) -> RequestBuilder<'b, 'q> {
        RequestBuilder::new(self, wr_id, operation)
    }

    /// Forgets the requests.
    #[inline(always)]
    fn forget(&mut self) {
        let (unfinished, end) = self.building.unfinished();
        forget(unfinished, end, self.owner);
    }

    /// Starts the requests that were built. Where they cannot start they are forgotten.
    #[inline(always)]
    fn start(&mut self) -> Result<(), PostError> {
        if let Err(error) = self.check_state() {
            self.forget();
            return Err(error);
        }
        self.building.ring_doorbell()
    }

    /// Whether the queue pair can send.
    #[inline(always)]
    pub(super) fn check_state(&self) -> Result<(), PostError> {
        self.owner.check_state(&self.building)
    }

    /// Starts the requests of the batch with one doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError::NotConnected`] and [`PostError::Destroyed`] when the queue pair cannot send,
    /// and then nothing is queued; [`PostError::Doorbell`] when the kernel refuses the doorbell.
    #[doc(alias = "ibv_wr_complete")]
    #[inline(always)]
    pub fn submit(self) -> Result<(), PostError> {
        // Nothing is left for `drop` to forget.
        let mut batch = ManuallyDrop::new(self);
        let started = batch.start();
        if batch.has_windows {
            batch.owner.settle_windows(started);
        }
        started
    }
}

impl Drop for Batch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.forget();
    }
}

/// As [`Batch::forget`], given the parts of the batch: a reference to all of it would keep it in
/// memory.
#[cold]
#[inline(never)]
fn forget(unfinished: Unfinished<'_>, end: Option<u32>, owner: &mut Owner) {
    unfinished.discard(end);
    owner.undo_window_changes();
}
