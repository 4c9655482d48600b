//! Numbers of objects, methods and attributes.

const HEADER: &str = "rdma/ib_user_ioctl_cmds.h";

constants! {
    UHW: u16, "UVERBS_ATTR_" {
        /// Driver's request, in any method.
        UHW_IN = 0x1000,
        /// Driver's answer, in any method.
        UHW_OUT = 0x1001,
    }
}

constants! {
    NAMESPACE: u16, "UVERBS_ID_" {
        /// Bits that hold the name space of a number; drivers use name space 1.
        NS_MASK = 0xf000,
        /// Position of the name space.
        NS_SHIFT = 12,
    }
}

/// Object kinds.
pub mod object {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_OBJECT_" {
            DEVICE = 0,
            PD = 1,
            COMP_CHANNEL = 2,
            CQ = 3,
            QP = 4,
            SRQ = 5,
            AH = 6,
            MR = 7,
            MW = 8,
            FLOW = 9,
            XRCD = 10,
            RWQ_IND_TBL = 11,
            WQ = 12,
            FLOW_ACTION = 13,
            DM = 14,
            COUNTERS = 15,
            ASYNC_EVENT = 16,
            DMAH = 17,
        }
    }
}

/// The device itself.
pub mod device {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_" {
            INVOKE_WRITE = 0,
            INFO_HANDLES = 1,
            QUERY_PORT = 2,
            GET_CONTEXT = 3,
            QUERY_CONTEXT = 4,
            QUERY_GID_TABLE = 5,
            QUERY_GID_ENTRY = 6,
        }
    }

    /// Attributes of [`INVOKE_WRITE`].
    pub mod invoke_write {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_" {
                CORE_IN = 0,
                CORE_OUT = 1,
                WRITE_CMD = 2,
            }
        }
    }

    /// Attributes of [`INFO_HANDLES`].
    pub mod info_handles {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_INFO_" {
                OBJECT_ID = 0,
                TOTAL_HANDLES = 1,
                HANDLES_LIST = 2,
            }
        }
    }

    /// Attributes of [`QUERY_PORT`].
    pub mod query_port {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_QUERY_PORT_" {
                PORT_NUM = 0,
                RESP = 1,
            }
        }
    }

    /// Attributes of [`GET_CONTEXT`].
    pub mod get_context {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_GET_CONTEXT_" {
                NUM_COMP_VECTORS = 0,
                CORE_SUPPORT = 1,
                FD_ARR = 2,
            }
        }
    }

    /// Attributes of [`QUERY_CONTEXT`].
    pub mod query_context {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_QUERY_CONTEXT_" {
                NUM_COMP_VECTORS = 0,
                CORE_SUPPORT = 1,
            }
        }
    }

    /// Attributes of [`QUERY_GID_TABLE`].
    pub mod query_gid_table {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_QUERY_GID_TABLE_" {
                ENTRY_SIZE = 0,
                FLAGS = 1,
                RESP_ENTRIES = 2,
                RESP_NUM_ENTRIES = 3,
            }
        }
    }

    /// Attributes of [`QUERY_GID_ENTRY`].
    pub mod query_gid_entry {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_QUERY_GID_ENTRY_" {
                PORT = 0,
                GID_INDEX = 1,
                FLAGS = 2,
                RESP_ENTRY = 3,
            }
        }
    }
}

/// Protection domains.
pub mod pd {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_PD_" {
            DESTROY = 0,
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_PD_" {
                HANDLE = 0,
            }
        }
    }
}

/// Completion queues.
pub mod cq {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_CQ_" {
            CREATE = 0,
            DESTROY = 1,
        }
    }

    /// Attributes of [`CREATE`].
    pub mod create {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_CREATE_CQ_" {
                HANDLE = 0,
                CQE = 1,
                USER_HANDLE = 2,
                COMP_CHANNEL = 3,
                COMP_VECTOR = 4,
                FLAGS = 5,
                RESP_CQE = 6,
                EVENT_FD = 7,
                BUFFER_VA = 8,
                BUFFER_LENGTH = 9,
                BUFFER_FD = 10,
                BUFFER_OFFSET = 11,
            }
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_CQ_" {
                HANDLE = 0,
                RESP = 1,
            }
        }
    }
}

