//! What requests and receives have in common: the message and its pieces.

use std::ptr::NonNull;

use rdmacm_kernel_abi::rxe;

use crate::fastpath::request::{Payload, PostError, Segment};

/// A message of `length` bytes in `num_sge` segments, of which nothing is carried out yet.
#[inline(always)]
fn message(length: u32, num_sge: u32) -> rxe::DmaInfo {
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
        // SAFETY: the caller vouches for the room.
        Payload::Segments(segments) => return unsafe { write_segments(to, segments) },
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

/// As [`write_payload`], for segments.
///
/// # Safety
///
/// As there.
#[inline(always)]
pub(super) unsafe fn write_segments(
    to: NonNull<u8>,
    segments: &[Segment],
) -> Result<rxe::DmaInfo, PostError> {
    let to = to.cast::<rxe::Sge>();
    match segments {
        [] => Ok(message(0, 0)),
        // Most messages.
        [segment] => {
            // SAFETY: the caller vouches for the room.
            unsafe { to.write(sge(segment)) };
            Ok(message(segment.length, 1))
        }
        // SAFETY: as above.
        many => match u32::try_from(unsafe { write_many(to, many) }) {
            Ok(length) => Ok(message(length, segments.len() as u32)),
            Err(_) => Err(PostError::MessageTooLong),
        },
    }
}

/// Writes segments and returns how many bytes they have together.
///
/// # Safety
///
/// `to` must be valid for writes of as many.
#[inline(never)]
unsafe fn write_many(to: NonNull<rxe::Sge>, segments: &[Segment]) -> u64 {
    let mut total = 0;
    for (index, segment) in segments.iter().enumerate() {
        total += u64::from(segment.length);
        // SAFETY: the caller vouches for the room.
        unsafe { to.add(index).write(sge(segment)) };
    }
    total
}

#[inline(always)]
fn sge(segment: &Segment) -> rxe::Sge {
    let Segment {
        address: addr,
        length,
        lkey,
    } = *segment;
    rxe::Sge { addr, length, lkey }
}
