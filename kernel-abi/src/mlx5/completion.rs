//! Completions. Everything is big-endian.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::DEVICE_HEADER as HEADER;

open_enum! {
    /// Kind of a completion, bits 7:4 of `op_own`.
    pub struct CqeOpcode(u8), "MLX5_CQE_" {
        /// Of a send request.
        REQ = 0,
        /// Receive consumed by an RDMA write.
        RESP_WR_IMM = 1,
        /// Receive.
        RESP_SEND = 2,
        /// Receive with immediate data.
        RESP_SEND_IMM = 3,
        /// Receive that invalidated a key.
        RESP_SEND_INV = 4,
        /// The queue was resized; the next completion is in the new buffer.
        RESIZE_CQ = 5,
        /// Tag matching list operation.
        NO_PACKET = 6,
        /// Signature error.
        SIG_ERR = 12,
        /// Failed send request, an [`ErrCqe`].
        REQ_ERR = 13,
        /// Failed receive, an [`ErrCqe`].
        RESP_ERR = 14,
        /// No completion yet.
        INVALID = 15,
    }
}

open_enum! {
    /// Reason of a failure.
    pub struct CqeSyndrome(u8), "MLX5_CQE_SYNDROME_" {
        /// The local buffer's length does not fit.
        LOCAL_LENGTH_ERR = 0x01,
        /// The local queue pair is inconsistent.
        LOCAL_QP_OP_ERR = 0x02,
        /// A local key or address is invalid.
        LOCAL_PROT_ERR = 0x04,
        /// Flushed, the queue pair failed earlier.
        WR_FLUSH_ERR = 0x05,
        /// A memory window could not be bound.
        MW_BIND_ERR = 0x06,
        /// The peer's response makes no sense.
        BAD_RESP_ERR = 0x10,
        /// A receive's memory could not be written.
        LOCAL_ACCESS_ERR = 0x11,
        /// The peer found the request invalid.
        REMOTE_INVAL_REQ_ERR = 0x12,
        /// The peer denied access.
        REMOTE_ACCESS_ERR = 0x13,
        /// The peer could not complete the operation.
        REMOTE_OP_ERR = 0x14,
        /// The peer did not answer.
        TRANSPORT_RETRY_EXC_ERR = 0x15,
        /// The peer had no receive posted.
        RNR_RETRY_EXC_ERR = 0x16,
        /// The peer aborted the operation.
        REMOTE_ABORTED_ERR = 0x22,
    }
}

flag_bits! {
    /// Checksums the device found good, in [`Cqe64::hds_ip_ext`].
    pub struct CqeChecksum: u8, "MLX5_CQE_" {
        /// Of Ethernet.
        L2_OK = 1,
        /// Of IP.
        L3_OK = 1 << 1,
        /// Of TCP or UDP.
        L4_OK = 1 << 2,
    }
}

/// Index of the consumer counter in a doorbell record; given by the device.
pub const CQ_SET_CI: usize = 0;

/// Index of the arm word in a doorbell record; given by the device.
pub const CQ_ARM_DB: usize = 1;

/// Bits of the consumer counter that a doorbell record and an arm word have; given by the device.
pub const CQ_CI_MASK: u32 = 0x00ff_ffff;

/// Arm word: where the number of the attempt is, which tells one from the next; given by the device.
pub const CQ_ARM_SERIAL_SHIFT: u32 = 28;

/// Bits of the number of the attempt; given by the device.
pub const CQ_ARM_SERIAL_MASK: u32 = 3;

/// Bit of [`Cqe64::op_own`]: the sender asked for a solicited event; given by the device.
pub const CQE_SOLICITED: u8 = 1 << 1;

constants! {
    ARM_CONSTANTS: u32, "MLX5_" {
        /// Offset in a doorbell page of the register that arms completion queues.
        CQ_DOORBELL = 0x20,
        /// Arm word: any completion.
        CQ_DB_REQ_NOT = 0,
        /// Arm word: solicited and failed completions.
        CQ_DB_REQ_NOT_SOL = 1 << 24,
    }
}

