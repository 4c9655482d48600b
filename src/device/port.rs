//! Ports.

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromZeros, IntoBytes};

use super::Context;
use crate::error::{Error, Result};
use crate::sys::{Attr, Value};

/// What a port can do and how it is.
#[doc(alias = "ibv_port_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Whether the port can carry traffic.
    pub state: PortState,
    /// The largest path MTU the port can do.
    pub max_mtu: Mtu,
    /// The path MTU it can do now.
    pub active_mtu: Mtu,
    /// Number of slots in the GID table.
    pub gid_table_length: u32,
    /// Number of slots in the P_Key table.
    pub pkey_table_length: u16,
    /// The largest message in bytes.
    pub max_message_size: u32,
    /// Local identifier (InfiniBand only).
    pub lid: u16,
    /// How many of the low bits of the LID any value may have (InfiniBand only).
    pub lmc: u8,
    /// LID of the subnet manager (InfiniBand only).
    pub sm_lid: u16,
    /// What the port can do.
    pub caps: PortCaps,
    /// How far the link has come.
    #[doc(alias = "phys_state")]
    pub physical_state: PhysicalState,
    /// Lanes of the link; 0 for a number of the kernel's that this crate does not know.
    pub active_width: u8,
    /// Speed of a lane, the code that InfiniBand gives it (1 is 2.5 Gbit/s; 255 on old kernels one
    /// that has no room).
    pub active_speed: u32,
    /// The layer below.
    pub link_layer: LinkLayer,
}

/// The state of a port.
#[doc(alias = "ibv_port_state")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortState {
    /// No link.
    Down,
    /// Link, not configured yet.
    Init,
    /// Configured, not in use yet.
    Armed,
    /// In use.
    Active,
    /// In use; the link is lost at the moment.
    ActiveDefer,
    /// A state of a newer kernel, or none.
    Other(u8),
}

bitflags! {
    /// What a port can do. Abilities that this crate has no name for are kept.
    #[doc(alias = "ibv_port_cap_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct PortCaps: u32 {
        /// Runs the subnet manager.
        const SM = uverbs::PortCapFlags::SM.bits();
        /// Sends notices.
        const NOTICE = uverbs::PortCapFlags::NOTICE_SUP.bits();
        /// Sends traps.
        const TRAP = uverbs::PortCapFlags::TRAP_SUP.bits();
        /// Connections go over to an alternate path.
        const AUTO_MIGRATION = uverbs::PortCapFlags::AUTO_MIGR_SUP.bits();
        /// Maps service levels to lanes.
        const SL_MAP = uverbs::PortCapFlags::SL_MAP_SUP.bits();
        /// Has speeds beyond the first ones.
        const EXTENDED_SPEEDS = uverbs::PortCapFlags::EXTENDED_SPEEDS_SUP.bits();
        /// Connections can be asked for.
        const CM = uverbs::PortCapFlags::CM_SUP.bits();
        /// The GIDs are IP addresses.
        const IP_BASED_GIDS = uverbs::PortCapFlags::IP_BASED_GIDS.bits();
        /// Whatever a newer kernel says.
        const _ = !0;
    }
}

/// How far the link of a port has come.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PhysicalState {
    /// Nothing is done.
    Sleep,
    /// It looks for a peer.
    Polling,
    /// It is switched off.
    Disabled,
    /// It is being set up with the peer.
    Training,
    /// There is a link.
    LinkUp,
    /// It recovers from errors.
    LinkErrorRecovery,
    /// It is being tested.
    PhyTest,
    /// A state of a newer kernel, or none.
    Other(u8),
}

/// A path MTU: the payload bytes of one packet.
#[doc(alias = "ibv_mtu")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mtu(u8);

impl Mtu {
    /// The size in bytes: 256 to 4096; 0 for a number of the kernel's that this crate does not
    /// know.
    pub fn bytes(self) -> u32 {
        match self.0 {
            code @ 1..=5 => 128 << code,
            _ => 0,
        }
    }

    /// The MTU of this many bytes: 256, 512, 1024, 2048 or 4096.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        (1..=5).map(Self).find(|mtu| mtu.bytes() == bytes)
    }

    /// The MTU with this code of the kernel's.
    pub(crate) fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// The kernel's code for it.
    pub(crate) fn code(self) -> u8 {
        self.0
    }
}

/// The layer below RDMA on a port.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet (RoCE and iWARP).
    Ethernet,
    /// Something else.
    Other(u8),
}

