//! How large the queues of a queue pair are: the driver decides, not the kernel.

use rdmacm_kernel_abi::mlx5::{
    AtomicSeg, CtrlSeg, DataSeg, DatagramSeg, InlDataSeg, MkeyContextSeg, RaddrSeg, SEND_WQE_BB,
    SrqNextSeg, UmrCtrlSeg, WQ_COUNTER_MASK,
};
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;

use super::grant::Grant;
use crate::error::{Error, Result};
use crate::fastpath::QpType;

/// Bytes of a block of a send queue.
pub(super) const BLOCK: u32 = SEND_WQE_BB;
/// Bytes of a segment's description, and what every request is a multiple of.
pub(super) const SEGMENT: u32 = size_of::<DataSeg>() as u32;
/// Bytes of the translation that changes a memory key: one piece, padded to a block.
pub(super) const TRANSLATION: u32 = BLOCK;

/// A send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendSize {
    /// Blocks of 64 bytes, a power of two.
    pub blocks: u32,
    /// Blocks of the longest request.
    pub blocks_per_request: u32,
    /// Requests that are surely there for.
    pub depth: u32,
    pub max_segments: u32,
    pub max_inline: u32,
}

/// A receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecvSize {
    /// Receives, a power of two.
    pub depth: u32,
    /// Bytes of each, as a power of two.
    pub shift: u32,
    pub max_segments: u32,
}

/// A shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedSize {
    /// Places in memory, a power of two.
    pub places: u32,
    /// How many of them are used: one more than can be posted. The rest is for receives that the
    /// device could not carry out for want of pages, which the C library posts again.
    pub used: u32,
    /// Bytes of each, as a power of two.
    pub shift: u32,
    pub max_segments: u32,
}

