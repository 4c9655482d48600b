//! One request of a batch: its flags, then its data.
//!
//! The builders differ in what ends them, so that no request gets data of a kind that it cannot
//! have.

use std::ops::Range;
use std::sync::Arc;

use super::mw::WindowChange;
use super::{Access, Batch, Data, Mr, Mw, MwType};
use crate::device::DeviceAttr;
use crate::fastpath::{
    Flush, FlushPlacement, Operation, Payload, PostError, RemoteAddress, Request, Segment,
    SendFlags, WindowBind,
};
use crate::qp_table::QpEntry;

/// One request being built: its flags, then its data, which ends the building.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is given its data"]
pub struct RequestBuilder<'b, 'q> {
    batch: &'b mut Batch<'q>,
    wr_id: u64,
    operation: Operation<'b>,
    flags: SendFlags,
    /// Whether the address handle is of another protection domain. The kernel would move the queue
    /// pair to the error state.
    pub(super) is_foreign: bool,
}

impl<'b, 'q> RequestBuilder<'b, 'q> {
    #[inline(always)]
    pub(super) fn new(batch: &'b mut Batch<'q>, wr_id: u64, operation: Operation<'b>) -> Self {
        Self {
            batch,
            wr_id,
            operation,
            flags: SendFlags::empty(),
            is_foreign: false,
        }
    }

    /// Asks for a completion.
    #[inline]
    pub fn signaled(self) -> Self {
        self.flags(SendFlags::SIGNALED)
    }

    /// Marks the message as solicited, for peers that wait for such messages only. Means nothing for
    /// a write without immediate data, which the peer does not notice.
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
    /// allow or the driver does not have ([`PostError::NotOnDevice`]); the batch stays as it was.
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
    /// pair does not allow or the driver does not have ([`PostError::NotOnDevice`]); the batch stays
    /// as it was.
    #[inline(always)]
    pub fn inline(self, bytes: &[u8]) -> Result<(), PostError> {
        self.push(Payload::Inline(bytes))
    }

    #[inline]
    pub(super) fn data(self, data: Data<'_>) -> Result<(), PostError> {
        match data {
            Data::Segments(segments) => self.from(segments),
            Data::Inline(bytes) => self.inline(bytes),
        }
    }

    #[inline(always)]
    fn push(self, payload: Payload<'_>) -> Result<(), PostError> {
        let request = self.request(payload);
        let (owner, numbers) = (&*self.batch.owner, self.batch.numbers);
        let is_foreign = self.is_foreign;
        let check = move || owner.check(&request, numbers, is_foreign);
        let may_be_usual = || request.wr_id <= numbers && owner.can_read(&request);
        self.batch.building.push(&request, may_be_usual, check)
    }

    #[inline(always)]
    fn request<'r>(&self, payload: Payload<'r>) -> Request<'r>
    where
        'b: 'r,
    {
        Request {
            wr_id: self.wr_id,
            operation: self.operation,
            flags: self.flags,
            payload,
        }
    }

    /// Adds a request that changes a memory window: `post` puts it in the queue by its argument.
    fn push_change(
        self,
        post: impl FnOnce(
            &Arc<QpEntry>,
            &mut dyn FnMut() -> Result<(), PostError>,
        ) -> Result<WindowChange, PostError>,
    ) -> Result<(), PostError> {
        let request = self.request(Payload::Segments(&[]));
        self.check(&request)?;
        let batch = self.batch;
        let through = Arc::clone(&batch.owner.entry);
        let building = &mut batch.building;
        let change = post(&through, &mut || {
            building.push(&request, || false, || Ok(()))
        })?;
        batch.owner.window_changes.push(change);
        Ok(())
    }

    /// Refuses what the peer answers with data, where the two sides agreed on none of it.
    #[inline(always)]
    fn check_depth(&self) -> Result<(), PostError> {
        let owner = &*self.batch.owner;
        match owner.qp_type.can(&self.operation) && !owner.entry.can_read() {
            true => Err(PostError::NoReads),
            false => Ok(()),
        }
    }

    /// Refuses what the device does not have, where it is a question of the device.
    #[inline]
    fn check_device(
        &self,
        has: impl FnOnce(&DeviceAttr) -> bool,
        refusal: PostError,
    ) -> Result<(), PostError> {
        let owner = &*self.batch.owner;
        // Asked when the queue pair was made, and remembered since.
        let is_there = owner.pd.context().attr().is_ok_and(has);
        match owner.qp_type.can(&self.operation) && !is_there {
            true => Err(refusal),
            false => Ok(()),
        }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), PostError> {
        let batch = &*self.batch;
        batch.owner.check(request, batch.numbers, self.is_foreign)
    }
}

