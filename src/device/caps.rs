//! What a device can do besides what every device can.

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs::DeviceCapFlags as Kernel;

bitflags! {
    /// Abilities of a device. Those that this crate has no name for are kept.
    ///
    /// They are what the driver says. A driver may have an ability that it does not claim.
    #[doc(alias = "ibv_device_cap_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct DeviceCaps: u64 {
        /// Send and receive queues can change their depth.
        const RESIZE_MAX_WR = Kernel::RESIZE_MAX_WR.bits();
        /// Counts packets with a wrong partition key.
        const BAD_PKEY_CNTR = Kernel::BAD_PKEY_CNTR.bits();
        /// Counts packets with a wrong queue key.
        const BAD_QKEY_CNTR = Kernel::BAD_QKEY_CNTR.bits();
        /// Multicast of raw packets.
        const RAW_MULTI = Kernel::RAW_MULTI.bits();
        /// Connections go over to an alternate path.
        const AUTO_PATH_MIG = Kernel::AUTO_PATH_MIG.bits();
        /// The port of a queue pair can change.
        const CHANGE_PHY_PORT = Kernel::CHANGE_PHY_PORT.bits();
        /// Checks the port of address handles.
        const UD_AV_PORT_ENFORCE = Kernel::UD_AV_PORT_ENFORCE.bits();
        /// A change of state can name the present one.
        const CURR_QP_STATE_MOD = Kernel::CURR_QP_STATE_MOD.bits();
        /// Ports can be shut down.
        const SHUTDOWN_PORT = Kernel::SHUTDOWN_PORT.bits();
        /// Says when a port becomes active
        /// ([`AsyncEvent::PortActive`](crate::AsyncEvent::PortActive)).
        const PORT_ACTIVE_EVENT = Kernel::PORT_ACTIVE_EVENT.bits();
        /// Has a GUID of the system it is part of.
        const SYS_IMAGE_GUID = Kernel::SYS_IMAGE_GUID.bits();
        /// Tells the peer that no receive is posted.
        const RC_RNR_NAK_GEN = Kernel::RC_RNR_NAK_GEN.bits();
        /// Shared receive queues can change their depth ([`Srq::resize`](crate::Srq::resize)).
        const SRQ_RESIZE = Kernel::SRQ_RESIZE.bits();
        /// Events after a number of completions.
        const N_NOTIFY_CQ = Kernel::N_NOTIFY_CQ.bits();
        /// Memory windows.
        const MEM_WINDOW = Kernel::MEM_WINDOW.bits();
        /// Checksums of the IP packets in datagrams.
        const UD_IP_CSUM = Kernel::UD_IP_CSUM.bits();
        /// Extended reliable connections ([`Xrcd`](crate::Xrcd)).
        const XRC = Kernel::XRC.bits();
        /// Keys can be invalidated, by the owner and by the peer.
        const MEM_MGT_EXTENSIONS = Kernel::MEM_MGT_EXTENSIONS.bits();
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = Kernel::MEM_WINDOW_TYPE_2A.bits();
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = Kernel::MEM_WINDOW_TYPE_2B.bits();
        /// Checksums of the IP packets in reliable connections.
        const RC_IP_CSUM = Kernel::RC_IP_CSUM.bits();
        /// Checksums of the IP packets in raw packets.
        const RAW_IP_CSUM = Kernel::RAW_IP_CSUM.bits();
        /// Steers packets to queues by rules.
        const MANAGED_FLOW_STEERING = Kernel::MANAGED_FLOW_STEERING.bits();
        /// Hands out the checksums of received frames.
        const RAW_SCATTER_FCS = Kernel::RAW_SCATTER_FCS.bits();
        /// Pads the ends of writes to a cache line.
        const PCI_WRITE_END_PADDING = Kernel::PCI_WRITE_END_PADDING.bits();
        /// Flushes to global visibility ([`Access::FLUSH_GLOBAL`](crate::Access::FLUSH_GLOBAL)).
        const FLUSH_GLOBAL = Kernel::FLUSH_GLOBAL.bits();
        /// Flushes to persistence
        /// ([`Access::FLUSH_PERSISTENT`](crate::Access::FLUSH_PERSISTENT)).
        const FLUSH_PERSISTENT = Kernel::FLUSH_PERSISTENT.bits();
        /// Atomic writes ([`Batch::atomic_write`](crate::Batch::atomic_write)).
        const ATOMIC_WRITE = Kernel::ATOMIC_WRITE.bits();
        /// Whatever a newer kernel says.
        const _ = !0;
    }
}

bitflags! {
    /// Which requests may touch memory that is paged on demand, of one transport.
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct OdpOperations: u32 {
        /// Sends.
        const SEND = 1;
        /// Receives.
        const RECV = 1 << 1;
        /// RDMA writes.
        const WRITE = 1 << 2;
        /// RDMA reads.
        const READ = 1 << 3;
        /// Atomics.
        const ATOMIC = 1 << 4;
        /// Receives of a shared queue.
        const SRQ_RECV = 1 << 5;
        /// Flushes.
        const FLUSH = 1 << 6;
        /// Atomic writes.
        const ATOMIC_WRITE = 1 << 7;
        /// Whatever a newer kernel says.
        const _ = !0;
    }
}

/// What a device can do with memory that is paged on demand
/// ([`Access::ON_DEMAND`](crate::Access::ON_DEMAND)).
#[doc(alias = "ibv_odp_caps")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OdpCaps {
    /// Whether it pages on demand at all.
    #[doc(alias = "IBV_ODP_SUPPORT")]
    pub is_supported: bool,
    /// Whether a region can be the whole address space.
    #[doc(alias = "IBV_ODP_SUPPORT_IMPLICIT")]
    pub is_implicit_supported: bool,
    /// On reliable connections.
    pub rc: OdpOperations,
    /// On unreliable connections.
    pub uc: OdpOperations,
    /// In datagrams.
    pub ud: OdpOperations,
    /// On extended reliable connections.
    pub xrc: OdpOperations,
}

/// How far a device's atomics reach.
#[doc(alias = "ibv_atomic_cap")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicCapability {
    /// It has none.
    None,
    /// Atomic towards requests that go through this device, not towards the processors.
    Device,
    /// Atomic towards everybody.
    Global,
    /// Another reach, with the kernel's number.
    Other(u32),
}

impl AtomicCapability {
    pub(crate) fn from_kernel(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Device,
            2 => Self::Global,
            other => Self::Other(other),
        }
    }
}