impl Context {
    /// Asks for the attributes of a port; ports count from 1.
    ///
    /// # Errors
    ///
    /// When the port does not exist or the device is gone.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: u8) -> Result<PortAttr> {
        let mut response = ioctl::QueryPortRespEx::new_zeroed();
        let number = u64::from(port);
        self.method(
            ioctl::object::DEVICE,
            ioctl::device::QUERY_PORT,
            &mut [
                Attr::new(
                    ioctl::device::query_port::PORT_NUM,
                    Value::In(number.as_bytes()),
                ),
                Attr::new(
                    ioctl::device::query_port::RESP,
                    Value::Out(response.as_mut_bytes()),
                ),
            ],
        )
        .map_err(|error| {
            let described = Error::from_os("query_port", &error);
            match error.raw_os_error() {
                Some(libc::EINVAL) => {
                    described.because(format!("{} has no port {port}", self.device().name()))
                }
                _ => described,
            }
        })?;
        Ok(PortAttr::from_kernel(&response))
    }
}

impl PortAttr {
    fn from_kernel(extended: &ioctl::QueryPortRespEx) -> Self {
        let response = &extended.legacy_resp;
        Self {
            lmc: response.lmc,
            sm_lid: response.sm_lid,
            caps: PortCaps::from_bits_retain(response.port_cap_flags),
            physical_state: PhysicalState::from_kernel(response.phys_state),
            active_width: lanes(response.active_width),
            // Newer kernels have a wider field besides.
            active_speed: u32::from(response.active_speed).max(extended.active_speed_ex),
            state: match uverbs::PortState(response.state) {
                uverbs::PortState::DOWN => PortState::Down,
                uverbs::PortState::INIT => PortState::Init,
                uverbs::PortState::ARMED => PortState::Armed,
                uverbs::PortState::ACTIVE => PortState::Active,
                uverbs::PortState::ACTIVE_DEFER => PortState::ActiveDefer,
                uverbs::PortState(other) => PortState::Other(other),
            },
            max_mtu: Mtu(response.max_mtu),
            active_mtu: Mtu(response.active_mtu),
            gid_table_length: response.gid_tbl_len,
            pkey_table_length: response.pkey_tbl_len,
            max_message_size: response.max_msg_sz,
            lid: response.lid,
            link_layer: match uverbs::LinkLayer(response.link_layer) {
                // Drivers older than the field leave it unspecified, all of them InfiniBand's.
                uverbs::LinkLayer::UNSPECIFIED | uverbs::LinkLayer::INFINIBAND => {
                    LinkLayer::InfiniBand
                }
                uverbs::LinkLayer::ETHERNET => LinkLayer::Ethernet,
                uverbs::LinkLayer(other) => LinkLayer::Other(other),
            },
        }
    }
}

impl PhysicalState {
    fn from_kernel(number: u8) -> Self {
        match number {
            1 => Self::Sleep,
            2 => Self::Polling,
            3 => Self::Disabled,
            4 => Self::Training,
            5 => Self::LinkUp,
            6 => Self::LinkErrorRecovery,
            7 => Self::PhyTest,
            other => Self::Other(other),
        }
    }
}

/// The number of lanes that the code stands for.
fn lanes(code: u8) -> u8 {
    match code {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_unknown_ones() {
        let sizes: Vec<u32> = (0..8).map(|code| Mtu(code).bytes()).collect();
        assert_eq!(sizes, [0, 256, 512, 1024, 2048, 4096, 0, 0]);
        assert_eq!(Mtu::from_bytes(1024), Some(Mtu(3)));
        assert_eq!(Mtu::from_bytes(0), None);
        assert_eq!(Mtu::from_bytes(1500), None);
    }
    #[test]
    fn what_the_kernel_says_is_kept() {
        let mut said = ioctl::QueryPortRespEx::new_zeroed();
        said.legacy_resp.state = 5;
        said.legacy_resp.phys_state = 9;
        said.legacy_resp.active_width = 16;
        said.legacy_resp.active_speed = 255;
        said.legacy_resp.port_cap_flags = 1 << 16 | 1 << 30;
        said.active_speed_ex = 256;
        let port = PortAttr::from_kernel(&said);
        assert_eq!(port.state, PortState::ActiveDefer);
        assert_eq!(port.physical_state, PhysicalState::Other(9));
        assert_eq!((port.active_width, port.active_speed), (2, 256));
        assert!(port.caps.contains(PortCaps::CM));
        assert_eq!(port.caps.bits(), 1 << 16 | 1 << 30);
        let states: Vec<_> = (1..=7).map(PhysicalState::from_kernel).collect();
        assert_eq!(states[4], PhysicalState::LinkUp);
        assert!(
            !states
                .iter()
                .any(|state| matches!(state, PhysicalState::Other(_)))
        );
        assert_eq!([1, 2, 4, 8, 16, 3].map(lanes), [1, 4, 8, 12, 2, 0]);
    }
}