/// Queue pairs.
pub mod qp {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_QP_" {
            CREATE = 0,
            DESTROY = 1,
        }
    }

    /// Attributes of [`CREATE`].
    pub mod create {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_CREATE_QP_" {
                HANDLE = 0,
                XRCD_HANDLE = 1,
                PD_HANDLE = 2,
                SRQ_HANDLE = 3,
                SEND_CQ_HANDLE = 4,
                RECV_CQ_HANDLE = 5,
                IND_TABLE_HANDLE = 6,
                USER_HANDLE = 7,
                CAP = 8,
                TYPE = 9,
                FLAGS = 10,
                SOURCE_QPN = 11,
                EVENT_FD = 12,
                RESP_CAP = 13,
                RESP_QP_NUM = 14,
            }
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_QP_" {
                HANDLE = 0,
                RESP = 1,
            }
        }
    }
}

/// Shared receive queues.
pub mod srq {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_SRQ_" {
            CREATE = 0,
            DESTROY = 1,
        }
    }

    /// Attributes of [`CREATE`].
    pub mod create {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_CREATE_SRQ_" {
                HANDLE = 0,
                PD_HANDLE = 1,
                XRCD_HANDLE = 2,
                CQ_HANDLE = 3,
                USER_HANDLE = 4,
                MAX_WR = 5,
                MAX_SGE = 6,
                LIMIT = 7,
                MAX_NUM_TAGS = 8,
                TYPE = 9,
                EVENT_FD = 10,
                RESP_MAX_WR = 11,
                RESP_MAX_SGE = 12,
                RESP_SRQ_NUM = 13,
            }
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_SRQ_" {
                HANDLE = 0,
                RESP = 1,
            }
        }
    }
}

/// Address handles.
pub mod ah {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_AH_" {
            DESTROY = 0,
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_AH_" {
                HANDLE = 0,
            }
        }
    }
}

/// Memory regions.
pub mod mr {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_" {
            DM_MR_REG = 0,
            DESTROY = 1 => "UVERBS_METHOD_MR_DESTROY",
            ADVISE = 2 => "UVERBS_METHOD_ADVISE_MR",
            QUERY = 3 => "UVERBS_METHOD_QUERY_MR",
            REG_DMABUF = 4 => "UVERBS_METHOD_REG_DMABUF_MR",
            REG = 5 => "UVERBS_METHOD_REG_MR",
        }
    }

    /// Attributes of [`DM_MR_REG`].
    pub mod dm_mr_reg {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_REG_DM_MR_" {
                HANDLE = 0,
                OFFSET = 1,
                LENGTH = 2,
                PD_HANDLE = 3,
                ACCESS_FLAGS = 4,
                DM_HANDLE = 5,
                RESP_LKEY = 6,
                RESP_RKEY = 7,
            }
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_MR_" {
                HANDLE = 0,
            }
        }
    }

    /// Attributes of [`ADVISE`].
    pub mod advise {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_ADVISE_MR_" {
                PD_HANDLE = 0,
                ADVICE = 1,
                FLAGS = 2,
                SGE_LIST = 3,
            }
        }
    }

    /// Attributes of [`QUERY`].
    pub mod query {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_QUERY_MR_" {
                HANDLE = 0,
                RESP_LKEY = 1,
                RESP_RKEY = 2,
                RESP_LENGTH = 3,
                RESP_IOVA = 4,
            }
        }
    }

    /// Attributes of [`REG_DMABUF`].
    pub mod reg_dmabuf {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_REG_DMABUF_MR_" {
                HANDLE = 0,
                PD_HANDLE = 1,
                OFFSET = 2,
                LENGTH = 3,
                IOVA = 4,
                FD = 5,
                ACCESS_FLAGS = 6,
                RESP_LKEY = 7,
                RESP_RKEY = 8,
            }
        }
    }

    /// Attributes of [`REG`].
    pub mod reg {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_REG_MR_" {
                HANDLE = 0,
                PD_HANDLE = 1,
                DMA_HANDLE = 2,
                IOVA = 3,
                ADDR = 4,
                LENGTH = 5,
                ACCESS_FLAGS = 6,
                FD = 7,
                FD_OFFSET = 8,
                RESP_LKEY = 9,
                RESP_RKEY = 10,
            }
        }
    }
}

