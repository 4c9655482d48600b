//! Memory regions: memory that a device may touch.

use std::io;

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs;

use super::Pd;
use crate::device::{Context, DriverPart, KernelObject, ObjectKind};
use crate::error::{Error, Result};
use crate::fastpath::{Provider, RemoteAddress, Segment};

bitflags! {
    /// What may be done to a memory region. Reading locally is always allowed.
    #[doc(alias = "ibv_access_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Receives and RDMA reads may write to it.
        const LOCAL_WRITE = uverbs::AccessFlags::LOCAL_WRITE.bits();
        /// Peers may write to it; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = uverbs::AccessFlags::REMOTE_WRITE.bits();
        /// Peers may read it.
        const REMOTE_READ = uverbs::AccessFlags::REMOTE_READ.bits();
        /// Peers may use atomics on it; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = uverbs::AccessFlags::REMOTE_ATOMIC.bits();
    }
}

/// A registered range of memory that the program manages itself. [`Buffer`](super::Buffer) is the
/// safe alternative.
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct Mr {
    object: KernelObject,
    address: u64,
    length: usize,
    lkey: u32,
    rkey: u32,
}

impl Pd {
    /// Registers memory that the program manages.
    ///
    /// # Errors
    ///
    /// Length 0 and access that contradicts itself are refused before the kernel is asked. `EFAULT`
    /// when the range is not mapped (or not writable and `LOCAL_WRITE` asked), `ENOMEM` when the
    /// process may not lock so much memory; the text names the limit.
    ///
    /// # Safety
    ///
    /// Until the region is dropped the device and, with remote access, the peer may write to the
    /// range at any time that the posted requests and the given access allow. The memory must stay
    /// mapped, and the program must not hold references that contradict those writes.
    #[doc(alias("ibv_reg_mr", "rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write"))]
    pub unsafe fn register_raw(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Mr> {
        Mr::register(self, address as u64, length, access)
    }
}

impl Mr {
    /// Registers a range that the caller keeps mapped until the region is dropped.
    pub(super) fn register(pd: &Pd, address: u64, length: usize, access: Access) -> Result<Self> {
        let operation = "reg_mr";
        if length == 0 {
            return Err(Error::invalid(
                operation,
                "a memory region has at least one byte",
            ));
        }
        let remote_write = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(remote_write) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Error::invalid(
                operation,
                "remote write or atomic access needs LOCAL_WRITE as well",
            ));
        }
        let context = pd.context();
        let mut driver = Provider::of(context)?.registration();
        let response: uverbs::RegMrResp = pd.with_handle(operation, |pd_handle| {
            let request = uverbs::RegMr {
                start: address,
                length: length as u64,
                hca_va: address,
                pd_handle,
                access_flags: access.bits(),
                ..Default::default()
            };
            let (request_part, response) = driver.parts();
            let driver = DriverPart {
                request: request_part,
                response,
            };
            context
                .command_with_driver(uverbs::Command::REG_MR, &request, driver)
                .map_err(|error| explain(context, length, &error))
        })?;
        let object = KernelObject::new(
            ObjectKind::MemoryRegion,
            context,
            response.mr_handle,
            pd.parents(),
        );
        Ok(Self {
            object,
            address,
            length,
            lkey: response.lkey,
            rkey: response.rkey,
        })
    }

    /// The local key, for segments made by hand.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The remote key. A peer that gets it together with the address can do what the access
    /// allows.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Address and remote key of the region's first byte, for a peer.
    pub fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.address,
            rkey: self.rkey,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the region has no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the registration back now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, e.g. because memory windows are bound to it.
    #[doc(alias("ibv_dereg_mr", "rdma_dereg_mr"))]
    pub fn deregister(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    /// A segment of `length` bytes from `offset` on; the caller has checked the range.
    pub(super) fn segment(&self, offset: usize, length: usize) -> Option<Segment> {
        let length = u32::try_from(length).ok()?;
        Some(Segment::of_buffer(
            self.address + offset as u64,
            length,
            self.lkey,
        ))
    }
}

fn explain(context: &Context, length: usize, error: &io::Error) -> Error {
    let described = Error::from_os("reg_mr", error);
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM) => {
            let limit = match context.kernel().locked_memory_limit() {
                Some(limit) => format!("{limit} bytes"),
                None => "unlimited".to_owned(),
            };
            described.because(format!(
                "{length} bytes cannot be locked in memory: the limit of locked memory is {limit} \
                 in all (ulimit -l, RLIMIT_MEMLOCK, LimitMEMLOCK= of a service)"
            ))
        }
        Some(libc::EFAULT) => described
            .because("the range is not mapped, or is read-only while LOCAL_WRITE was asked for"),
        _ => described,
    }
}
