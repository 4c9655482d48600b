//! Copying the bytes of a message into a queue.

use std::ptr::NonNull;

/// Copies bytes. Messages of tens of bytes are copied in two pieces, which overlap unless they are as
/// long as both: that is less than to find out what to call.
///
/// # Safety
///
/// `to` must be valid for writes of so many bytes, which must not be among `bytes`.
#[inline(always)]
pub(super) unsafe fn copy_bytes(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: by the caller; a piece has no more bytes than there are.
    unsafe {
        match bytes.len() {
            33..=64 => copy_ends::<32>(to, bytes),
            16..=32 => copy_ends::<16>(to, bytes),
            _ => copy_others(to, bytes),
        }
    }
}

/// Copies the first bytes and the last.
///
/// # Safety
///
/// As for [`copy_bytes`]; there must be so many bytes.
#[inline(always)]
unsafe fn copy_ends<const PIECE: usize>(to: NonNull<u8>, bytes: &[u8]) {
    let last = bytes.len() - PIECE;
    let from = bytes.as_ptr();
    // SAFETY: by the caller.
    unsafe {
        let pieces = [0, last].map(|at| from.add(at).cast::<[u8; PIECE]>().read_unaligned());
        to.cast::<[u8; PIECE]>().write_unaligned(pieces[0]);
        to.add(last)
            .cast::<[u8; PIECE]>()
            .write_unaligned(pieces[1]);
    }
}

/// # Safety
///
/// As for [`copy_bytes`].
#[cold]
#[inline(never)]
unsafe fn copy_others(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: by the caller.
    unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
}
