//! The send half of a queue pair.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use super::{Destination, Pd};
use crate::device::DeviceAttr;
use crate::fastpath::{
    Operation, Payload, PostError, QpType, RemoteAddress, Request, Segment, SendFlags, SendQueue,
};
use crate::qp_table::QpEntry;

/// The half of a queue pair that requests are posted to.
#[derive(Debug)]
pub struct SendHalf {
    /// None where nothing can be sent.
    queue: Option<SendQueue>,
    entry: Arc<QpEntry>,
    qp_type: QpType,
    pd: Pd,
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
            entry,
            qp_type,
            pd,
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
        // An earlier batch may have been forgotten instead of dropped.
        self.discard();
        Batch {
            half: self,
            numbers: u64::MAX,
        }
    }

    /// How many requests can be outstanding; 0 without a send queue.
    pub fn depth(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.depth())
    }

    /// Forgets requests that were built and not started.
    #[inline(always)]
    fn discard(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.discard();
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
        match self.entry.state() {
            _ if self.entry.is_inherited() => Err(PostError::Inherited),
            QpEntry::DESTROYED => Err(PostError::Destroyed),
            state if state < uverbs::QpState::RTS.0 => Err(PostError::NotConnected),
            _ => Ok(()),
        }
    }
}

/// Requests that are being built and not yet started.
#[derive(Debug)]
#[must_use = "a batch starts nothing until it is submitted"]
pub struct Batch<'q> {
    half: &'q mut SendHalf,
    /// The largest number that a request may have.
    numbers: u64,
}

impl<'q> Batch<'q> {
    /// Keeps larger numbers for a layer that marks its own requests with them.
    pub(crate) fn with_numbers_up_to(mut self, numbers: u64) -> Self {
        self.numbers = numbers;
        self
    }

    /// A message for the peer's next receive.
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

    /// An RDMA write into the peer's memory, which the peer does not notice.
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
        AtomicBuilder {
            request: self.request(wr_id, Operation::CompareSwap { at, compare, swap }),
            at,
        }
    }

    /// Adds to 8 bytes of the peer's memory, beginning again at 0 beyond 2^64 − 1. What was there
    /// before is the answer. All else is as for [`Batch::compare_swap`].
    #[doc(alias("ibv_wr_atomic_fetch_add", "IBV_WR_ATOMIC_FETCH_AND_ADD"))]
    #[inline]
    pub fn fetch_add(&mut self, wr_id: u64, at: RemoteAddress, add: u64) -> AtomicBuilder<'_, 'q> {
        AtomicBuilder {
            request: self.request(wr_id, Operation::FetchAdd { at, add }),
            at,
        }
    }

    /// Writes 8 bytes of the peer's memory at once: who reads them there sees all of them or none.
    /// They begin at a multiple of 8, in memory with
    /// [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE). The two sides must have agreed on
    /// reads and atomics, since the peer remembers it as one of these.
    ///
    /// Not every device has it: [`DeviceAttr::has_atomic_write`].
    #[doc(alias("ibv_wr_atomic_write", "IBV_WR_ATOMIC_WRITE"))]
    #[inline]
    pub fn atomic_write(&mut self, wr_id: u64, to: RemoteAddress) -> AtomicWriteBuilder<'_, 'q> {
        AtomicWriteBuilder {
            request: self.request(wr_id, Operation::AtomicWrite(to)),
            to,
        }
    }

    /// A datagram to any receiver, from a UD queue pair. It fits one packet: it has at most as many
    /// bytes as the port's path MTU ([`PortAttr::active_mtu`](crate::PortAttr::active_mtu)).
    ///
    /// Nobody hears of a datagram that is lost: because nobody is there, because the queue key is
    /// another, or because the receiver has no receive posted or one without room for the
    /// [`GRH_LENGTH`](crate::GRH_LENGTH) bytes that are put in front.
    #[doc(alias("rdma_post_ud_send", "ibv_wr_set_ud_addr"))]
    #[inline]
    pub fn send_datagram(&mut self, wr_id: u64, to: Destination<'_>) -> RequestBuilder<'_, 'q> {
        self.datagram(wr_id, to, Operation::Datagram(to.to_request()))
    }

    /// A datagram with a number that comes out of the receiver's completion.
    #[inline]
    pub fn send_datagram_immediate(
        &mut self,
        wr_id: u64,
        to: Destination<'_>,
        immediate: u32,
    ) -> RequestBuilder<'_, 'q> {
        let operation = Operation::DatagramImmediate(to.to_request(), immediate);
        self.datagram(wr_id, to, operation)
    }

    #[inline]
    fn datagram(
        &mut self,
        wr_id: u64,
        to: Destination<'_>,
        operation: Operation,
    ) -> RequestBuilder<'_, 'q> {
        let is_foreign = *to.handle.pd() != self.half.pd;
        RequestBuilder {
            is_foreign,
            ..self.request(wr_id, operation)
        }
    }

    #[inline(always)]
    fn request(&mut self, wr_id: u64, operation: Operation) -> RequestBuilder<'_, 'q> {
        RequestBuilder {
            batch: self,
            wr_id,
            operation,
            flags: SendFlags::empty(),
            is_foreign: false,
        }
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
        self.half.check_state()?;
        match &mut self.half.queue {
            Some(queue) => queue.ring_doorbell(),
            None => Ok(()),
        }
    }
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        // After `submit` there is nothing left to forget.
        self.half.discard();
    }
}

