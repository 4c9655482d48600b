//! Numbers that `rdma/ib_user_verbs.h` declares.

use super::super::{HEADER, LIBRARY_HEADER};

open_enum! {
    /// Operation of a send request.
    pub struct WrOpcode(u32), "IB_UVERBS_WR_" {
        /// RDMA write.
        RDMA_WRITE = 0,
        /// RDMA write that consumes a receive.
        RDMA_WRITE_WITH_IMM = 1,
        /// Send.
        SEND = 2,
        /// Send with immediate data.
        SEND_WITH_IMM = 3,
        /// RDMA read.
        RDMA_READ = 4,
        /// Atomic compare and swap.
        ATOMIC_CMP_AND_SWP = 5,
        /// Atomic add.
        ATOMIC_FETCH_AND_ADD = 6,
        /// Invalidate a local key.
        LOCAL_INV = 7,
        /// Bind a memory window.
        BIND_MW = 8,
        /// Send that invalidates a key of the peer.
        SEND_WITH_INV = 9,
        /// Segmented TCP data.
        TSO = 10,
        /// RDMA read, then invalidate the local key.
        RDMA_READ_WITH_INV = 11,
        /// Compare and swap under a mask.
        MASKED_ATOMIC_CMP_AND_SWP = 12,
        /// Add under a mask.
        MASKED_ATOMIC_FETCH_AND_ADD = 13,
        /// Flush memory of the peer. Newer than Linux 6.1.
        FLUSH = 14,
        /// Atomic write of 8 bytes. Newer than Linux 6.1.
        ATOMIC_WRITE = 15,
    }
}

open_enum! {
    /// Operation of a completion.
    pub struct WcOpcode(u32), "IB_UVERBS_WC_" {
        /// Send.
        SEND = 0,
        /// RDMA write.
        RDMA_WRITE = 1,
        /// RDMA read.
        RDMA_READ = 2,
        /// Atomic compare and swap.
        COMP_SWAP = 3,
        /// Atomic add.
        FETCH_ADD = 4,
        /// Memory window bound.
        BIND_MW = 5,
        /// Key invalidated.
        LOCAL_INV = 6,
        /// Segmented TCP data.
        TSO = 7,
        /// Memory of the peer flushed. Newer than Linux 6.1.
        FLUSH = 8,
        /// Atomic write. Newer than Linux 6.1.
        ATOMIC_WRITE = 9,
        /// Receive; the bit is set in every receive.
        RECV = 128 => "IBV_WC_RECV" in LIBRARY_HEADER,
        /// Receive consumed by an RDMA write.
        RECV_RDMA_WITH_IMM = 129 => "IBV_WC_RECV_RDMA_WITH_IMM" in LIBRARY_HEADER,
    }
}

flag_bits! {
    /// What a flush reaches. Newer than Linux 6.1.
    pub struct FlushPlacement: u8, "IB_FLUSH_" {
        /// Global visibility.
        GLOBAL = 1,
        /// Persistence.
        PERSISTENT = 1 << 1,
    }
}

open_enum! {
    /// What a flush covers. Newer than Linux 6.1.
    pub struct FlushSelectivity(u8), "IB_FLUSH_" {
        /// The range of the request.
        RANGE = 0,
        /// The whole region.
        MR = 1,
    }
}
