//! What may be done to memory.

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs::AccessFlags;

use crate::device::{Context, DeviceCaps};
use crate::error::{Error, ErrorKind, Result};

bitflags! {
    /// What may be done to memory. Reading locally is always allowed.
    ///
    /// The bits 20 to 29 are wishes: a device that cannot fulfil one ignores it. The others are
    /// demands: what the device does not have is refused.
    #[doc(alias("ibv_access_flags", "IBV_ACCESS_OPTIONAL_RANGE"))]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Receives and RDMA reads may write to it.
        const LOCAL_WRITE = AccessFlags::LOCAL_WRITE.bits();
        /// Peers may write to it; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = AccessFlags::REMOTE_WRITE.bits();
        /// Peers may read it. siw does not look: who knows the key of a region can read it.
        const REMOTE_READ = AccessFlags::REMOTE_READ.bits();
        /// Peers may use atomics on it; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = AccessFlags::REMOTE_ATOMIC.bits();
        /// Memory windows may be bound to it ([`Mw`](super::Mw)).
        const MW_BIND = AccessFlags::MW_BIND.bits();
        /// Its addresses count from 0. For memory windows; a region gets its addresses from
        /// [`Pd::register_raw_at`](crate::Pd::register_raw_at).
        const ZERO_BASED = AccessFlags::ZERO_BASED.bits();
        /// Its pages are not locked in memory but fetched when the device needs them. Only where
        /// [`DeviceAttr::on_demand_paging`](crate::DeviceAttr::on_demand_paging) says so: rxe of
        /// Linux 7, not of 6.12.
        const ON_DEMAND = AccessFlags::ON_DEMAND.bits();
        /// It consists of huge pages. rxe refuses that, and treats them well without.
        const HUGETLB = AccessFlags::HUGETLB.bits();
        /// Peers may flush what they wrote until it can be seen
        /// ([`FlushPlacement::Global`](crate::FlushPlacement::Global)). For devices that
        /// [have](crate::DeviceAttr::has_flush_global) such flushes.
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = AccessFlags::FLUSH_GLOBAL.bits();
        /// Peers may flush what they wrote until it outlives a loss of power
        /// ([`FlushPlacement::Persistent`](crate::FlushPlacement::Persistent)). For persistent
        /// memory, and devices that [have](crate::DeviceAttr::has_flush_persistent) such flushes.
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = AccessFlags::FLUSH_PERSISTENT.bits();
        /// Writes to it may overtake each other on their way. A wish.
        const RELAXED_ORDERING = AccessFlags::RELAXED_ORDERING.bits();
    }
}

impl Access {
    /// What the kernel is to be told of a memory region.
    ///
    /// # Errors
    ///
    /// When the flags contradict themselves, or the device lacks one: old kernels take some that
    /// they do not know, and refuse others without a reason.
    pub(super) fn of_region(self, operation: &'static str, context: &Context) -> Result<u32> {
        let remote_write = Self::REMOTE_WRITE | Self::REMOTE_ATOMIC;
        if self.intersects(remote_write) && !self.contains(Self::LOCAL_WRITE) {
            return Err(Error::invalid(
                operation,
                "remote write or atomic access needs LOCAL_WRITE as well",
            ));
        }
        if self.contains(Self::ZERO_BASED) {
            return Err(Error::invalid(
                operation,
                "ZERO_BASED is for memory windows; Pd::register_raw_at gives a region other \
                 addresses",
            ));
        }
        self.check_abilities(operation, context)?;
        let optional = AccessFlags::OPTIONAL_RANGE.bits();
        Ok(match context.takes_optional_access() {
            true => self.bits(),
            false => self.bits() & !optional,
        })
    }

    /// Refuses what the device says that it does not have. It is asked only about what is rare.
    fn check_abilities(self, operation: &'static str, context: &Context) -> Result<()> {
        let flush = Self::FLUSH_GLOBAL | Self::FLUSH_PERSISTENT;
        if !self.intersects(flush | Self::ON_DEMAND) {
            return Ok(());
        }
        let device = context.attr()?;
        let caps = device.caps();
        for (flag, name, is_there) in [
            (
                Self::FLUSH_GLOBAL,
                "FLUSH_GLOBAL",
                caps.contains(DeviceCaps::FLUSH_GLOBAL),
            ),
            (
                Self::FLUSH_PERSISTENT,
                "FLUSH_PERSISTENT",
                caps.contains(DeviceCaps::FLUSH_PERSISTENT),
            ),
            (
                Self::ON_DEMAND,
                "ON_DEMAND",
                device.on_demand_paging().is_supported,
            ),
        ] {
            if self.contains(flag) && !is_there {
                return Err(Error::new(
                    operation,
                    ErrorKind::NotSupported,
                    format!("{} with this kernel has no {name}", context.device().name()),
                ));
            }
        }
        Ok(())
    }
}
