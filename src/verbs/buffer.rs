//! Buffers that a device can use and safe code cannot misuse.

use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mr;
use super::{Access, Mr, MrChange, Pd};
use crate::error::{Error, Result};
use crate::fastpath::{RemoteAddress, Segment};
use crate::sys::Memory;

/// Registered memory of its own: page aligned, zeroed at first, shared with no other data.
///
/// A device may write to it at any time, so there are no references to its bytes: they are copied
/// in and out. A [`Segment`] of it may outlive the buffer. That is safe: the registration is taken
/// back before the memory is, and a request that comes too late fails instead of touching what is
/// there then. A memory window that is bound to the buffer ([`Mw`](super::Mw)) keeps both.
///
/// ```no_run
/// # fn example(pd: &rdmacm::Pd) -> rdmacm::Result<()> {
/// use rdmacm::Access;
///
/// let mut buffer = pd.alloc(4096, Access::LOCAL_WRITE)?;
/// buffer.write(0, b"hello")?;
/// let segment = buffer.slice(0..5)?; // post this
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Buffer {
    mr: Mr,
    /// The registration holds it as well.
    memory: Arc<Memory>,
}

impl Pd {
    /// Allocates and registers a buffer of `length` bytes. For messages and as the target of own
    /// reads the access is `LOCAL_WRITE`; peers that read it need `REMOTE_READ`, peers that write
    /// to it `LOCAL_WRITE | REMOTE_WRITE`.
    ///
    /// # Errors
    ///
    /// As [`Pd::register_raw`], and when there is no memory.
    #[doc(alias("ibv_reg_mr", "rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write"))]
    pub fn alloc(&self, length: usize, access: Access) -> Result<Buffer> {
        if length == 0 {
            return Err(Error::invalid("alloc", "a buffer has at least one byte"));
        }
        let memory = Memory::new(self.context().kernel(), length)
            .map_err(|error| Error::from_os("alloc", &error))?;
        let memory = Arc::new(memory);
        let range = mr::Range::of(memory.address().as_ptr() as u64, length);
        let mr = Mr::register(self, range, access, Some(memory.clone()))?;
        Ok(Buffer { mr, memory })
    }
}

impl Buffer {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.mr.len()
    }

    /// Whether the buffer has no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.mr.is_empty()
    }

    /// A segment of the buffer to post.
    ///
    /// # Errors
    ///
    /// When the range reaches beyond the buffer, or is longer than a segment can be (2^32 − 1
    /// bytes).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Segment> {
        let Range { start, end } = self.range(range)?;
        self.mr
            .segment(start, end - start)
            .ok_or_else(|| Error::invalid("slice", "a segment has at most 2^32 - 1 bytes"))
    }

    /// A range of the buffer's bytes, of which there are so many.
    pub(super) fn range(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>> {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.len()),
        };
        let (Some(start), Some(end)) = (start, end) else {
            return Err(Error::invalid(
                "slice",
                "the range does not fit an address space",
            ));
        };
        let length = end
            .checked_sub(start)
            .ok_or_else(|| self.outside(start, 0))?;
        self.check(start, length)?;
        Ok(start..end)
    }

    /// Where a peer finds the first byte. What it may do there is up to the access that the
    /// buffer was made with.
    pub fn remote(&self) -> RemoteAddress {
        self.mr.remote()
    }

    /// Changes what may be done to the buffer. Segments of it, and what [`Buffer::remote`] said,
    /// are to be made anew: the keys may change. No request may be under way that names it.
    ///
    /// # Errors
    ///
    /// As [`Mr::reregister`]; where the driver cannot do it, a new buffer is the way.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn set_access(&mut self, access: Access) -> Result<()> {
        self.mr.change(&MrChange::new().access(access))
    }

    /// Moves the buffer to another protection domain of the device. As [`Buffer::set_access`]
    /// otherwise.
    ///
    /// # Errors
    ///
    /// As [`Buffer::set_access`].
    #[doc(alias = "ibv_rereg_mr")]
    pub fn set_pd(&mut self, pd: &Pd) -> Result<()> {
        self.mr.change(&MrChange::new().pd(pd))
    }

    /// Copies `bytes` into the buffer from `offset` on.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the range was checked and is mapped for as long as `self` lives. No reference to
        // the buffer's bytes exists anywhere, so source and target are apart, and `&mut self` keeps
        // other threads out. A device that touches the same bytes meanwhile is no thread of the
        // program: the bytes are then either value, as with any DMA.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes from `offset` on out of the buffer, as many as `bytes` has room for.
    ///
    /// # Errors
    ///
    /// When the buffer has fewer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: as for `write`, in the other direction; `&self` keeps writing threads out.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// The `length` bytes from `offset` on, copied.
    ///
    /// # Errors
    ///
    /// When the buffer has fewer.
    pub fn read_vec(&self, offset: usize, length: usize) -> Result<Vec<u8>> {
        self.check(offset, length)?;
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The memory itself, which may outlive the registration.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn at(&self, offset: usize, length: usize) -> Result<NonNull<u8>> {
        self.check(offset, length)?;
        // SAFETY: the offset lies in the mapping, or right behind its end for an empty range.
        Ok(unsafe { self.memory.address().add(offset) })
    }

    fn check(&self, offset: usize, length: usize) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(self.outside(offset, length)),
        }
    }

    fn outside(&self, offset: usize, length: usize) -> Error {
        Error::invalid(
            "slice",
            format!(
                "{length} bytes from {offset} on are not in a buffer of {}",
                self.len()
            ),
        )
    }
}

/// The registration of the buffer, for binding memory windows to it.
impl AsRef<Mr> for Buffer {
    fn as_ref(&self) -> &Mr {
        &self.mr
    }
}
