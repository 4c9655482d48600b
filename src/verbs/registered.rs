//! Memory that a device only reads.

use std::io;
use std::ops::{Deref, Range, RangeBounds};
use std::sync::Arc;

use super::{Access, Buffer, Pd};
use crate::error::Result;
use crate::fastpath::Segment;

/// Registered memory that is sent out of without a copy: page aligned, zeroed at first.
///
/// The device may only read it, so the program sees its bytes as a slice. They can be changed while
/// nothing that was sent of them is under way. Dropping it does not wait: the memory stays until the
/// device has read it.
///
/// [`RdmaStream::register`](crate::RdmaStream::register) makes one.
#[derive(Debug)]
#[doc(alias("ibv_reg_mr", "MSG_ZEROCOPY"))]
pub struct RegisteredBuffer(Arc<Registered>);

/// What a request that is under way has of it.
#[derive(Debug)]
pub(crate) struct Registered {
    buffer: Buffer,
}

impl RegisteredBuffer {
    /// Memory of `length` bytes in a protection domain.
    pub(crate) fn new(pd: &Pd, length: usize) -> Result<Self> {
        // Without access of any kind: a device cannot be made to write to it.
        let buffer = pd.alloc(length, Access::empty())?;
        Ok(Self(Arc::new(Registered { buffer })))
    }

    /// The bytes, to be changed.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` while something that was sent of them is under way.
    pub fn as_mut_slice(&mut self) -> io::Result<&mut [u8]> {
        let Some(registered) = Arc::get_mut(&mut self.0) else {
            let text = "the memory is still being sent; wait until it was (wait_sent)";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        };
        let memory = registered.buffer.memory();
        let (address, length) = (memory.address().as_ptr(), registered.buffer.len());
        // SAFETY: as for the shared slice; this is the only one, since it borrows the one value that
        // gives slices out, and requests that hold the memory, of which there is none now, have none.
        Ok(unsafe { std::slice::from_raw_parts_mut(address, length) })
    }

    /// Whether something that was sent of it is under way, as far as its streams have looked.
    pub fn is_busy(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// A share of it, for what is under way.
    pub(crate) fn hold(&self) -> Arc<Registered> {
        Arc::clone(&self.0)
    }

    /// What tells it from other memory, as the address of a share does: that costs no share.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether a share is of this memory.
    pub(crate) fn is_held_by(&self, share: &Arc<Registered>) -> bool {
        Arc::ptr_eq(&self.0, share)
    }

    /// Whether queue pairs of a protection domain can send it.
    pub(crate) fn is_of(&self, pd: &Pd) -> bool {
        self.0.buffer.as_ref().pd() == pd
    }

    /// Part of it to be posted.
    pub(crate) fn segment(&self, range: impl RangeBounds<usize>) -> Result<Segment> {
        self.0.buffer.slice(range)
    }

    /// A range of its bytes, of which there are so many.
    pub(crate) fn range(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>> {
        self.0.buffer.range(range)
    }
}

impl Deref for RegisteredBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let buffer = &self.0.buffer;
        // SAFETY: the memory is mapped for as long as the buffer, zeroed when it was made, and its
        // own. Nothing writes to it meanwhile: no device may, since it was registered without that
        // access, and the only slice that can be written to borrows `self` mutably.
        unsafe { std::slice::from_raw_parts(buffer.memory().address().as_ptr(), buffer.len()) }
    }
}

impl AsRef<[u8]> for RegisteredBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
