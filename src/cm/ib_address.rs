//! Addresses: IP, and InfiniBand's own.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::PortSpace;
use crate::device::Gid;

/// The bits of a service id that are the same for all ports of a port space.
const PORT_SPACE_MASK: u64 = !PORT_MASK;
/// The bits of a service id that hold the port.
const PORT_MASK: u64 = 0xffff;

/// An address of the connection manager: where an id is bound, or whom it connects to.
///
/// Most programs use IP addresses and need not know of this type: the calls that take an address
/// take a [`SocketAddr`] as well.
///
/// ```
/// use rdmacm::Address;
/// use std::net::SocketAddr;
///
/// let peer: SocketAddr = "10.1.2.3:7471".parse()?;
/// let address = Address::from(peer);
/// assert_eq!(address.ip(), Some(peer));
/// assert_eq!(address.port(), 7471);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[doc(alias = "rdma_addr")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A GID and a service id. InfiniBand only: on RoCE and iWARP no route leads there.
    Ib(IbAddress),
}

impl Address {
    /// The IP address; `None` for an InfiniBand address.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Ib(_) => None,
        }
    }

    /// The port, in host byte order.
    #[doc(alias("rdma_get_src_port", "rdma_get_dst_port"))]
    pub fn port(&self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Ib(address) => address.port(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<SocketAddrV4> for Address {
    fn from(address: SocketAddrV4) -> Self {
        Self::Ip(address.into())
    }
}

impl From<SocketAddrV6> for Address {
    fn from(address: SocketAddrV6) -> Self {
        Self::Ip(address.into())
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Address {
    fn from((ip, port): (I, u16)) -> Self {
        Self::Ip(SocketAddr::new(ip.into(), port))
    }
}

impl From<IbAddress> for Address {
    fn from(address: IbAddress) -> Self {
        Self::Ib(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => address.fmt(f),
        }
    }
}

/// An InfiniBand address, of the family AF_IB. All fields are in host byte order.
#[doc(alias = "sockaddr_ib")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IbAddress {
    /// Partition key. The kernel looks for a device in this partition: 0xffff is the default one,
    /// and 0 is in none.
    pub pkey: u16,
    /// Traffic class and flow label, as `sin6_flowinfo` has them.
    pub flow_info: u32,
    /// GID of the port; all zeros is any port.
    pub gid: Gid,
    /// Service id. The services of a port space have its number in bits 16 to 31, and the port
    /// below.
    pub service_id: u64,
    /// The bits of the service id that count; an id may be bound to a range.
    pub service_id_mask: u64,
    /// Index of the interface of a link-local GID.
    pub scope_id: u64,
}

impl IbAddress {
    /// The address of a port of a port space, in the default partition. Port 0 is any port.
    pub fn for_port(port_space: PortSpace, port: u16, gid: Gid) -> Self {
        Self {
            pkey: 0xffff,
            flow_info: 0,
            gid,
            service_id: u64::from(port_space.to_kernel().0) << 16 | u64::from(port),
            service_id_mask: match port {
                0 => PORT_SPACE_MASK,
                _ => PORT_SPACE_MASK | PORT_MASK,
            },
            scope_id: 0,
        }
    }

    /// The port: the low 16 bits of the service id.
    pub fn port(&self) -> u16 {
        (self.service_id & PORT_MASK) as u16
    }
}

impl fmt::Display for IbAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {}, service {:#x}", self.gid, self.service_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_service_of_its_port_space() {
        let address = IbAddress::for_port(PortSpace::Tcp, 7471, Gid([1; 16]));
        assert_eq!(address.service_id, 0x0106_1d2f);
        assert_eq!(address.service_id_mask, u64::MAX);
        assert_eq!(Address::from(address).port(), 7471);
    }

    #[test]
    fn any_port_masks_the_port() {
        let address = IbAddress::for_port(PortSpace::Tcp, 0, Gid([0; 16]));
        assert_eq!(address.service_id_mask, 0xffff_ffff_ffff_0000);
    }

    #[test]
    fn is_shown_with_gid_and_service() {
        let mut gid = [0; 16];
        (gid[0], gid[1], gid[15]) = (0xfe, 0x80, 1);
        let address = IbAddress::for_port(PortSpace::Tcp, 7471, Gid(gid));
        assert_eq!(
            Address::from(address).to_string(),
            "GID fe80::1, service 0x1061d2f"
        );
    }
}
