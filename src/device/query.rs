//! What a device can do.

use rdmacm_kernel_abi::uverbs;

use super::Context;
use crate::error::{Error, Result};

/// The limits of a device.
#[doc(alias = "ibv_device_attr")]
#[derive(Debug, Clone)]
pub struct DeviceAttr(uverbs::QueryDeviceResp, uverbs::DeviceCapFlags);

impl DeviceAttr {
    pub(super) fn query(context: &Context) -> Result<Self> {
        let response: uverbs::ExQueryDeviceResp = context
            .command(
                uverbs::Command(uverbs::ExCommand::QUERY_DEVICE.0 | uverbs::CMD_FLAG_EXTENDED),
                &uverbs::ExQueryDevice::default(),
            )
            .map_err(|error| Error::from_os("query_device", &error))?;
        let capabilities = uverbs::DeviceCapFlags::from_bits_retain(response.device_cap_flags_ex);
        Ok(Self(response.base, capabilities))
    }

    /// Number of ports; they count from 1.
    pub fn ports(&self) -> u8 {
        self.0.phys_port_cnt
    }

    /// The largest memory region in bytes.
    pub fn max_mr_size(&self) -> u64 {
        self.0.max_mr_size
    }

    /// How many queue pairs the device has room for.
    pub fn max_qp(&self) -> u32 {
        self.0.max_qp
    }

    /// The deepest send or receive queue.
    pub fn max_qp_wr(&self) -> u32 {
        self.0.max_qp_wr
    }

    /// The most scatter/gather elements in one request.
    pub fn max_sge(&self) -> u32 {
        self.0.max_sge
    }

    /// The deepest shared receive queue; 0 where the device has none.
    pub fn max_srq_wr(&self) -> u32 {
        self.0.max_srq_wr
    }

    /// The most scatter/gather elements in one receive of a shared receive queue.
    pub fn max_srq_sge(&self) -> u32 {
        self.0.max_srq_sge
    }

    /// The most entries in one completion queue.
    pub fn max_cqe(&self) -> u32 {
        self.0.max_cqe
    }

    /// The most RDMA reads and atomics a queue pair answers at a time (responder resources).
    pub fn max_responder_resources(&self) -> u8 {
        clamp(self.0.max_qp_rd_atom)
    }

    /// The most RDMA reads and atomics a queue pair has under way at a time (initiator depth).
    pub fn max_initiator_depth(&self) -> u8 {
        clamp(self.0.max_qp_init_rd_atom)
    }

    /// Whether the device has atomic writes ([`Batch::atomic_write`](crate::Batch::atomic_write)).
    /// rxe has them with Linux 6.2 and newer.
    #[doc(alias = "IB_UVERBS_DEVICE_ATOMIC_WRITE")]
    pub fn has_atomic_write(&self) -> bool {
        self.1.contains(uverbs::DeviceCapFlags::ATOMIC_WRITE)
    }

    /// Whether the device has flushes that make what was written visible
    /// ([`FlushPlacement::GLOBAL`](crate::FlushPlacement::GLOBAL)). rxe has them with Linux 6.2 and
    /// newer.
    #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_GLOBAL")]
    pub fn has_flush_global(&self) -> bool {
        self.1.contains(uverbs::DeviceCapFlags::FLUSH_GLOBAL)
    }

    /// Whether the device has flushes that make what was written outlive a loss of power
    /// ([`FlushPlacement::PERSISTENT`](crate::FlushPlacement::PERSISTENT)).
    #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_PERSISTENT")]
    pub fn has_flush_persistent(&self) -> bool {
        self.1.contains(uverbs::DeviceCapFlags::FLUSH_PERSISTENT)
    }

    /// Whether the device has memory windows of [type 1](crate::MwType::One).
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
    pub fn has_windows_of_type_1(&self) -> bool {
        self.1.contains(uverbs::DeviceCapFlags::MEM_WINDOW)
    }

    /// Whether the device has memory windows of [type 2](crate::MwType::Two).
    #[doc(alias("IBV_DEVICE_MEM_WINDOW_TYPE_2A", "IBV_DEVICE_MEM_WINDOW_TYPE_2B"))]
    pub fn has_windows_of_type_2(&self) -> bool {
        use uverbs::DeviceCapFlags as Flags;
        self.1
            .intersects(Flags::MEM_WINDOW_TYPE_2A | Flags::MEM_WINDOW_TYPE_2B)
    }

    /// Vendor and part number of the device.
    pub fn vendor(&self) -> (u32, u32) {
        (self.0.vendor_id, self.0.vendor_part_id)
    }

    /// Firmware version, in the device's own encoding.
    pub fn firmware_version(&self) -> u64 {
        self.0.fw_ver
    }
}

/// The connection manager has eight bits for these numbers; a device that offers more gets the
/// most that can be said, not the remainder.
fn clamp(depth: u32) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_depth_of_256_is_not_zero() {
        assert_eq!(
            [0, 128, 255, 256, u32::MAX].map(super::clamp),
            [0, 128, 255, 255, 255]
        );
    }
}
