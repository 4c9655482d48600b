//! What requests and receives have in common: the message and its pieces.

use std::ptr::NonNull;

use rdmacm_kernel_abi::rxe;

use crate::fastpath::request::Segment;

/// A message of `length` bytes in `num_sge` segments, of which nothing is carried out yet.
#[inline(always)]
pub(super) fn message(length: u32, num_sge: u32) -> rxe::DmaInfo {
    rxe::DmaInfo {
        length,
        resid: length,
        num_sge,
        ..Default::default()
    }
}

/// Writes segments.
///
/// # Safety
///
/// `to` must be valid for writes of so many segments and aligned to 8.
#[inline(always)]
pub(super) unsafe fn write_segments(to: NonNull<u8>, segments: &[Segment]) {
    let to = to.cast::<rxe::Sge>();
    for (index, segment) in segments.iter().enumerate() {
        let Segment {
            address: addr,
            length,
            lkey,
        } = *segment;
        // SAFETY: the caller vouches for the room.
        unsafe { to.add(index).write(rxe::Sge { addr, length, lkey }) };
    }
}
