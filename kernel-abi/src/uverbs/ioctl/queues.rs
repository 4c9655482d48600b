//! Numbers for queues and what belongs to them.

use super::ids::HEADER;

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
