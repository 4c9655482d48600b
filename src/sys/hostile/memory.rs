//! Memory that the hostile kernel hands out.
//!
//! It comes from the heap and ends where the mapping ends, so that AddressSanitizer sees an access
//! beyond it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// The longest mapping that is granted.
const LONGEST_MAPPING: usize = 1 << 16;
pub(super) const PAGE: usize = 4096;

/// A mapping.
#[derive(Debug)]
pub(super) struct Pages {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an address of memory that this object owns; it is reached under the kernel's lock.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn new(length: usize) -> io::Result<Self> {
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        if length == 0 || length > LONGEST_MAPPING {
            return Err(no_memory());
        }
        let layout = Layout::from_size_align(length, PAGE).map_err(|_| no_memory())?;
        // SAFETY: the size is not zero.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        Ok(Self { address, layout })
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(super) fn length(&self) -> usize {
        self.layout.size()
    }

    /// Writes as much as fits at an offset, as a device would: behind the compiler's back.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        let room = self.layout.size().saturating_sub(at);
        let length = bytes.len().min(room);
        if length > 0 {
            // SAFETY: `at + length` is within the allocation. The targets have one thread, which
            // is here and not in a ring.
            unsafe {
                self.address
                    .add(at)
                    .copy_from(NonNull::from(bytes).cast(), length)
            };
        }
    }

    /// Reads what is at an offset; zeros from the end on.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let length = self.layout.size().saturating_sub(at).min(N);
        if length > 0 {
            // SAFETY: as for `write`.
            unsafe {
                self.address
                    .add(at)
                    .copy_to(NonNull::from(&mut bytes).cast(), length)
            };
        }
        bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed here only.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}
