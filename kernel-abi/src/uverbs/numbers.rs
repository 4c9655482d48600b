//! Numbers and flags that both interfaces share.

pub use self::{kernel::*, library::*, verbs::*};

/// Declared by the header of the `ioctl()` interface.
mod kernel {
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
}

/// Declared by the header of the `write()` interface.
mod verbs {
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
}

/// Not exported by the kernel, but part of its interface all the same.
mod library {
    use super::super::LIBRARY_HEADER as HEADER;

    open_enum! {
        /// State of a queue pair.
        pub struct QpState(u8), "IBV_QPS_" {
            /// Just created.
            RESET = 0,
            /// Receives may be posted.
            INIT = 1,
            /// Ready to receive.
            RTR = 2,
            /// Ready to send.
            RTS = 3,
            /// The send queue is drained.
            SQD = 4,
            /// The send queue failed.
            SQE = 5,
            /// Failed; everything posted is flushed.
            ERR = 6,
        }
    }

    flag_bits! {
        /// Attributes of a queue pair.
        pub struct QpAttrMask: u32, "IBV_QP_" {
            /// `qp_state`.
            STATE = 1,
            /// `cur_qp_state`.
            CUR_STATE = 1 << 1,
            /// `en_sqd_async_notify`.
            EN_SQD_ASYNC_NOTIFY = 1 << 2,
            /// `qp_access_flags`.
            ACCESS_FLAGS = 1 << 3,
            /// `pkey_index`.
            PKEY_INDEX = 1 << 4,
            /// `port_num`.
            PORT = 1 << 5,
            /// `qkey`.
            QKEY = 1 << 6,
            /// `dest` or `ah_attr`.
            AV = 1 << 7,
            /// `path_mtu`.
            PATH_MTU = 1 << 8,
            /// `timeout`.
            TIMEOUT = 1 << 9,
            /// `retry_cnt`.
            RETRY_CNT = 1 << 10,
            /// `rnr_retry`.
            RNR_RETRY = 1 << 11,
            /// `rq_psn`.
            RQ_PSN = 1 << 12,
            /// `max_rd_atomic`.
            MAX_QP_RD_ATOMIC = 1 << 13,
            /// The `alt_` fields.
            ALT_PATH = 1 << 14,
            /// `min_rnr_timer`.
            MIN_RNR_TIMER = 1 << 15,
            /// `sq_psn`.
            SQ_PSN = 1 << 16,
            /// `max_dest_rd_atomic`.
            MAX_DEST_RD_ATOMIC = 1 << 17,
            /// `path_mig_state`.
            PATH_MIG_STATE = 1 << 18,
            /// The capacity.
            CAP = 1 << 19,
            /// `dest_qp_num`.
            DEST_QPN = 1 << 20,
            /// `rate_limit`; only by the extended command.
            RATE_LIMIT = 1 << 25,
        }
    }

    flag_bits! {
        /// Attributes of a shared receive queue.
        pub struct SrqAttrMask: u32, "IBV_SRQ_" {
            /// `max_wr`.
            MAX_WR = 1,
            /// `srq_limit`.
            LIMIT = 1 << 1,
        }
    }

    open_enum! {
        /// State of path migration.
        pub struct MigState(u8), "IBV_MIG_" {
            /// Migrated.
            MIGRATED = 0,
            /// Waiting for both sides to be armed.
            REARM = 1,
            /// Armed.
            ARMED = 2,
        }
    }

    open_enum! {
        /// Largest packet payload.
        pub struct Mtu(u8), "IBV_MTU_" {
            /// 256 bytes.
            B256 = 1 => "IBV_MTU_256",
            /// 512 bytes.
            B512 = 2 => "IBV_MTU_512",
            /// 1024 bytes.
            B1024 = 3 => "IBV_MTU_1024",
            /// 2048 bytes.
            B2048 = 4 => "IBV_MTU_2048",
            /// 4096 bytes.
            B4096 = 5 => "IBV_MTU_4096",
        }
    }

    open_enum! {
        /// State of a port.
        pub struct PortState(u8), "IBV_PORT_" {
            /// Not known.
            NOP = 0,
            /// Down.
            DOWN = 1,
            /// Initialized.
            INIT = 2,
            /// Armed.
            ARMED = 3,
            /// Active.
            ACTIVE = 4,
            /// Active, the link is lost at the moment.
            ACTIVE_DEFER = 5,
        }
    }

    open_enum! {
        /// Kind of link.
        pub struct LinkLayer(u8), "IBV_LINK_LAYER_" {
            /// Not known.
            UNSPECIFIED = 0,
            /// InfiniBand.
            INFINIBAND = 1,
            /// Ethernet.
            ETHERNET = 2,
        }
    }

    open_enum! {
        /// Type of a memory window.
        pub struct MwType(u8), "IBV_MW_" {
            /// Bound by the library on behalf of the caller.
            TYPE_1 = 1,
            /// Bound by a work request.
            TYPE_2 = 2,
        }
    }

    flag_bits! {
        /// What changes about a memory region.
        pub struct ReregMrFlags: u32, "IBV_REREG_MR_CHANGE_" {
            /// The memory.
            TRANSLATION = 1,
            /// The protection domain.
            PD = 1 << 1,
            /// The access.
            ACCESS = 1 << 2,
        }
    }

