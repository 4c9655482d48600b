//! What kinds of queue pairs there are.

use bitflags::bitflags;
use rdmacm_kernel_abi::uverbs;

use super::request::Operation;

/// The transport service of a queue pair: what can be posted to it, and what arrives.
#[doc(alias = "ibv_qp_type")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Reliable connection: sends, writes, reads and atomics between two queue pairs.
    #[doc(alias = "IBV_QPT_RC")]
    Rc,
    /// Unreliable connection: sends and writes that may be lost, no reads and atomics.
    #[doc(alias = "IBV_QPT_UC")]
    Uc,
    /// Unreliable datagrams: messages of one packet to any receiver, which may be lost.
    #[doc(alias = "IBV_QPT_UD")]
    Ud,
    /// The sending side of an extended reliable connection. It has no receive queue.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcSend,
    /// The receiving side of an extended reliable connection. It has no queue at all: messages go
    /// to the shared receive queues of its XRC domain.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcRecv,
}

bitflags! {
    /// What is special about a queue pair.
    #[doc(alias = "ibv_qp_create_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct QpFlags: u32 {
        /// It does not receive the multicasts that it sends itself.
        const BLOCK_SELF_MCAST_LB = uverbs::QpCreateFlags::BLOCK_MULTICAST_LOOPBACK.bits();
        /// It receives frames with their checksums.
        const SCATTER_FCS = uverbs::QpCreateFlags::SCATTER_FCS.bits();
        /// It receives frames without their VLAN tags.
        const CVLAN_STRIPPING = uverbs::QpCreateFlags::CVLAN_STRIPPING.bits();
        /// The ends of writes are padded to a cache line.
        const PCI_WRITE_END_PADDING = uverbs::QpCreateFlags::PCI_WRITE_END_PADDING.bits();
    }
}

impl QpType {
    /// The kernel's number.
    pub(crate) fn to_kernel(self) -> uverbs::QpType {
        match self {
            Self::Rc => uverbs::QpType::RC,
            Self::Uc => uverbs::QpType::UC,
            Self::Ud => uverbs::QpType::UD,
            Self::XrcSend => uverbs::QpType::XRC_INI,
            Self::XrcRecv => uverbs::QpType::XRC_TGT,
        }
    }

    /// Whether requests can be posted.
    pub(crate) fn has_send_queue(self) -> bool {
        self != Self::XrcRecv
    }

    /// Whether messages are received through it, be it into a shared queue.
    pub(crate) fn has_receive_queue(self) -> bool {
        !matches!(self, Self::XrcSend | Self::XrcRecv)
    }

    /// Whether a queue pair of this type carries out the operation. XRC requests name a shared
    /// receive queue of the peer, which no operation does yet.
    #[inline]
    pub(crate) fn can(self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Datagram(..) | Operation::DatagramImmediate(..) => self == Self::Ud,
            Operation::Read(_)
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite(_)
            | Operation::SendInvalidate(_)
            | Operation::LocalInvalidate(_)
            | Operation::Flush(_) => self == Self::Rc,
            Operation::Send
            | Operation::BindWindow(_)
            | Operation::SendImmediate(_)
            | Operation::Write(_)
            | Operation::WriteImmediate(..) => matches!(self, Self::Rc | Self::Uc),
        }
    }
}
