//! Numbers of object kinds, and of the objects that are not queues or memory.

pub(super) const HEADER: &str = "rdma/ib_user_ioctl_cmds.h";

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
