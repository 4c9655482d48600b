//! A command that is sent as it is, again and again.

use std::fmt;
use std::sync::atomic::AtomicU32;

/// A command for `write()` that never changes. The kernel's answer of four bytes goes to a place of
/// its own, which nobody reads.
pub(crate) struct FixedCommand {
    request: Box<[u8]>,
    /// Atomic, since the kernel writes to it while references exist.
    _answer: Box<AtomicU32>,
}

impl FixedCommand {
    /// Takes header and body. The address of the answer is put in place, as a `u64` at `offset`.
    pub(crate) fn new(request: &[u8], offset: usize) -> Self {
        let answer = Box::new(AtomicU32::new(0));
        let mut request: Box<[u8]> = request.into();
        let address = answer.as_ptr().expose_provenance() as u64;
        request[offset..offset + size_of::<u64>()].copy_from_slice(&address.to_ne_bytes());
        Self {
            request,
            _answer: answer,
        }
    }

    /// The command as it is sent.
    #[inline]
    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }
}

impl fmt::Debug for FixedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FixedCommand").field(&self.request).finish()
    }
}
