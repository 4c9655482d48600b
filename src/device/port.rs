//! Ports.

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
        Ok(PortAttr::from_kernel(&response.legacy_resp))
    }
}

impl PortAttr {
    fn from_kernel(response: &uverbs::QueryPortResp) -> Self {
        Self {
            state: match uverbs::PortState(response.state) {
                uverbs::PortState::DOWN => PortState::Down,
                uverbs::PortState::INIT => PortState::Init,
                uverbs::PortState::ARMED => PortState::Armed,
                uverbs::PortState::ACTIVE => PortState::Active,
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
}
