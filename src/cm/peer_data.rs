//! What a peer says in its messages.

use rdmacm_kernel_abi::ucma;

use super::conn_param::Offer;
use crate::verbs::Path;

/// What the peer said in its part of the connection's making.
#[doc(alias = "rdma_conn_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionData {
    /// Private data, at least what the peer passed. On iWARP it is just that; on InfiniBand and RoCE
    /// it is padded with zeros to what the message holds
    /// ([`CmId::max_private_data`](super::CmId::max_private_data) of the peer's call). A protocol has
    /// to delimit its data itself, or not to end it with zeros: see [`ConnectionData::trimmed`].
    pub private_data: Vec<u8>,
    /// Number of the peer's queue pair. iWARP tells the two depths only: this and the other fields
    /// are 0 there.
    pub qp_num: u32,
    /// Whether the peer's queue pair has a shared receive queue.
    pub has_srq: bool,
    /// Reads and atomics of the peer that may be answered at a time, seen from this side.
    pub responder_resources: u8,
    /// Reads and atomics of this side that may be under way at a time.
    pub initiator_depth: u8,
    /// Whether the peer's hardware has flow control.
    pub flow_control: bool,
    /// Retries that the peer asks for.
    pub retry_count: u8,
    /// Retries that the peer grants this side's requests when it has no receive posted.
    pub rnr_retry_count: u8,
}

impl ConnectionData {
    pub(super) fn from_kernel(param: &ucma::ConnParam) -> Self {
        let length = usize::from(param.private_data_len);
        Self {
            private_data: param.private_data[..length].to_vec(),
            qp_num: param.qp_num,
            has_srq: param.srq != 0,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control != 0,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
        }
    }

    /// What a datagram message has of it: private data and the queue pair.
    fn from_datagram(param: &ucma::UdParam) -> Self {
        let length = usize::from(param.private_data_len);
        Self {
            private_data: param.private_data[..length].to_vec(),
            qp_num: param.qp_num,
            has_srq: false,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
        }
    }

    /// The private data without the zeros at its end: the padding, for peers whose data never end
    /// with a zero (texts, for example).
    pub fn trimmed(&self) -> &[u8] {
        let end = self.private_data.iter().rposition(|byte| *byte != 0);
        &self.private_data[..end.map_or(0, |last| last + 1)]
    }

    pub(super) fn offer(&self) -> Offer {
        Offer {
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
        }
    }
}

/// Where datagrams to a peer or to a multicast group go.
#[doc(alias = "rdma_ud_param")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramPeer {
    /// The way, for [`Pd::address_handle`](crate::Pd::address_handle).
    pub path: Path,
    /// Number of the queue pair there; 0xffffff is that of all members of a group.
    pub qp_num: u32,
    /// Key that its queue pair expects.
    #[doc(alias = "RDMA_UDP_QKEY")]
    pub qkey: u32,
}

impl DatagramPeer {
    fn from_kernel(param: &ucma::UdParam) -> Self {
        Self {
            path: Path::from_kernel(&param.ah_attr),
            qp_num: param.qp_num,
            qkey: param.qkey,
        }
    }
}

/// The two forms in which an event's record has it. The way to a peer or a group comes with the news
/// that there is one.
pub(super) fn of_event(
    raw: &ucma::EventResp,
    is_datagram: bool,
) -> (ConnectionData, Option<DatagramPeer>) {
    if !is_datagram {
        return (ConnectionData::from_kernel(raw.conn()), None);
    }
    let param = raw.ud();
    let tells_the_way = matches!(
        raw.event_type(),
        ucma::EventType::ESTABLISHED | ucma::EventType::MULTICAST_JOIN
    );
    let peer = tells_the_way.then(|| DatagramPeer::from_kernel(param));
    (ConnectionData::from_datagram(param), peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_data(bytes: &[u8], length: u8) -> ConnectionData {
        let mut param = ucma::ConnParam::default();
        param.private_data[..bytes.len()].copy_from_slice(bytes);
        param.private_data_len = length;
        ConnectionData::from_kernel(&param)
    }

    #[test]
    fn private_data_is_cut_to_its_length_and_never_beyond_the_record() {
        assert_eq!(with_data(b"abc", 3).private_data, b"abc");
        assert_eq!(with_data(b"abc", 255).private_data.len(), 255);
        let mut raw: ucma::EventResp = Default::default();
        raw.param.fill(u32::MAX);
        assert_eq!(of_event(&raw, true).0.private_data.len(), 255);
    }

    #[test]
    fn padding_can_be_taken_off() {
        assert_eq!(with_data(b"a\0b", 56).trimmed(), b"a\0b");
        assert_eq!(with_data(b"", 56).trimmed(), b"");
    }
}