impl SendSize {
    /// # Errors
    ///
    /// When the device has no such queues.
    pub(super) fn new(cap: &QpCap, qp_type: QpType, grant: &Grant) -> Result<Option<Self>> {
        if cap.max_send_wr == 0 {
            return Ok(None);
        }
        let most = grant.max_send_bytes;
        let overhead = overhead(qp_type);
        let inline = match cap.max_inline_data {
            0 => Some(0),
            bytes => inline_bytes(bytes).and_then(|bytes| bytes.checked_add(overhead)),
        };
        let segments = cap.max_send_sge.checked_mul(SEGMENT);
        let segments = segments.and_then(|bytes| bytes.checked_add(overhead));
        let bytes = match (segments, inline) {
            (Some(segments), Some(inline)) if segments.max(inline) <= most => segments.max(inline),
            _ => {
                return refuse(format!(
                    "max_send_sge is {}, max_inline_data {}; a request of the device has {most} \
                     bytes, of which a queue pair of type {qp_type:?} needs {overhead} itself",
                    cap.max_send_sge, cap.max_inline_data
                ));
            }
        };
        let per_request = bytes.next_multiple_of(BLOCK);
        let most_blocks = grant.max_send_blocks;
        let total = u64::from(cap.max_send_wr) * u64::from(per_request);
        let blocks = total.next_power_of_two() / u64::from(BLOCK);
        if blocks > u64::from(most_blocks) || blocks > MOST_BLOCKS {
            return refuse(format!(
                "max_send_wr is {}, of up to {per_request} bytes; the device's queues have \
                 {most_blocks} blocks of {BLOCK}",
                cap.max_send_wr
            ));
        }
        let blocks = blocks as u32;
        Ok(Some(Self {
            blocks,
            blocks_per_request: per_request / BLOCK,
            depth: blocks * BLOCK / per_request,
            max_segments: cap.max_send_sge,
            max_inline: per_request
                .saturating_sub(overhead)
                .saturating_sub(size_of::<InlDataSeg>() as u32),
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK as usize
    }
}

/// The counters of a queue have 16 bits.
const MOST_BLOCKS: u64 = WQ_COUNTER_MASK as u64 + 1;

/// What a request needs besides its segments or its inline bytes. A queue pair that is connected may
/// change memory keys, which takes most.
fn overhead(qp_type: QpType) -> u32 {
    let control = size_of::<CtrlSeg>();
    let bytes = match qp_type {
        QpType::Ud => control + size_of::<DatagramSeg>(),
        _ => {
            let atomic = size_of::<RaddrSeg>() + size_of::<AtomicSeg>();
            let key = size_of::<UmrCtrlSeg>() + size_of::<MkeyContextSeg>();
            control + atomic.max(key + TRANSLATION as usize)
        }
    };
    bytes as u32
}

/// What inline bytes take in a request.
pub(super) fn inline_bytes(bytes: u32) -> Option<u32> {
    let with_length = bytes.checked_add(size_of::<InlDataSeg>() as u32)?;
    with_length.checked_next_multiple_of(SEGMENT)
}

impl RecvSize {
    /// # Errors
    ///
    /// When the device has no such queues.
    pub(super) fn new(cap: &QpCap, grant: &Grant) -> Result<Option<Self>> {
        if cap.max_recv_wr == 0 {
            return Ok(None);
        }
        let bytes = cap.max_recv_sge.max(1).checked_mul(SEGMENT);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= grant.max_recv_bytes) else {
            return refuse(format!(
                "max_recv_sge is {}; a receive of the device has {} bytes, {SEGMENT} for each \
                 segment",
                cap.max_recv_sge, grant.max_recv_bytes
            ));
        };
        let most = grant.max_recv_wr;
        if cap.max_recv_wr > most || u64::from(cap.max_recv_wr) > MOST_RECEIVES {
            let asked = cap.max_recv_wr;
            return refuse(format!(
                "max_recv_wr is {asked}; the device's queues have {most}"
            ));
        }
        let bytes = bytes.next_power_of_two();
        let depth = cap.max_recv_wr.next_power_of_two().max(BLOCK / bytes);
        Ok(Some(Self {
            depth,
            shift: bytes.trailing_zeros(),
            max_segments: bytes / SEGMENT,
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        (self.depth as usize) << self.shift
    }
}

const MOST_RECEIVES: u64 = WQ_COUNTER_MASK as u64 + 1;

impl SharedSize {
    /// # Errors
    ///
    /// When the device has no such queues.
    pub(super) fn new(max_wr: u32, max_sge: u32, grant: &Grant) -> Result<Self> {
        let most = grant.max_srq_wr.min(u32::from(u16::MAX));
        if max_wr >= most {
            let text = format!("max_wr is {max_wr}; the device allows less than {most}");
            return Err(Error::invalid("create_srq", text));
        }
        let bytes = max_sge
            .checked_mul(SEGMENT)
            .and_then(|bytes| bytes.checked_add(size_of::<SrqNextSeg>() as u32))
            .map(|bytes| bytes.max(2 * SEGMENT))
            .filter(|bytes| *bytes <= grant.max_recv_bytes)
            .and_then(u32::checked_next_power_of_two);
        let Some(bytes) = bytes else {
            let most = (grant.max_recv_bytes - SEGMENT) / SEGMENT;
            let text = format!("max_sge is {max_sge}; the device allows {most}");
            return Err(Error::invalid("create_srq", text));
        };
        let used = (max_wr + 1).next_power_of_two();
        let with_spares = 2 * max_wr + 1;
        let places = match with_spares <= grant.max_srq_wr {
            true => with_spares.next_power_of_two().max(used),
            false => used,
        };
        Ok(Self {
            places,
            used,
            shift: bytes.trailing_zeros(),
            max_segments: (bytes - size_of::<SrqNextSeg>() as u32) / SEGMENT,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        (self.places as usize) << self.shift
    }
}

fn refuse<T>(text: String) -> Result<T> {
    Err(Error::invalid("create_qp", text))
}
