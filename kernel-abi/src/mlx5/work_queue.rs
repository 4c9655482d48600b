//! Segments of work requests. Everything is big-endian.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::DEVICE_HEADER as HEADER;

open_enum! {
    /// Operation of a send request.
    pub struct Opcode(u8), "MLX5_OPCODE_" {
        /// Nothing.
        NOP = 0x00,
        /// Send that invalidates a key of the peer.
        SEND_INVAL = 0x01,
        /// RDMA write.
        RDMA_WRITE = 0x08,
        /// RDMA write that consumes a receive.
        RDMA_WRITE_IMM = 0x09,
        /// Send.
        SEND = 0x0a,
        /// Send with immediate data.
        SEND_IMM = 0x0b,
        /// Segmented TCP data.
        TSO = 0x0e,
        /// RDMA read.
        RDMA_READ = 0x10,
        /// Atomic compare and swap.
        ATOMIC_CS = 0x11,
        /// Atomic add.
        ATOMIC_FA = 0x12,
        /// Compare and swap under a mask.
        ATOMIC_MASKED_CS = 0x14,
        /// Add under a mask.
        ATOMIC_MASKED_FA = 0x15,
        /// Change a memory key: bind a window or invalidate.
        UMR = 0x25,
    }
}

flag_bits! {
    /// Flags of [`CtrlSeg::fm_ce_se`].
    pub struct CtrlFlags: u8, "MLX5_WQE_CTRL_" {
        /// Raises a solicited event at the peer.
        SOLICITED = 1 << 1,
        /// Writes a completion.
        CQ_UPDATE = 2 << 2,
        /// Wait for earlier changes of memory keys.
        INITIATOR_SMALL_FENCE = 1 << 5,
        /// Wait for earlier reads and atomics.
        FENCE = 4 << 5,
    }
}

constants! {
    CONSTANTS: u32, "MLX5_" {
        /// Bytes of a basic block of a send queue.
        SEND_WQE_BB = 64,
        /// The same as a power of two.
        SEND_WQE_SHIFT = 6,
        /// Bit of a byte count that says inline bytes follow.
        INLINE_SEG = 0x8000_0000,
        /// Key of the entry that ends a receive's list.
        INVALID_LKEY = 0x100,
        /// Bit of [`WqeAv::dqp_dct`], always set.
        EXTENDED_UD_AV = 0x8000_0000,
        /// Index of the receive counter in a doorbell record.
        RCV_DBR = 0,
        /// Index of the send counter in a doorbell record.
        SND_DBR = 1,
    }
}

/// Bits of the counters of a send or receive queue: those of a doorbell record, of
/// [`CtrlSeg::opmod_idx_opcode`] and of a completion. Given by the device.
pub const WQ_COUNTER_MASK: u32 = 0xffff;

/// Bytes of the longest send request: the length in [`CtrlSeg::qpn_ds`] has six bits. Given by the
/// device.
pub const MAX_WQE_BYTES: u32 = 63 * 16;

/// Bit of [`WqeAv::grh_gid_fl`]: the packet has a global route. Not for RoCE, where it has in any
/// case. Given by the device.
pub const AV_HAS_GRH: u32 = 1 << 30;

/// Where in [`WqeAv::grh_gid_fl`] the index of the local GID is; given by the device.
pub const AV_SGID_INDEX_SHIFT: u32 = 20;

/// Bits of [`WqeAv::grh_gid_fl`] that are the flow label; given by the device.
pub const AV_FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// Where in [`WqeAv::stat_rate_sl`] the rate limit is; given by the device.
pub const AV_STAT_RATE_SHIFT: u32 = 4;

/// The device's number of a static rate, by the kernel's (`enum ibv_rate`): the nearest that is not
/// slower, or 0 for none. Given by the device.
pub const STAT_RATES: [u8; 24] = [
    0,  // As fast as the port.
    0,  // No rate.
    7,  // 2.5 Gb/s
    8,  // 10
    9,  // 30
    10, // 5
    11, // 20
    12, // 40
    13, // 60
    14, // 80
    15, // 120
    11, // 14
    13, // 56
    15, // 112
    0,  // 168
    9,  // 25
    15, // 100
    0,  // 200
    0,  // 300
    9,  // 28
    13, // 50
    0,  // 400
    0,  // 600
    0,  // 800
];

