//! Doorbell pages.

pub use self::{mmap::*, types::*};

/// Bytes of a doorbell page; given by the device.
pub const UAR_SIZE: usize = 4096;

/// BlueFlame registers of a doorbell page that programs use; given by the device.
pub const PROGRAM_BFREGS_PER_UAR: u32 = 2;

/// BlueFlame registers of a doorbell page in the kernel's numbers,
/// [`CreateQpResp::bfreg_index`](super::CreateQpResp::bfreg_index). Those behind the ones that
/// programs use are of the fast path, which the kernel gives to nobody. In no header.
pub const BFREGS_PER_UAR: u32 = 4;

mod mmap {
    use super::super::HEADER;

    open_enum! {
        /// Kind of a mapping; the offset is `((command << 8) | index) * page size`.
        pub struct MmapCmd(u64), "MLX5_IB_MMAP_" {
            /// A doorbell page of the context.
            REGULAR_PAGE = 0,
            /// Removed from the kernel.
            GET_CONTIGUOUS_PAGES = 1,
            /// A doorbell page, write-combining.
            WC_PAGE = 2,
            /// A doorbell page, uncached.
            NC_PAGE = 3,
            /// The clock.
            CORE_CLOCK = 5,
            /// A new doorbell page, write-combining.
            ALLOC_WC = 6,
            /// Clock information.
            CLOCK_INFO = 7,
            /// Device memory.
            DEVICE_MEM = 8,
        }
    }
}

mod types {
    const HEADER: &str = "rdma/mlx5_user_ioctl_verbs.h";

    open_enum! {
        /// Caching of an allocated doorbell page.
        pub struct UarAllocType(u8), "MLX5_IB_UAPI_UAR_ALLOC_TYPE_" {
            /// Write-combining, for BlueFlame.
            BF = 0,
            /// Uncached.
            NC = 1,
        }
    }
}

/// Numbers of the `ioctl()` object that allocates doorbell pages.
pub mod uar_ids {
    const HEADER: &str = "rdma/mlx5_user_ioctl_cmds.h";

    constants! {
        OBJECTS: u16, "MLX5_IB_" {
            /// The object.
            OBJECT_UAR = 0x1008,
        }
    }

    constants! {
        METHODS: u16, "MLX5_IB_METHOD_UAR_OBJ_" {
            /// Allocates a page.
            ALLOC = 0x1000,
            /// Frees a page.
            DESTROY = 0x1001,
        }
    }

    constants! {
        ALLOC_ATTRS: u16, "MLX5_IB_ATTR_UAR_OBJ_ALLOC_" {
            /// Out: handle.
            ALLOC_HANDLE = 0x1000 => "MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE",
            /// In: a [`UarAllocType`](super::UarAllocType).
            ALLOC_TYPE = 0x1001 => "MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE",
            /// Out: offset for `mmap()`, `u64`.
            ALLOC_MMAP_OFFSET = 0x1002 => "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET",
            /// Out: bytes to map, `u32`.
            ALLOC_MMAP_LENGTH = 0x1003 => "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH",
            /// Out: number of the page, `u32`.
            ALLOC_PAGE_ID = 0x1004 => "MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID",
        }
    }

    constants! {
        DESTROY_ATTRS: u16, "MLX5_IB_ATTR_UAR_OBJ_DESTROY_" {
            /// In: handle.
            DESTROY_HANDLE = 0x1000 => "MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE",
        }
    }
}
