//! Memory that a device shares with the process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;

use super::{Kernel, MapFor};

/// The size of a page of memory.
pub(crate) fn page_size() -> usize {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(4096)
}

/// A range of mapped memory, given back when dropped.
#[derive(Debug)]
struct Range {
    kernel: Arc<dyn Kernel>,
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the range is only an address and a length; whoever reads or writes the memory behind it
// says why that is sound across threads.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the one mapping this object made, and its owner,
        // which is being dropped, was the only way to reach the memory.
        unsafe { self.kernel.unmap(self.address, self.length) };
    }
}

/// A queue or register page of a device, mapped into the process.
#[derive(Debug)]
pub(crate) struct Mapping(Range);

impl Mapping {
    /// Maps `length` bytes of the device behind `fd`.
    pub(crate) fn new(
        kernel: &Arc<dyn Kernel>,
        fd: BorrowedFd<'_>,
        length: usize,
        offset: u64,
        purpose: MapFor,
    ) -> io::Result<Self> {
        let address = kernel.map_device(fd, length, offset, purpose)?;
        Ok(Self(Range {
            kernel: Arc::clone(kernel),
            address,
            length,
        }))
    }

    /// Where the mapping begins.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0.address
    }

    /// Its size in bytes.
    pub(crate) fn length(&self) -> usize {
        self.0.length
    }
}

/// Zeroed pages of the process's own, which nothing else shares a page with.
#[derive(Debug)]
pub(crate) struct Memory(Range);

impl Memory {
    /// Maps at least `length` bytes, rounded up to whole pages. `length` 0 is an error of the
    /// kernel's.
    pub(crate) fn new(kernel: &Arc<dyn Kernel>, length: usize) -> io::Result<Self> {
        let length = length
            .checked_next_multiple_of(page_size())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let address = kernel.map_memory(length)?;
        Ok(Self(Range {
            kernel: Arc::clone(kernel),
            address,
            length,
        }))
    }

    /// Its size in bytes.
    pub(crate) fn length(&self) -> usize {
        self.0.length
    }

    /// Where the memory begins.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0.address
    }

    /// Has the kernel write a range of the memory to a file, as much as that takes; returns how much.
    /// There is no reference to the bytes, which a device may be writing.
    pub(crate) fn write_to(
        &self,
        file: BorrowedFd<'_>,
        offset: usize,
        length: usize,
    ) -> io::Result<usize> {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length())
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range is in the mapping, which the kernel only reads.
        let written = unsafe {
            let first = self.address().as_ptr().add(offset);
            libc::write(file.as_raw_fd(), first.cast(), length)
        };
        Ok(Errno::result(written)? as usize)
    }
}