/// Memory windows.
pub mod mw {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_MW_" {
            DESTROY = 0,
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_MW_" {
                HANDLE = 0,
            }
        }
    }
}

/// Flows.
pub mod flow {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_FLOW_" {
            DESTROY = 0,
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_FLOW_" {
                HANDLE = 0,
            }
        }
    }
}

/// XRC domains.
pub mod xrcd {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_XRCD_" {
            DESTROY = 0,
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_XRCD_" {
                HANDLE = 0,
            }
        }
    }
}

/// Device memory.
pub mod dm {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_DM_" {
            ALLOC = 0,
            FREE = 1,
        }
    }

    /// Attributes of [`ALLOC`].
    pub mod alloc {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_ALLOC_DM_" {
                HANDLE = 0,
                LENGTH = 1,
                ALIGNMENT = 2,
            }
        }
    }

    /// Attributes of [`FREE`].
    pub mod free {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_FREE_DM_" {
                HANDLE = 0,
            }
        }
    }
}

/// Counters.
pub mod counters {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_COUNTERS_" {
            CREATE = 0,
            DESTROY = 1,
            READ = 2,
        }
    }

    /// Attributes of [`CREATE`].
    pub mod create {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_CREATE_COUNTERS_" {
                HANDLE = 0,
            }
        }
    }

    /// Attributes of [`DESTROY`].
    pub mod destroy {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_DESTROY_COUNTERS_" {
                HANDLE = 0,
            }
        }
    }

    /// Attributes of [`READ`].
    pub mod read {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_READ_COUNTERS_" {
                HANDLE = 0,
                BUFF = 1,
                FLAGS = 2,
            }
        }
    }
}

/// Files of asynchronous events.
pub mod async_event {
    use super::HEADER;

    constants! {
        NUMBERS: u16, "UVERBS_METHOD_ASYNC_EVENT_" {
            ALLOC = 0,
        }
    }

    /// Attributes of [`ALLOC`].
    pub mod alloc {
        use super::HEADER;

        constants! {
            NUMBERS: u16, "UVERBS_ATTR_ASYNC_EVENT_ALLOC_" {
                FD_HANDLE = 0,
            }
        }
    }
}

numbers![
    super::REQUEST,
    super::AttrFlags::NUMBERS,
    UHW,
    NAMESPACE,
    object::NUMBERS,
    device::NUMBERS,
    device::invoke_write::NUMBERS,
    device::info_handles::NUMBERS,
    device::query_port::NUMBERS,
    device::get_context::NUMBERS,
    device::query_context::NUMBERS,
    device::query_gid_table::NUMBERS,
    device::query_gid_entry::NUMBERS,
    pd::NUMBERS,
    pd::destroy::NUMBERS,
    cq::NUMBERS,
    cq::create::NUMBERS,
    cq::destroy::NUMBERS,
    qp::NUMBERS,
    qp::create::NUMBERS,
    qp::destroy::NUMBERS,
    srq::NUMBERS,
    srq::create::NUMBERS,
    srq::destroy::NUMBERS,
    ah::NUMBERS,
    ah::destroy::NUMBERS,
    mr::NUMBERS,
    mr::dm_mr_reg::NUMBERS,
    mr::destroy::NUMBERS,
    mr::advise::NUMBERS,
    mr::query::NUMBERS,
    mr::reg_dmabuf::NUMBERS,
    mr::reg::NUMBERS,
    mw::NUMBERS,
    mw::destroy::NUMBERS,
    flow::NUMBERS,
    flow::destroy::NUMBERS,
    xrcd::NUMBERS,
    xrcd::destroy::NUMBERS,
    dm::NUMBERS,
    dm::alloc::NUMBERS,
    dm::free::NUMBERS,
    counters::NUMBERS,
    counters::create::NUMBERS,
    counters::destroy::NUMBERS,
    counters::read::NUMBERS,
    async_event::NUMBERS,
    async_event::alloc::NUMBERS,
];