    open_enum! {
        /// Kind of an asynchronous event.
        pub struct AsyncEventType(u32), "IBV_EVENT_" {
            /// A completion queue overran.
            CQ_ERR = 0,
            /// A queue pair failed.
            QP_FATAL = 1,
            /// A queue pair received an invalid request.
            QP_REQ_ERR = 2,
            /// The peer violated a queue pair's access rights.
            QP_ACCESS_ERR = 3,
            /// A queue pair received before it was ready to send.
            COMM_EST = 4,
            /// The send queue is drained.
            SQ_DRAINED = 5,
            /// A queue pair migrated to its alternate path.
            PATH_MIG = 6,
            /// A queue pair could not migrate.
            PATH_MIG_ERR = 7,
            /// The device failed.
            DEVICE_FATAL = 8,
            /// A port became active.
            PORT_ACTIVE = 9,
            /// A port is no longer active.
            PORT_ERR = 10,
            /// A port's LID changed.
            LID_CHANGE = 11,
            /// A port's partition keys changed.
            PKEY_CHANGE = 12,
            /// The subnet manager changed.
            SM_CHANGE = 13,
            /// A shared receive queue failed.
            SRQ_ERR = 14,
            /// A shared receive queue fell below its limit.
            SRQ_LIMIT_REACHED = 15,
            /// A failed queue pair takes no more from its shared receive queue.
            QP_LAST_WQE_REACHED = 16,
            /// Clients must register with the subnet manager again.
            CLIENT_REREGISTER = 17,
            /// A port's GIDs changed.
            GID_CHANGE = 18,
            /// A work queue failed.
            WQ_FATAL = 19,
            /// A port's speed changed. Newer than Linux 6.1.
            DEVICE_SPEED_CHANGE = 20,
        }
    }

    open_enum! {
        /// Outcome of a work request.
        pub struct WcStatus(u32), "IBV_WC_" {
            /// Done.
            SUCCESS = 0,
            /// The local buffer's length does not fit.
            LOC_LEN_ERR = 1,
            /// The local queue pair is inconsistent.
            LOC_QP_OP_ERR = 2,
            /// Of reliable datagrams, unused.
            LOC_EEC_OP_ERR = 3,
            /// A local key or address is invalid.
            LOC_PROT_ERR = 4,
            /// Flushed, the queue pair failed earlier.
            WR_FLUSH_ERR = 5,
            /// A memory window could not be bound.
            MW_BIND_ERR = 6,
            /// The peer's response makes no sense.
            BAD_RESP_ERR = 7,
            /// A receive's memory could not be written.
            LOC_ACCESS_ERR = 8,
            /// The peer found the request invalid.
            REM_INV_REQ_ERR = 9,
            /// The peer denied access.
            REM_ACCESS_ERR = 10,
            /// The peer could not complete the operation.
            REM_OP_ERR = 11,
            /// The peer did not answer.
            RETRY_EXC_ERR = 12,
            /// The peer had no receive posted.
            RNR_RETRY_EXC_ERR = 13,
            /// Of reliable datagrams, unused.
            LOC_RDD_VIOL_ERR = 14,
            /// Of reliable datagrams, unused.
            REM_INV_RD_REQ_ERR = 15,
            /// The peer aborted the operation.
            REM_ABORT_ERR = 16,
            /// Of reliable datagrams, unused.
            INV_EECN_ERR = 17,
            /// Of reliable datagrams, unused.
            INV_EEC_STATE_ERR = 18,
            /// The device failed.
            FATAL_ERR = 19,
            /// No response in time.
            RESP_TIMEOUT_ERR = 20,
            /// Another failure.
            GENERAL_ERR = 21,
            /// Tag matching failed.
            TM_ERR = 22,
            /// A tagged message needs a rendezvous in software.
            TM_RNDV_INCOMPLETE = 23,
        }
    }

    flag_bits! {
        /// What a completion carries, as the kernel writes it.
        pub struct WcFlags: u32, "IBV_WC_" {
            /// A global route header precedes the data of a datagram.
            GRH = 1,
            /// Immediate data.
            WITH_IMM = 1 << 1,
        }
    }

    impl WcFlags {
        /// The kernel's bit for an invalidated key (`IB_WC_WITH_INVALIDATE`). The library uses
        /// [`LIBRARY_WITH_INV`](Self::LIBRARY_WITH_INV) for it.
        pub const WITH_INVALIDATE: Self = Self::from_bits_retain(1 << 2);
        /// The library's bit for an invalidated key (`IBV_WC_WITH_INV`).
        pub const LIBRARY_WITH_INV: Self = Self::from_bits_retain(1 << 3);
    }

    flag_bits! {
        /// Flags of a send request.
        pub struct SendFlags: u32, "IBV_SEND_" {
            /// Wait for earlier reads and atomics.
            FENCE = 1,
            /// Completes visibly.
            SIGNALED = 1 << 1,
            /// Raises a solicited event at the peer.
            SOLICITED = 1 << 2,
            /// The data is part of the request.
            INLINE = 1 << 3,
            /// The device fills in IP checksums.
            IP_CSUM = 1 << 4,
        }
    }
}
