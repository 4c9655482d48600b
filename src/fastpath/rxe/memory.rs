//! What requests and receives have in common: the message and its pieces.

use std::ptr::NonNull;

use rdmacm_kernel_abi::rxe;

use crate::fastpath::request::{Payload, Segment};

/// A message of `length` bytes in `num_sge` segments, of which nothing is carried out yet.
#[inline]
pub(super) fn dma(length: u32, num_sge: u32) -> rxe::DmaInfo {
    rxe::DmaInfo {
        length,
        resid: length,
        num_sge,
        ..Default::default()
    }
}

/// Writes the segments or the inline bytes.
///
/// # Safety
///
/// `to` must be valid for writes of the payload's size and aligned to 8.
#[inline]
pub(super) unsafe fn write_payload(to: NonNull<u8>, payload: Payload<'_>) {
    match payload {
        Payload::Segments(segments) => {
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
        Payload::Inline(bytes) => {
            // SAFETY: the caller vouches for the room, which is in the ring and thus apart from
            // the caller's bytes.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        }
        Payload::Value(bytes) => {
            // SAFETY: the caller vouches for the room.
            unsafe { to.cast::<[u8; 8]>().write(bytes) };
        }
    }
}
