//! Segments that change a memory key, for binding windows and invalidating.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::DEVICE_HEADER as HEADER;

flag_bits! {
    /// Flags of [`UmrCtrlSeg`].
    pub struct UmrFlags: u8, "MLX5_WQE_UMR_CTRL_FLAG_" {
        /// Fail unless the key's queue pair matches.
        CHECK_QPN = 1 << 3,
        /// `translation_offset` is set.
        TRNSLATION_OFFSET = 1 << 4,
        /// Fail unless the key is free.
        CHECK_FREE = 1 << 5,
        /// The translation is inline.
        INLINE = 1 << 7,
    }
}

flag_bits! {
    /// Fields of a memory key that change.
    pub struct MkeyMask: u64, "MLX5_WQE_UMR_CTRL_MKEY_MASK_" {
        /// The length.
        LEN = 1,
        /// The start address.
        START_ADDR = 1 << 6,
        /// The low byte of the key.
        MKEY = 1 << 13,
        /// The queue pair.
        QPN = 1 << 14,
        /// Local write access.
        ACCESS_LOCAL_WRITE = 1 << 18,
        /// Remote read access.
        ACCESS_REMOTE_READ = 1 << 19,
        /// Remote write access.
        ACCESS_REMOTE_WRITE = 1 << 20,
        /// Atomic access.
        ACCESS_ATOMIC = 1 << 21,
        /// Whether the key is free.
        FREE = 1 << 29,
    }
}

flag_bits! {
    /// Access rights of a memory key.
    pub struct MkeyAccess: u8, "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_" {
        /// Local read.
        LOCAL_READ = 1 << 2,
        /// Local write.
        LOCAL_WRITE = 1 << 3,
        /// Remote read.
        REMOTE_READ = 1 << 4,
        /// Remote write.
        REMOTE_WRITE = 1 << 5,
        /// Atomics.
        ATOMIC = 1 << 6,
    }
}

constants! {
    CONSTANTS: u8, "MLX5_WQE_" {
        /// Bit of [`MkeyContextSeg::free`]: the key is free.
        MKEY_CONTEXT_FREE = 1 << 6,
    }
}

/// Queue pair number in [`MkeyContextSeg::qpn_mkey`]: any queue pair may use the key. Given by the
/// device.
pub const ANY_QPN: u32 = 0x00ff_ffff;

/// Most bytes of a piece of a translation, [`UmrKlmSeg::byte_count`]; given by the device.
pub const KLM_MAX_BYTES: u64 = 1 << 31;

/// Says what changes.
#[doc(alias = "mlx5_wqe_umr_ctrl_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct UmrCtrlSeg {
    /// [`UmrFlags`].
    pub flags: u8,
    /// Must be 0.
    pub rsvd0: [u8; 3],
    /// Length of the translation in units of 16 bytes.
    pub klm_octowords: big_endian::U16,
    /// Where the translation starts, in units of 16 bytes.
    pub translation_offset: big_endian::U16,
    /// [`MkeyMask`].
    pub mkey_mask: big_endian::U64,
    /// Must be 0.
    pub rsvd1: [u8; 32],
}
layout!(UmrCtrlSeg, "struct mlx5_wqe_umr_ctrl_seg", 48, {
    flags: 0, rsvd0: 1, klm_octowords: 4, translation_offset: 6, mkey_mask: 8, rsvd1: 16,
});

/// The memory key.
#[doc(alias = "mlx5_wqe_mkey_context_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct MkeyContextSeg {
    /// [`MKEY_CONTEXT_FREE`] or 0.
    pub free: u8,
    /// Must be 0.
    pub reserved1: u8,
    /// [`MkeyAccess`].
    pub access_flags: u8,
    /// Must be 0.
    pub sf: u8,
    /// Queue pair number in bits 31:8, low byte of the key in 7:0.
    pub qpn_mkey: big_endian::U32,
    /// Must be 0.
    pub reserved2: big_endian::U32,
    /// Protection domain in bits 23:0.
    pub flags_pd: big_endian::U32,
    /// Start of the memory.
    pub start_addr: big_endian::U64,
    /// Bytes.
    pub len: big_endian::U64,
    /// Must be 0.
    pub bsf_octword_size: big_endian::U32,
    /// Must be 0.
    pub reserved3: [big_endian::U32; 4],
    /// Length of the whole translation in units of 16 bytes.
    pub translations_octword_size: big_endian::U32,
    /// Must be 0.
    pub reserved4: [u8; 3],
    /// Page size as a power of two.
    pub log_page_size: u8,
    /// Must be 0.
    pub reserved: big_endian::U32,
}
layout!(MkeyContextSeg, "struct mlx5_wqe_mkey_context_seg", 64, {
    free: 0, reserved1: 1, access_flags: 2, sf: 3, qpn_mkey: 4, reserved2: 8, flags_pd: 12,
    start_addr: 16, len: 24, bsf_octword_size: 32, reserved3: 36, translations_octword_size: 52,
    reserved4: 56, log_page_size: 59, reserved: 60,
});

/// A piece of the translation.
#[doc(alias = "mlx5_wqe_umr_klm_seg")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct UmrKlmSeg {
    /// Bytes.
    pub byte_count: big_endian::U32,
    /// Key of the region.
    pub mkey: big_endian::U32,
    /// Address in the region.
    pub address: big_endian::U64,
}
layout!(UmrKlmSeg, "struct mlx5_wqe_umr_klm_seg", 16, { byte_count: 0, mkey: 4, address: 8 });