/// The flags of a request that uses up no receive, and whose builder wraps a [`RequestBuilder`].
macro_rules! flags {
    ($builder:ident<$($lifetime:lifetime),*>) => {
        impl $builder<$($lifetime),*> {
            /// Adds flags. [`SendFlags::SOLICITED`] means nothing here.
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
    pub(super) request: RequestBuilder<'b, 'q>,
}

flags!(ReadBuilder<'_, '_>);

impl ReadBuilder<'_, '_> {
    /// Places the data into registered memory.
    ///
    /// # Errors
    ///
    /// As [`RequestBuilder::from`]; [`PostError::NoReads`] where the two sides agreed on none. A read
    /// of siw has one segment, and cannot be fenced.
    #[inline(always)]
    pub fn into(self, segments: &[Segment]) -> Result<(), PostError> {
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
    pub(super) request: RequestBuilder<'b, 'q>,
    pub(super) at: RemoteAddress,
}

flags!(AtomicBuilder<'_, '_>);

impl AtomicBuilder<'_, '_> {
    /// Places what was in the peer's memory before into 8 bytes of registered memory.
    ///
    /// # Errors
    ///
    /// As [`RequestBuilder::from`]; [`PostError::NoReads`] where the two sides agreed on none,
    /// [`PostError::AtomicLength`] for a segment of another size, [`PostError::AtomicUnaligned`]
    /// where the peer's address is not a multiple of 8. The batch stays as it was.
    #[inline]
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
    pub(super) request: RequestBuilder<'b, 'q>,
    pub(super) to: RemoteAddress,
}

flags!(AtomicWriteBuilder<'_, '_>);

impl AtomicWriteBuilder<'_, '_> {
    /// Writes these 8 bytes, which need not be registered.
    ///
    /// # Errors
    ///
    /// A full queue, a queue pair that is not RC; [`PostError::NoAtomicWrite`] where the device has
    /// none; [`PostError::NoReads`] where the two sides agreed on none, [`PostError::AtomicUnaligned`]
    /// where the peer's address is not a multiple of 8. The batch stays as it was.
    #[inline]
    pub fn bytes(self, value: [u8; ATOMIC_LENGTH]) -> Result<(), PostError> {
        self.request.check_depth()?;
        check_alignment(self.to)?;
        let has = DeviceAttr::has_atomic_write;
        self.request.check_device(has, PostError::NoAtomicWrite)?;
        self.request.push(Payload::Value(value))
    }
}

/// A flush being built.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is said what to flush"]
pub struct FlushBuilder<'b, 'q> {
    request: RequestBuilder<'b, 'q>,
    flush: Flush,
}

flags!(FlushBuilder<'_, '_>);

impl<'b, 'q> FlushBuilder<'b, 'q> {
    #[inline]
    pub(super) fn new(batch: &'b mut Batch<'q>, wr_id: u64, flush: Flush) -> Self {
        let request = batch.request(wr_id, Operation::Flush(flush));
        Self { request, flush }
    }

    /// Flushes so many bytes from the address on.
    ///
    /// # Errors
    ///
    /// A full queue, a queue pair that is not RC; [`PostError::NoFlush`] where the device has none
    /// that reaches so far; [`PostError::NoReads`] where the two sides agreed on none. The batch
    /// stays as it was.
    #[inline]
    pub fn range(self, length: u32) -> Result<(), PostError> {
        self.push(Some(length))
    }

    /// Flushes the whole region that the key is of.
    ///
    /// # Errors
    ///
    /// As for [`FlushBuilder::range`].
    #[inline]
    pub fn region(self) -> Result<(), PostError> {
        self.push(None)
    }

    #[inline]
    fn push(mut self, length: Option<u32>) -> Result<(), PostError> {
        self.request.check_depth()?;
        let has = |attr: &DeviceAttr| match self.flush.placement {
            FlushPlacement::Global => attr.has_flush_global(),
            FlushPlacement::Persistent => attr.has_flush_persistent(),
            FlushPlacement::GlobalAndPersistent => {
                attr.has_flush_global() && attr.has_flush_persistent()
            }
        };
        self.request.check_device(has, PostError::NoFlush)?;
        let flush = Flush {
            length,
            ..self.flush
        };
        self.request.operation = Operation::Flush(flush);
        self.request.push(Payload::Remote(length.unwrap_or(0)))
    }
}

/// The bind of a memory window being built.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is said what to bind to"]
pub struct BindBuilder<'b, 'q, 'w> {
    request: RequestBuilder<'b, 'q>,
    window: &'w mut Mw,
    key_byte: Option<u8>,
}

flags!(BindBuilder<'_, '_, '_>);

impl<'b, 'q, 'w> BindBuilder<'b, 'q, 'w> {
    #[inline]
    pub(super) fn new(batch: &'b mut Batch<'q>, wr_id: u64, window: &'w mut Mw) -> Self {
        // What it does in full is known in the end.
        let nowhere = Operation::BindWindow(WindowBind::default());
        Self {
            request: batch.request(wr_id, nowhere),
            window,
            key_byte: None,
        }
    }

    /// Chooses the last byte of the new key; else it is one more than in the present key. For
    /// windows of type 2.
    #[inline]
    pub fn key_byte(mut self, byte: u8) -> Self {
        self.key_byte = Some(byte);
        self
    }

    /// Opens the window for a range of a region, a [`Buffer`](crate::Buffer) or an [`Mr`], and
    /// returns where a peer finds it: the address of its first byte, and its new key.
    ///
    /// `access` is what peers may do: `REMOTE_READ`, `REMOTE_WRITE`, `REMOTE_ATOMIC` and the
    /// `FLUSH_` flags. Writing and atomics need a region with `LOCAL_WRITE`; reading does not need
    /// one with `REMOTE_READ`.
    ///
    /// # Errors
    ///
    /// A full queue, a queue pair that is neither RC nor UC. [`PostError::ForeignWindow`] where
    /// window, region and queue pair are not of one protection domain, [`PostError::WindowRange`] for
    /// a range that is empty or not in the region, [`PostError::NoWindowsInRegion`] for one without
    /// `MW_BIND`, [`PostError::WindowAccess`], [`PostError::WindowDestroyed`], [`PostError::WindowOfType1`] where the last byte of
    /// the key was chosen for such a window. The batch stays as it was, and the window has its key
    /// still.
    #[doc(alias = "ibv_inc_rkey")]
    #[inline]
    pub fn to(
        self,
        region: &impl AsRef<Mr>,
        range: Range<usize>,
        access: Access,
    ) -> Result<RemoteAddress, PostError> {
        let region = region.as_ref();
        self.check_domain(Some(region))?;
        let bind = self.window.opening(region, &range, access, self.key_byte)?;
        self.push(bind, Some(region))
    }

    /// Closes a window of type 1. In C this is a bind of no bytes.
    ///
    /// # Errors
    ///
    /// As for [`BindBuilder::to`]; [`PostError::WindowOfType2`] for such a window, which is closed by
    /// [`Batch::invalidate`].
    #[inline]
    pub fn unbind(self) -> Result<(), PostError> {
        self.check_domain(None)?;
        let bind = self.window.closing()?;
        self.push(bind, None).map(drop)
    }

    fn check_domain(&self, region: Option<&Mr>) -> Result<(), PostError> {
        let pd = &self.request.batch.owner.pd;
        match region.is_none_or(|region| region.pd() == pd) {
            true => self.window.check(pd),
            false => Err(PostError::ForeignWindow),
        }
    }

    fn push(self, bind: WindowBind, region: Option<&Mr>) -> Result<RemoteAddress, PostError> {
        let Self {
            mut request,
            window,
            ..
        } = self;
        request.operation = Operation::BindWindow(bind);
        request.push_change(|through, push| window.post(&bind, region, through, push))?;
        Ok(RemoteAddress {
            address: bind.address,
            rkey: bind.new_rkey,
        })
    }
}

/// The invalidation of a memory window being built.
#[derive(Debug)]
#[must_use = "a request is not in the batch until it is added"]
pub struct InvalidateBuilder<'b, 'q, 'w> {
    pub(super) request: RequestBuilder<'b, 'q>,
    pub(super) window: &'w Mw,
}

flags!(InvalidateBuilder<'_, '_, '_>);

impl InvalidateBuilder<'_, '_, '_> {
    /// Adds the request to the batch.
    ///
    /// # Errors
    ///
    /// A full queue, a queue pair that is not RC; [`PostError::WindowOfType1`] for such a window,
    /// [`PostError::ForeignWindow`] for one of another protection domain, [`PostError::WindowDestroyed`],
    /// and [`PostError::WindowClosed`] for one that was not bound through this queue pair since it was
    /// made or invalidated.
    /// The batch stays as it was.
    #[inline]
    pub fn add(self) -> Result<(), PostError> {
        if self.window.mw_type() == MwType::One {
            return Err(PostError::WindowOfType1);
        }
        let Self { request, window } = self;
        window.check(&request.batch.owner.pd)?;
        request.push_change(|through, push| window.invalidate(through, push))
    }
}
