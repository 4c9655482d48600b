//! Memory that a peer writes to and this process only reads.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Access, Buffer, Pd};
use crate::error::Result;
use crate::fastpath::RemoteAddress;
use crate::sys::Memory;

/// Memory that a peer writes to. Nothing in this process does, so it may be read from anywhere.
#[derive(Debug)]
pub(crate) struct Inbox(Buffer);

impl Inbox {
    pub(crate) fn new(pd: &Pd, length: usize) -> Result<Self> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self(pd.alloc(length, access)?))
    }

    /// Where the peer finds the first byte.
    pub(crate) fn remote(&self) -> RemoteAddress {
        self.0.remote()
    }

    /// Copies bytes out of it.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.read(offset, bytes)
    }

    /// A part of it, which keeps the memory.
    pub(crate) fn view(&self, offset: usize, length: usize) -> Result<View> {
        self.0.slice(offset..offset.saturating_add(length))?;
        Ok(View {
            memory: Arc::clone(self.0.memory()),
            offset,
            length,
        })
    }
}

/// Part of an [`Inbox`].
#[derive(Debug)]
pub(crate) struct View {
    memory: Arc<Memory>,
    offset: usize,
    length: usize,
}

impl View {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Leaves so many bytes out at the beginning, of which there must be so many.
    pub(crate) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.length);
        self.offset += count;
        self.length -= count;
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// The peer must not write to them while the slice exists.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the range was checked when the view was made, the memory is mapped for as long as
        // the view, and was zeroed when it was made. Nothing in this process writes to an inbox, and
        // the caller answers for the peer.
        unsafe {
            let first = self.memory.address().as_ptr().add(self.offset);
            std::slice::from_raw_parts(first, self.length)
        }
    }

    /// Copies the first bytes, as many as there are or are wanted; returns how many.
    pub(crate) fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let count = bytes.len().min(self.length);
        // SAFETY: the range is in the mapping, as for `as_slice`. `bytes` is a reference of the
        // program's, and there are none to an inbox that can be written to, so the two are apart. A
        // peer's device that writes meanwhile is no thread of the program: the bytes are then either
        // value, as with any DMA.
        unsafe {
            let first = self.memory.address().as_ptr().add(self.offset);
            std::ptr::copy_nonoverlapping(first, bytes.as_mut_ptr(), count);
        }
        count
    }

    /// Has the kernel write the bytes to a file, as many as that takes; returns how many.
    pub(crate) fn write_to(&self, file: BorrowedFd<'_>) -> io::Result<usize> {
        self.memory.write_to(file, self.offset, self.length)
    }
}
