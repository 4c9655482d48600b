//! Numbers that `rdma/ib_user_ioctl_verbs.h` declares.

use super::super::IOCTL_VERBS_HEADER as HEADER;

flag_bits! {
    /// What may be done with memory.
    pub struct AccessFlags: u32, "IB_UVERBS_ACCESS_" {
        /// The device may write on behalf of this side.
        LOCAL_WRITE = 1,
        /// The peer may write; needs [`LOCAL_WRITE`](Self::LOCAL_WRITE).
        REMOTE_WRITE = 1 << 1,
        /// The peer may read.
        REMOTE_READ = 1 << 2,
        /// The peer may use atomics; needs [`LOCAL_WRITE`](Self::LOCAL_WRITE).
        REMOTE_ATOMIC = 1 << 3,
        /// Memory windows may be bound.
        MW_BIND = 1 << 4,
        /// Addresses count from 0.
        ZERO_BASED = 1 << 5,
        /// On-demand paging.
        ON_DEMAND = 1 << 6,
        /// The memory consists of huge pages.
        HUGETLB = 1 << 7,
        /// The peer may flush to global visibility. Newer than Linux 6.1.
        FLUSH_GLOBAL = 1 << 8,
        /// The peer may flush to persistence. Newer than Linux 6.1.
        FLUSH_PERSISTENT = 1 << 9,
        /// Relaxed ordering of PCI writes.
        RELAXED_ORDERING = 1 << 20,
        /// The bits a device may ignore.
        OPTIONAL_RANGE = 0x3ff0_0000,
    }
}

flag_bits! {
    /// Abilities of the kernel's common code.
    pub struct CoreSupport: u64, "IB_UVERBS_CORE_SUPPORT_" {
        /// Understands [`AccessFlags::OPTIONAL_RANGE`].
        OPTIONAL_MR_ACCESS = 1,
        /// Checks driver data strictly. Newer than Linux 6.1.
        ROBUST_UDATA = 1 << 1,
    }
}

open_enum! {
    /// Type of a queue pair.
    pub struct QpType(u8), "IB_UVERBS_QPT_" {
        /// Reliable connection.
        RC = 2,
        /// Unreliable connection.
        UC = 3,
        /// Datagrams.
        UD = 4,
        /// Raw Ethernet packets.
        RAW_PACKET = 8,
        /// XRC, the side that sends.
        XRC_INI = 9,
        /// XRC, the side that receives.
        XRC_TGT = 10,
        /// A type of the driver's own.
        DRIVER = 255,
    }
}

flag_bits! {
    /// Flags for creating a queue pair.
    pub struct QpCreateFlags: u32, "IB_UVERBS_QP_CREATE_" {
        /// Own multicasts are not received.
        BLOCK_MULTICAST_LOOPBACK = 1 << 1,
        /// Frame checksums are received.
        SCATTER_FCS = 1 << 8,
        /// VLAN tags are stripped.
        CVLAN_STRIPPING = 1 << 9,
        /// Ends of writes are padded to a cache line.
        PCI_WRITE_END_PADDING = 1 << 11,
        /// Every send completes visibly; only by `ioctl()`.
        SQ_SIG_ALL = 1 << 12,
    }
}

open_enum! {
    /// Type of a shared receive queue.
    pub struct SrqType(u32), "IB_UVERBS_SRQT_" {
        /// Ordinary.
        BASIC = 0,
        /// For XRC.
        XRC = 1,
        /// With tag matching.
        TM = 2,
    }
}

open_enum! {
    /// Driver of a device.
    pub struct DriverId(u32), "RDMA_DRIVER_" {
        /// Not known.
        UNKNOWN = 0,
        /// NVIDIA ConnectX-4 and later.
        MLX5 = 1,
        /// NVIDIA ConnectX-3.
        MLX4 = 2,
        /// Chelsio T3.
        CXGB3 = 3,
        /// Chelsio T4 and later.
        CXGB4 = 4,
        /// Mellanox InfiniHost.
        MTHCA = 5,
        /// Broadcom NetXtreme.
        BNXT_RE = 6,
        /// Emulex.
        OCRDMA = 7,
        /// NetEffect.
        NES = 8,
        /// Intel Ethernet.
        IRDMA = 9,
        /// VMware.
        VMW_PVRDMA = 10,
        /// Marvell FastLinQ.
        QEDR = 11,
        /// HiSilicon.
        HNS = 12,
        /// Cisco.
        USNIC = 13,
        /// Software RoCE, see [`rxe`](crate::rxe).
        RXE = 14,
        /// Intel Omni-Path.
        HFI1 = 15,
        /// Intel TrueScale.
        QIB = 16,
        /// Amazon.
        EFA = 17,
        /// Software iWARP, see [`siw`](crate::siw).
        SIW = 18,
        /// Alibaba.
        ERDMA = 19,
        /// Microsoft. Newer than Linux 6.1.
        MANA = 20,
        /// AMD Pensando. Newer than Linux 6.1.
        IONIC = 21,
    }
}

open_enum! {
    /// Kind of a GID.
    pub struct GidType(u32), "IB_UVERBS_GID_TYPE_" {
        /// InfiniBand.
        IB = 0,
        /// RoCE version 1.
        ROCE_V1 = 1,
        /// RoCE version 2.
        ROCE_V2 = 2,
    }
}

flag_bits! {
    /// Flags of a port.
    pub struct PortFlags: u8, "IB_UVERBS_QPF_" {
        /// Every packet needs a global route.
        GRH_REQUIRED = 1,
    }
}

flag_bits! {
    /// Abilities of a port, IBTA CapabilityMask.
    pub struct PortCapFlags: u32, "IB_UVERBS_PCF_" {
        /// Runs a subnet manager.
        SM = 1 << 1,
        /// Sends notices.
        NOTICE_SUP = 1 << 2,
        /// Sends traps.
        TRAP_SUP = 1 << 3,
        /// Migrates paths automatically.
        AUTO_MIGR_SUP = 1 << 5,
        /// Maps service levels to lanes.
        SL_MAP_SUP = 1 << 6,
        /// Extended link speeds.
        EXTENDED_SPEEDS_SUP = 1 << 14,
        /// Connection management.
        CM_SUP = 1 << 16,
        /// Not IBTA's: GIDs are derived from IP addresses.
        IP_BASED_GIDS = 1 << 26,
    }
}

open_enum! {
    /// Advice about a memory region.
    pub struct AdviseMrAdvice(u32), "IB_UVERBS_ADVISE_MR_ADVICE_" {
        /// Fetch for reading.
        PREFETCH = 0,
        /// Fetch for writing.
        PREFETCH_WRITE = 1,
        /// Fetch what is present.
        PREFETCH_NO_FAULT = 2,
    }
}

flag_bits! {
    /// Flags of advice about a memory region.
    pub struct AdviseMrFlags: u32, "IB_UVERBS_ADVISE_MR_FLAG_" {
        /// Wait until done.
        FLUSH = 1,
    }
}
