//! The limits of a device.

use std::io;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;
use zerocopy::FromZeros;

use super::{AtomicCapability, Context, DeviceCaps, OdpCaps, OdpOperations};
use crate::error::{Error, Result};

/// The limits of a device.
///
/// A limit is what the driver says. Software devices say more than the machine's memory has room
/// for.
#[doc(alias("ibv_device_attr", "ibv_device_attr_ex"))]
#[derive(Debug, Clone)]
pub struct DeviceAttr(uverbs::ExQueryDeviceResp);

impl DeviceAttr {
    pub(super) fn query(context: &Context) -> Result<Self> {
        let extended = uverbs::ExCommand::QUERY_DEVICE.0 | uverbs::CMD_FLAG_EXTENDED;
        let answer = context.command(uverbs::Command(extended), &uverbs::ExQueryDevice::default());
        let answer = match answer {
            // Older kernels have the question for the basic limits only.
            Err(error) if is_unknown(&error) => Self::query_base(context),
            answer => answer,
        };
        let response = answer.map_err(|error| Error::from_os("query_device", &error))?;
        Ok(Self(response))
    }

    fn query_base(context: &Context) -> io::Result<uverbs::ExQueryDeviceResp> {
        let request = uverbs::QueryDevice::default();
        let base = context.command(uverbs::Command::QUERY_DEVICE, &request)?;
        Ok(uverbs::ExQueryDeviceResp {
            base,
            ..FromZeros::new_zeroed()
        })
    }

    /// What the device can do besides what every device can.
    #[doc(alias("device_cap_flags", "device_cap_flags_ex"))]
    pub fn caps(&self) -> DeviceCaps {
        // The first 32 bits are in both places; some drivers fill in the older one only.
        let low = u64::from(self.0.base.device_cap_flags);
        DeviceCaps::from_bits_retain(self.0.device_cap_flags_ex | low)
    }

    /// Number of ports; they count from 1.
    pub fn ports(&self) -> u8 {
        self.0.base.phys_port_cnt
    }

    /// The largest memory region in bytes.
    pub fn max_mr_size(&self) -> u64 {
        self.0.base.max_mr_size
    }

    /// The sizes of pages that memory regions can be made of, one bit each: bit 12 is 4096 bytes.
    #[doc(alias = "page_size_cap")]
    pub fn page_sizes(&self) -> u64 {
        self.0.base.page_size_cap
    }

    /// How many memory regions the device has room for.
    pub fn max_mr(&self) -> u32 {
        self.0.base.max_mr
    }

    /// How many memory windows the device has room for; 0 where it has none.
    pub fn max_mw(&self) -> u32 {
        self.0.base.max_mw
    }

    /// How many protection domains the device has room for.
    pub fn max_pd(&self) -> u32 {
        self.0.base.max_pd
    }

    /// How many completion queues the device has room for.
    pub fn max_cq(&self) -> u32 {
        self.0.base.max_cq
    }

    /// How many address handles the device has room for.
    pub fn max_ah(&self) -> u32 {
        self.0.base.max_ah
    }

    /// How many shared receive queues the device has room for; 0 where it has none.
    pub fn max_srq(&self) -> u32 {
        self.0.base.max_srq
    }

    /// How many multicast groups queue pairs of the device can be attached to.
    pub fn max_mcast_grp(&self) -> u32 {
        self.0.base.max_mcast_grp
    }

    /// How many queue pairs can be attached to one multicast group.
    pub fn max_mcast_qp_attach(&self) -> u32 {
        self.0.base.max_mcast_qp_attach
    }

    /// How many attachments of queue pairs to multicast groups there can be.
    pub fn max_total_mcast_qp_attach(&self) -> u32 {
        self.0.base.max_total_mcast_qp_attach
    }

    /// The longest P_Key table of a port.
    pub fn max_pkeys(&self) -> u16 {
        self.0.base.max_pkeys
    }

    /// How many queue pairs the device has room for.
    pub fn max_qp(&self) -> u32 {
        self.0.base.max_qp
    }

    /// The deepest send or receive queue.
    pub fn max_qp_wr(&self) -> u32 {
        self.0.base.max_qp_wr
    }

    /// The most scatter/gather elements in one request.
    pub fn max_sge(&self) -> u32 {
        self.0.base.max_sge
    }

    /// The most scatter/gather elements in an RDMA read.
    pub fn max_sge_rd(&self) -> u32 {
        self.0.base.max_sge_rd
    }

    /// The deepest shared receive queue; 0 where the device has none.
    pub fn max_srq_wr(&self) -> u32 {
        self.0.base.max_srq_wr
    }

    /// The most scatter/gather elements in one receive of a shared receive queue.
    pub fn max_srq_sge(&self) -> u32 {
        self.0.base.max_srq_sge
    }

    /// The most entries in one completion queue.
    pub fn max_cqe(&self) -> u32 {
        self.0.base.max_cqe
    }

