//! What requests and receives have in common: the message and its pieces.

use std::ptr::NonNull;

use rdmacm_kernel_abi::rxe;

use crate::fastpath::request::{Payload, PostError, Segment};

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

/// Writes the segments or the inline bytes, and returns the message that they make.
///
/// # Errors
///
/// When the segments have too many bytes together.
///
/// # Safety
///
/// `to` must be valid for writes of the payload's size and aligned to 8.
#[inline(always)]
pub(super) unsafe fn write_payload(
    to: NonNull<u8>,
    payload: Payload<'_>,
) -> Result<rxe::DmaInfo, PostError> {
    Ok(match payload {
        Payload::Segments(segments) => {
            // SAFETY: the caller vouches for the room.
            let length = unsafe { write_segments(to, segments)? };
            message(length, segments.len() as u32)
        }
        Payload::Inline(bytes) => {
            // SAFETY: the caller vouches for the room, which is in the ring and thus apart from
            // the caller's bytes.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
            message(bytes.len() as u32, 1)
        }
        Payload::Value(bytes) => {
            // SAFETY: the caller vouches for the room.
            unsafe { to.cast::<[u8; 8]>().write(bytes) };
            message(bytes.len() as u32, 0)
        }
        Payload::Remote(length) => message(length, 0),
    })
}

/// Writes segments, and returns how many bytes they have together.
///
/// # Errors
///
/// When these are too many.
///
/// # Safety
///
/// As for [`write_payload`].
#[inline(always)]
pub(super) unsafe fn write_segments(
    to: NonNull<u8>,
    segments: &[Segment],
) -> Result<u32, PostError> {
    let to = to.cast::<rxe::Sge>();
    let mut total = 0;
    for (index, segment) in segments.iter().enumerate() {
        let Segment {
            address: addr,
            length,
            lkey,
        } = *segment;
        total += u64::from(length);
        // SAFETY: the caller vouches for the room.
        unsafe { to.add(index).write(rxe::Sge { addr, length, lkey }) };
    }
    u32::try_from(total).map_err(|_| PostError::MessageTooLong)
}
