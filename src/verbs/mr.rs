//! Memory regions: memory that a device may touch.

use std::io;
use std::sync::Arc;

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs;

use super::Pd;
use crate::device::{Context, DriverPart, KernelObject, ObjectKind};
use crate::error::{Error, Result};
use crate::fastpath::{Provider, RemoteAddress, Segment};
use crate::sys::Memory;

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
        /// Memory windows may be bound to it ([`Mw`](super::Mw)).
        const MW_BIND = uverbs::AccessFlags::MW_BIND.bits();
        /// Peers may flush what they wrote until it can be seen
        /// ([`FlushPlacement::GLOBAL`](crate::FlushPlacement::GLOBAL)). For devices that
        /// [have](crate::DeviceAttr::has_flush_global) such flushes.
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = uverbs::AccessFlags::FLUSH_GLOBAL.bits();
        /// Peers may flush what they wrote until it outlives a loss of power
        /// ([`FlushPlacement::PERSISTENT`](crate::FlushPlacement::PERSISTENT)). For persistent
        /// memory, and devices that [have](crate::DeviceAttr::has_flush_persistent) such flushes.
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = uverbs::AccessFlags::FLUSH_PERSISTENT.bits();
    }
}

/// A registered range of memory that the program manages itself. [`Buffer`](super::Buffer) is the
/// safe alternative.
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct Mr {
    registration: Arc<Registration>,
    pd: Pd,
    access: Access,
    address: u64,
    length: usize,
    lkey: u32,
    rkey: u32,
}

/// A region as the kernel knows it. A memory window that is bound to it holds it as well: the kernel
/// would not take it back before.
#[derive(Debug)]
pub(super) struct Registration {
    // Before the memory: deregistering comes before unmapping.
    object: KernelObject,
    /// The library's memory, where it is that.
    _memory: Option<Arc<Memory>>,
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
    /// Until the region is dropped, and with it each memory window of whose last two binds one was to
    /// the region, the device and, with remote access, the peer may write to the
    /// range at any time that the posted requests and the given access allow. The memory must stay
    /// mapped, and the program must not hold references that contradict those writes.
    #[doc(alias("ibv_reg_mr", "rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write"))]
    pub unsafe fn register_raw(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Mr> {
        Mr::register(self, address as u64, length, access, None)
    }
}

impl Mr {
    /// Registers a range that stays mapped as long as the registration: it is in `memory`, or the
    /// caller vouches for it.
    pub(super) fn register(
        pd: &Pd,
        address: u64,
        length: usize,
        access: Access,
        memory: Option<Arc<Memory>>,
    ) -> Result<Self> {
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
            registration: Arc::new(Registration {
                object,
                _memory: memory,
            }),
            pd: pd.clone(),
            access,
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
    /// While memory windows are bound to it, the kernel refuses (`EINVAL`). The region then stays until
    /// the last of them is dropped.
    #[doc(alias("ibv_dereg_mr", "rdma_dereg_mr"))]
    pub fn deregister(self) -> Result<()> {
        match self.registration.object.destroy() {
            Err(error) if error.errno() == Some(libc::EINVAL) => Err(error.because(
                "memory windows are bound to the region; invalidate, unbind or drop them first",
            )),
            done => done.map(drop),
        }
    }

    pub(super) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(super) fn access(&self) -> Access {
        self.access
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

impl AsRef<Mr> for Mr {
    fn as_ref(&self) -> &Mr {
        self
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