constants! {
    CONSTANTS: u8, "MLX5_" {
        /// Bit of `op_own` that flips with every lap.
        CQE_OWNER_MASK = 1,
        /// Bit of `op_own`: up to 32 bytes of data are in the completion.
        INLINE_SCATTER_32 = 0x4,
        /// Bit of `op_own`: up to 64 bytes of data are in the completion before this one.
        INLINE_SCATTER_64 = 0x8,
    }
}

/// A completion; of 128-byte entries the second half.
#[doc(alias = "mlx5_cqe64")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Cqe64 {
    /// Unused.
    pub rsvd0: [u8; 2],
    /// Number of the request, with strides.
    pub wqe_id: big_endian::U16,
    /// Unused.
    pub rsvd4: [u8; 13],
    /// Low bits of the LID a datagram was sent to; bit 7 multicast.
    pub ml_path: u8,
    /// Unused.
    pub rsvd20: [u8; 4],
    /// LID of the sender.
    pub slid: big_endian::U16,
    /// Queue pair number of the sender in bits 23:0, service level in 27:24, global route in 29:28.
    pub flags_rqpn: big_endian::U32,
    /// [`CqeChecksum`].
    pub hds_ip_ext: u8,
    /// Kind of the headers.
    pub l4_hdr_type_etc: u8,
    /// VLAN tag.
    pub vlan_info: big_endian::U16,
    /// Number given to the queue pair or shared receive queue, 24 bits.
    pub srqn_uidx: big_endian::U32,
    /// Immediate data, invalidated key, or index of the partition key.
    pub imm_inval_pkey: big_endian::U32,
    /// Offload that wrote the completion.
    pub app: u8,
    /// Its operation.
    pub app_op: u8,
    /// Its information.
    pub app_info: big_endian::U16,
    /// Bytes received or read.
    pub byte_cnt: big_endian::U32,
    /// Time.
    pub timestamp: big_endian::U64,
    /// [`Opcode`](super::Opcode) of a send in bits 31:24, local queue pair number in 23:0.
    pub sop_drop_qpn: big_endian::U32,
    /// Of a send the number of the request's first basic block; of a receive its number.
    pub wqe_counter: big_endian::U16,
    /// Signature, if enabled.
    pub signature: u8,
    /// [`CqeOpcode`] in bits 7:4, format in 3:2, solicited in 1, owner in 0.
    pub op_own: u8,
}
layout!(Cqe64, "struct mlx5_cqe64", 64, {
    rsvd0: 0, wqe_id: 2, rsvd4: 4, ml_path: 17, rsvd20: 18, slid: 22, flags_rqpn: 24,
    hds_ip_ext: 28, l4_hdr_type_etc: 29, vlan_info: 30, srqn_uidx: 32, imm_inval_pkey: 36, app: 40,
    app_op: 41, app_info: 42, byte_cnt: 44, timestamp: 48, sop_drop_qpn: 56, wqe_counter: 60,
    signature: 62, op_own: 63,
});

/// A failed completion.
#[doc(alias = "mlx5_err_cqe")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(4))]
pub struct ErrCqe {
    /// Unused.
    pub rsvd0: [u8; 32],
    /// As [`Cqe64::srqn_uidx`].
    pub srqn: big_endian::U32,
    /// Unused.
    pub rsvd1: [u8; 18],
    /// Vendor's detail.
    pub vendor_err_synd: u8,
    /// A [`CqeSyndrome`].
    pub syndrome: u8,
    /// As [`Cqe64::sop_drop_qpn`].
    pub s_wqe_opcode_qpn: big_endian::U32,
    /// As [`Cqe64::wqe_counter`].
    pub wqe_counter: big_endian::U16,
    /// Signature, if enabled.
    pub signature: u8,
    /// As [`Cqe64::op_own`].
    pub op_own: u8,
}
layout!(ErrCqe, "struct mlx5_err_cqe", 64, {
    rsvd0: 0, srqn: 32, rsvd1: 36, vendor_err_synd: 54, syndrome: 55, s_wqe_opcode_qpn: 56,
    wqe_counter: 60, signature: 62, op_own: 63,
});
