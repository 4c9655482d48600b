//! Numbers for protection domains, memory and XRC domains.

use super::ids::HEADER;

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
