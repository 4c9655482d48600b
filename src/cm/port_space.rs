//! Port spaces.

use rdmacm_kernel_abi::ucma;

use crate::fastpath::QpType;

/// The port space of an id: which service numbers it uses and which kind of queue pair.
#[doc(alias = "rdma_port_space")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// Reliable connections, with ports as TCP has them (but apart from TCP's, except on iWARP).
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp,
    /// Datagrams, with ports of their own. A connect tells an address and a queue pair number;
    /// there is no connection, and no event when the peer goes away. Not on iWARP.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp,
    /// Datagrams to the multicast groups of IP over InfiniBand. On InfiniBand only.
    #[doc(alias = "RDMA_PS_IPOIB")]
    Ipoib,
    /// InfiniBand services, addressed by service id, with any kind of queue pair.
    #[doc(alias = "RDMA_PS_IB")]
    Ib,
}

impl PortSpace {
    pub(super) fn to_kernel(self) -> ucma::PortSpace {
        match self {
            Self::Tcp => ucma::PortSpace::TCP,
            Self::Udp => ucma::PortSpace::UDP,
            Self::Ipoib => ucma::PortSpace::IPOIB,
            Self::Ib => ucma::PortSpace::IB,
        }
    }

    /// The kind of queue pair that ids of the port space have unless told otherwise.
    pub(crate) fn qp_type(self) -> QpType {
        match self {
            Self::Tcp | Self::Ib => QpType::Rc,
            Self::Udp | Self::Ipoib => QpType::Ud,
        }
    }
}