/// One request being built: its flags, then its data, which ends the building.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is given its data"]
pub struct RequestBuilder<'b, 'q> {
    batch: &'b mut Batch<'q>,
    wr_id: u64,
    operation: Operation,
    flags: SendFlags,
    /// Whether the address handle is of another protection domain. The kernel would move the queue
    /// pair to the error state.
    is_foreign: bool,
}

impl RequestBuilder<'_, '_> {
    /// Asks for a completion.
    #[inline]
    pub fn signaled(self) -> Self {
        self.flags(SendFlags::SIGNALED)
    }

    /// Marks the message as solicited, for peers that wait for such messages only.
    #[inline]
    pub fn solicited(self) -> Self {
        self.flags(SendFlags::SOLICITED)
    }

    /// Waits for earlier reads and atomics to finish first.
    #[inline]
    pub fn fence(self) -> Self {
        self.flags(SendFlags::FENCE)
    }

    /// Adds flags.
    #[inline]
    pub fn flags(mut self, flags: SendFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Takes the data from registered memory, which must keep it until the request completes. No
    /// segment at all is a message of no bytes.
    ///
    /// # Errors
    ///
    /// A full queue and too many segments, a request that the type of the queue pair does not
    /// allow; the batch stays as it was.
    #[inline(always)]
    pub fn from(self, segments: &[Segment]) -> Result<(), PostError> {
        self.push(Payload::Segments(segments))
    }

    /// Copies the data into the queue; `bytes` can be used again at once and need not be
    /// registered.
    ///
    /// # Errors
    ///
    /// A full queue and more bytes than `max_inline_data`, a request that the type of the queue
    /// pair does not allow; the batch stays as it was.
    #[inline(always)]
    pub fn inline(self, bytes: &[u8]) -> Result<(), PostError> {
        self.push(Payload::Inline(bytes))
    }

    #[inline(always)]
    fn push(self, payload: Payload<'_>) -> Result<(), PostError> {
        self.check(&payload)?;
        let half = &mut *self.batch.half;
        let Some(queue) = &mut half.queue else {
            let qp_type = half.qp_type;
            return Err(PostError::WrongQpType { qp_type });
        };
        queue.push(&Request {
            wr_id: self.wr_id,
            operation: self.operation,
            flags: self.flags,
            payload,
        })
    }

    /// Refuses what the peer answers with data, where the two sides agreed on none of it.
    #[inline]
    fn check_depth(&self) -> Result<(), PostError> {
        let half = &*self.batch.half;
        match half.qp_type.can(&self.operation) && !half.entry.can_read() {
            true => Err(PostError::NoReads),
            false => Ok(()),
        }
    }

    /// Refuses what this queue pair cannot carry out.
    #[inline(always)]
    fn check(&self, payload: &Payload<'_>) -> Result<(), PostError> {
        let SendHalf { entry, qp_type, .. } = &*self.batch.half;
        let qp_type = *qp_type;
        if entry.is_inherited() {
            return Err(PostError::Inherited);
        }
        if self.wr_id > self.batch.numbers {
            let wr_id = self.wr_id;
            return Err(PostError::NumberTaken { wr_id });
        }
        if !qp_type.can(&self.operation) {
            return Err(PostError::WrongQpType { qp_type });
        }
        if qp_type != QpType::Ud {
            return Ok(());
        }
        if self.is_foreign {
            return Err(PostError::ForeignAddressHandle);
        }
        let (length, max) = (payload.length()?, entry.max_datagram());
        match length <= max as usize {
            true => Ok(()),
            false => Err(PostError::DatagramTooLong { length, max }),
        }
    }
}

/// The flags of a request whose builder wraps a [`RequestBuilder`].
macro_rules! flags {
    ($builder:ident) => {
        impl $builder<'_, '_> {
            /// Adds flags.
            #[inline]
            pub fn flags(mut self, flags: SendFlags) -> Self {
                self.request = self.request.flags(flags);
                self
            }

            /// Asks for a completion.
            #[inline]
            pub fn signaled(self) -> Self {
                self.flags(SendFlags::SIGNALED)
            }

            /// Waits for earlier reads and atomics to finish first.
            #[inline]
            pub fn fence(self) -> Self {
                self.flags(SendFlags::FENCE)
            }
        }
    };
}

/// An RDMA read being built. It cannot be inline.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is given its target"]
pub struct ReadBuilder<'b, 'q> {
    request: RequestBuilder<'b, 'q>,
}

flags!(ReadBuilder);

impl ReadBuilder<'_, '_> {
    /// Places the data into registered memory.
    ///
    /// # Errors
    ///
    /// As [`RequestBuilder::from`]; [`PostError::NoReads`] where the two sides agreed on none.
    #[inline(always)]
    pub fn into(self, segments: &[Segment]) -> Result<(), PostError> {
        self.request.check_depth()?;
        self.request.from(segments)
    }
}

/// Bytes that an atomic works on.
const ATOMIC_LENGTH: usize = 8;

fn check_alignment(at: RemoteAddress) -> Result<(), PostError> {
    let RemoteAddress { address, .. } = at;
    match address % ATOMIC_LENGTH as u64 {
        0 => Ok(()),
        _ => Err(PostError::AtomicUnaligned { address }),
    }
}

/// An atomic being built.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is given a place for the answer"]
pub struct AtomicBuilder<'b, 'q> {
    request: RequestBuilder<'b, 'q>,
    at: RemoteAddress,
}

flags!(AtomicBuilder);

impl AtomicBuilder<'_, '_> {
    /// Places what was in the peer's memory before into 8 bytes of registered memory.
    ///
    /// # Errors
    ///
    /// As [`RequestBuilder::from`]; [`PostError::NoReads`] where the two sides agreed on none,
    /// [`PostError::AtomicLength`] for a segment of another size, [`PostError::AtomicUnaligned`]
    /// where the peer's address is not a multiple of 8. The batch stays as it was.
    #[inline(always)]
    pub fn into(self, answer: Segment) -> Result<(), PostError> {
        self.request.check_depth()?;
        let length = answer.len();
        if length != ATOMIC_LENGTH {
            return Err(PostError::AtomicLength { length });
        }
        check_alignment(self.at)?;
        self.request.from(&[answer])
    }
}

/// An atomic write being built.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is given its value"]
pub struct AtomicWriteBuilder<'b, 'q> {
    request: RequestBuilder<'b, 'q>,
    to: RemoteAddress,
}

flags!(AtomicWriteBuilder);

impl AtomicWriteBuilder<'_, '_> {
    /// Writes these 8 bytes, which need not be registered.
    ///
    /// # Errors
    ///
    /// A full queue, a queue pair that is not RC; [`PostError::NoAtomicWrite`] where the device has
    /// none; [`PostError::NoReads`] where the two sides agreed on none, [`PostError::AtomicUnaligned`]
    /// where the peer's address is not a multiple of 8. The batch stays as it was.
    #[inline(always)]
    pub fn bytes(self, value: [u8; ATOMIC_LENGTH]) -> Result<(), PostError> {
        self.request.check_depth()?;
        check_alignment(self.to)?;
        let half = &*self.request.batch.half;
        // Asked when the queue pair was made, and remembered since.
        let is_known = half
            .pd
            .context()
            .attr()
            .is_ok_and(DeviceAttr::has_atomic_write);
        if half.qp_type.can(&self.request.operation) && !is_known {
            return Err(PostError::NoAtomicWrite);
        }
        self.request.push(Payload::Value(value))
    }
}