/// Offset of the first BlueFlame register in a doorbell page; given by the device.
pub const BF_OFFSET: usize = 0x800;

/// What the device reads instead of registers; in memory given at creation. Defined by the device,
/// not in a header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DoorbellRecord {
    /// Of a queue pair by [`RCV_DBR`] and [`SND_DBR`]; of a completion queue the consumer index,
    /// then the arm word.
    pub counters: [big_endian::U32; 2],
}
layout!(DoorbellRecord, -, 8, { counters: 0 });

/// Start of a send request.
#[doc(alias = "mlx5_wqe_ctrl_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(4))]
pub struct CtrlSeg {
    /// Modifier in bits 31:24, number of the basic block in 23:8, [`Opcode`] in 7:0.
    pub opmod_idx_opcode: big_endian::U32,
    /// Queue pair number in bits 31:8, length in units of 16 bytes in 5:0.
    pub qpn_ds: big_endian::U32,
    /// Signature, if enabled.
    pub signature: u8,
    /// Stream of a DC initiator.
    pub dci_stream_channel_id: big_endian::U16,
    /// [`CtrlFlags`].
    pub fm_ce_se: u8,
    /// Immediate data, key to invalidate, or memory key to change.
    pub imm: big_endian::U32,
}
layout!(CtrlSeg, "struct mlx5_wqe_ctrl_seg", 16, {
    opmod_idx_opcode: 0, qpn_ds: 4, signature: 8, dci_stream_channel_id: 9, fm_ce_se: 11, imm: 12,
});

impl CtrlSeg {
    /// The segment in two words, as they are to stand in memory. Stored so, it takes two instructions.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 2] {
        let first = u64::from(self.opmod_idx_opcode.get()) << 32 | u64::from(self.qpn_ds.get());
        let second = u64::from(self.signature) << 56
            | u64::from(self.dci_stream_channel_id.get()) << 40
            | u64::from(self.fm_ce_se) << 32
            | u64::from(self.imm.get());
        [first.to_be(), second.to_be()]
    }
}

/// A piece of memory.
#[doc(alias = "mlx5_wqe_data_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct DataSeg {
    /// Bytes.
    pub byte_count: big_endian::U32,
    /// Key of its region.
    pub lkey: big_endian::U32,
    /// Address.
    pub addr: big_endian::U64,
}
layout!(DataSeg, "struct mlx5_wqe_data_seg", 16, { byte_count: 0, lkey: 4, addr: 8 });

/// Start of inline bytes; padded to 16 bytes with them.
#[doc(alias = "mlx5_wqe_inl_data_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(4))]
pub struct InlDataSeg {
    /// Bytes, with [`INLINE_SEG`].
    pub byte_count: big_endian::U32,
}
layout!(InlDataSeg, "struct mlx5_wqe_inl_data_seg", 4, { byte_count: 0 });

/// Memory of the peer.
#[doc(alias = "mlx5_wqe_raddr_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct RaddrSeg {
    /// Address at the peer.
    pub raddr: big_endian::U64,
    /// Key of the peer's region.
    pub rkey: big_endian::U32,
    /// Must be 0.
    pub reserved: big_endian::U32,
}
layout!(RaddrSeg, "struct mlx5_wqe_raddr_seg", 16, { raddr: 0, rkey: 8, reserved: 12 });

/// Operands of an atomic.
#[doc(alias = "mlx5_wqe_atomic_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct AtomicSeg {
    /// Value to store, or to add.
    pub swap_add: big_endian::U64,
    /// Value to compare with.
    pub compare: big_endian::U64,
}
layout!(AtomicSeg, "struct mlx5_wqe_atomic_seg", 16, { swap_add: 0, compare: 8 });