    /// The most RDMA reads and atomics a queue pair answers at a time (responder resources).
    pub fn max_responder_resources(&self) -> u8 {
        clamp(self.0.base.max_qp_rd_atom)
    }

    /// The most RDMA reads and atomics a queue pair has under way at a time (initiator depth).
    pub fn max_initiator_depth(&self) -> u8 {
        clamp(self.0.base.max_qp_init_rd_atom)
    }

    /// How far compare and swap and fetch and add reach.
    #[doc(alias = "atomic_cap")]
    pub fn atomic_capability(&self) -> AtomicCapability {
        AtomicCapability::from_kernel(self.0.base.atomic_cap)
    }

    /// What can be done with memory that is paged on demand.
    #[doc(alias = "odp_caps")]
    pub fn on_demand_paging(&self) -> OdpCaps {
        let caps = &self.0.odp_caps;
        let by_transport = &caps.per_transport_caps;
        OdpCaps {
            is_supported: caps.general_caps & 1 != 0,
            is_implicit_supported: caps.general_caps & 2 != 0,
            rc: OdpOperations::from_bits_retain(by_transport.rc_odp_caps),
            uc: OdpOperations::from_bits_retain(by_transport.uc_odp_caps),
            ud: OdpOperations::from_bits_retain(by_transport.ud_odp_caps),
            xrc: OdpOperations::from_bits_retain(self.0.xrc_odp_caps),
        }
    }

    /// The most completions, and the longest time, that [`Cq::moderate`](crate::Cq::moderate) lets
    /// an event wait for. Zeros where the device has no moderation, as rxe and siw.
    #[doc(alias = "ibv_moderation_caps")]
    pub fn max_moderation(&self) -> (u16, Duration) {
        let caps = &self.0.cq_moderation_caps;
        let period = u64::from(caps.max_cq_moderation_period);
        (caps.max_cq_moderation_count, Duration::from_micros(period))
    }

    /// How long the device may take to acknowledge a packet, as the exponent n of 4.096 µs · 2^n.
    pub fn local_ca_ack_delay(&self) -> u8 {
        self.0.base.local_ca_ack_delay
    }

    /// The GUID of the system that the device is part of.
    pub fn sys_image_guid(&self) -> u64 {
        self.0.base.sys_image_guid.get()
    }

    /// Whether the device has atomic writes ([`Batch::atomic_write`](crate::Batch::atomic_write)).
    /// rxe has them with Linux 6.2 and newer.
    #[doc(alias = "IB_UVERBS_DEVICE_ATOMIC_WRITE")]
    pub fn has_atomic_write(&self) -> bool {
        self.caps().contains(DeviceCaps::ATOMIC_WRITE)
    }

    /// Whether the device has flushes that make what was written visible
    /// ([`FlushPlacement::Global`](crate::FlushPlacement::Global)). rxe has them with Linux 6.2 and
    /// newer.
    #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_GLOBAL")]
    pub fn has_flush_global(&self) -> bool {
        self.caps().contains(DeviceCaps::FLUSH_GLOBAL)
    }

    /// Whether the device has flushes that make what was written outlive a loss of power
    /// ([`FlushPlacement::Persistent`](crate::FlushPlacement::Persistent)).
    #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_PERSISTENT")]
    pub fn has_flush_persistent(&self) -> bool {
        self.caps().contains(DeviceCaps::FLUSH_PERSISTENT)
    }

    /// Whether the device has memory windows of [type 1](crate::MwType::One).
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
    pub fn has_windows_of_type_1(&self) -> bool {
        self.caps().contains(DeviceCaps::MEM_WINDOW)
    }

    /// Whether the device has memory windows of [type 2](crate::MwType::Two).
    #[doc(alias("IBV_DEVICE_MEM_WINDOW_TYPE_2A", "IBV_DEVICE_MEM_WINDOW_TYPE_2B"))]
    pub fn has_windows_of_type_2(&self) -> bool {
        self.caps()
            .intersects(DeviceCaps::MEM_WINDOW_TYPE_2A | DeviceCaps::MEM_WINDOW_TYPE_2B)
    }

    /// Vendor and part number of the device.
    pub fn vendor(&self) -> (u32, u32) {
        (self.0.base.vendor_id, self.0.base.vendor_part_id)
    }

    /// Version of the hardware, in the vendor's own numbers.
    #[doc(alias = "hw_ver")]
    pub fn hardware_version(&self) -> u32 {
        self.0.base.hw_ver
    }

    /// Firmware version, in the device's own encoding.
    pub fn firmware_version(&self) -> u64 {
        self.0.base.fw_ver
    }
}

/// The connection manager has eight bits for these numbers; a device that offers more gets the
/// most that can be said, not the remainder.
fn clamp(depth: u32) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// Whether the kernel does not know the command.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
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
