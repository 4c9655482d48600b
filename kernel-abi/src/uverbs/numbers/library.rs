//! Numbers that no kernel header exports, though they are part of its interface; named as in
//! `infiniband/verbs.h`.

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