/// Address of a datagram's receiver.
#[doc(alias = "mlx5_wqe_av")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct WqeAv {
    /// Queue key of the peer.
    pub qkey: big_endian::U32,
    /// Must be 0.
    pub reserved: big_endian::U32,
    /// Number of the peer's queue pair, with [`EXTENDED_UD_AV`].
    pub dqp_dct: big_endian::U32,
    /// Rate limit in bits 7:4; service level in 3:0, on RoCE in 3:1.
    pub stat_rate_sl: u8,
    /// Low bits of the local LID; bit 7 forces loopback.
    pub fl_mlid: u8,
    /// LID of the peer; on RoCE version 2 the UDP source port.
    pub rlid: big_endian::U16,
    /// Must be 0.
    pub reserved0: [u8; 4],
    /// MAC address of the next hop.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bit 30: has a global route; local GID index in 27:20; flow label in 19:0.
    pub grh_gid_fl: big_endian::U32,
    /// GID of the peer.
    pub rgid: [u8; 16],
}
layout!(WqeAv, "struct mlx5_wqe_av", 48, {
    qkey = "key.qkey.qkey": 0, reserved = "key.qkey.reserved": 4, dqp_dct: 8, stat_rate_sl: 12,
    fl_mlid: 13, rlid: 14, reserved0: 16, rmac: 20, tclass: 26, hop_limit: 27, grh_gid_fl: 28,
    rgid: 32,
});

/// Receiver of a datagram.
#[doc(alias = "mlx5_wqe_datagram_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DatagramSeg {
    /// Address.
    pub av: WqeAv,
}
layout!(DatagramSeg, "struct mlx5_wqe_datagram_seg", 48, { av: 0 });

/// Receiver of an XRC send; from `providers/mlx5/wqe.h` of rdma-core.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(4))]
pub struct XrcSeg {
    /// Number of the peer's shared receive queue.
    pub xrc_srqn: big_endian::U32,
    /// Must be 0.
    pub rsvd: [u8; 12],
}
layout!(XrcSeg, -, 16, { xrc_srqn: 0, rsvd: 4 });

/// Offloads of a raw packet; more inline header bytes follow.
#[doc(alias = "mlx5_wqe_eth_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(4))]
pub struct EthSeg {
    /// Must be 0.
    pub rsvd0: big_endian::U32,
    /// [`EthChecksum`].
    pub cs_flags: u8,
    /// Must be 0.
    pub rsvd1: u8,
    /// Bytes of payload in a segment, 0 without segmentation.
    pub mss: big_endian::U16,
    /// Must be 0.
    pub rsvd2: big_endian::U32,
    /// Bytes of inline header.
    pub inline_hdr_sz: big_endian::U16,
    /// First bytes of the header.
    pub inline_hdr_start: [u8; 2],
    /// Further bytes of the header.
    pub inline_hdr: [u8; 16],
}
layout!(EthSeg, "struct mlx5_wqe_eth_seg", 32, {
    rsvd0: 0, cs_flags: 4, rsvd1: 5, mss: 6, rsvd2: 8, inline_hdr_sz: 12, inline_hdr_start: 14,
    inline_hdr: 16,
});

flag_bits! {
    /// Checksums the device fills in.
    pub struct EthChecksum: u8, "MLX5_ETH_WQE_" {
        /// Of IP.
        L3_CSUM = 1 << 6,
        /// Of TCP or UDP.
        L4_CSUM = 1 << 7,
    }
}

/// Start of a request in a shared receive queue.
#[doc(alias = "mlx5_wqe_srq_next_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(2))]
pub struct SrqNextSeg {
    /// Must be 0.
    pub rsvd0: [u8; 2],
    /// Number of the next free request.
    pub next_wqe_index: big_endian::U16,
    /// Signature, if enabled.
    pub signature: u8,
    /// Must be 0.
    pub rsvd1: [u8; 11],
}
layout!(SrqNextSeg, "struct mlx5_wqe_srq_next_seg", 16, {
    rsvd0: 0, next_wqe_index: 2, signature: 4, rsvd1: 5,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bytes() {
        let control = CtrlSeg {
            opmod_idx_opcode: 0x0102_0304.into(),
            qpn_ds: 0x0506_0708.into(),
            signature: 9,
            dci_stream_channel_id: 0x0a0b.into(),
            fm_ce_se: 12,
            imm: 0x0d0e_0f10.into(),
        };
        let bytes: [u8; 16] = core::array::from_fn(|place| place as u8 + 1);
        assert_eq!(control.as_bytes(), bytes);
        assert_eq!(control.to_words().as_bytes(), bytes);
    }
}
