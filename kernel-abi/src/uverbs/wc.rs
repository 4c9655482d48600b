//! Work completions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

/// A work completion.
#[doc(alias = "ib_uverbs_wc")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Wc {
    /// Value of the work request.
    pub wr_id: u64,
    /// A [`WcStatus`](super::WcStatus).
    pub status: u32,
    /// A [`WcOpcode`](super::WcOpcode); meaningless if failed.
    pub opcode: u32,
    /// Detail of a failure.
    pub vendor_err: u32,
    /// Bytes transferred.
    pub byte_len: u32,
    /// Immediate data (big-endian) or invalidated key, see `wc_flags`.
    pub ex: u32,
    /// Number of the local queue pair.
    pub qp_num: u32,
    /// Number of a datagram's sender.
    pub src_qp: u32,
    /// [`WcFlags`](super::WcFlags).
    pub wc_flags: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// LID of the sender.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the LID a datagram was sent to.
    pub dlid_path_bits: u8,
    /// Port.
    pub port_num: u8,
    /// Unused.
    pub reserved: u8,
}
layout!(Wc, "struct ib_uverbs_wc", 48, {
    wr_id: 0, status: 8, opcode: 12, vendor_err: 16, byte_len: 20, ex: 24, qp_num: 28, src_qp: 32,
    wc_flags: 36, pkey_index: 40, slid: 42, sl: 44, dlid_path_bits: 45, port_num: 46, reserved: 47,
});
