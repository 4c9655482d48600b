//! What a queue pair says of itself.

use rdmacm_kernel_abi::uverbs::{self, QpAttrMask};

use super::path::from_qp_dest;
use super::{Access, Path, Qp, QpCapabilities, QpState};
use crate::device::Mtu;
use crate::error::{Error, Result};
use crate::qp_table::QpEntry;

/// The attributes of a queue pair. Those that its type does not have, or that were not set yet,
/// have no meaning; they are 0 on most devices.
#[doc(alias("ibv_qp_attr", "ibv_qp_init_attr"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpInfo {
    /// The state.
    pub state: QpState,
    /// The sizes, as the device counts them.
    pub capabilities: QpCapabilities,
    /// What the peer may do to memory regions.
    pub access: Access,
    /// The port.
    pub port: u8,
    /// The partition, as an index of the port's P_Key table.
    pub pkey_index: u16,
    /// The queue key of a UD queue pair.
    pub qkey: u32,
    /// Number of the peer's queue pair.
    pub remote_qp_num: u32,
    /// The way to the peer.
    pub path: Path,
    /// Payload bytes of one packet.
    pub path_mtu: Mtu,
    /// Packet sequence number expected next.
    pub receive_psn: u32,
    /// Packet sequence number sent next.
    pub send_psn: u32,
    /// Reads and atomics of the peer answered at a time.
    pub responder_resources: u8,
    /// Reads and atomics under way at a time.
    pub initiator_depth: u8,
    /// How long a peer without a receive is told to wait, as a code.
    pub min_rnr_timer: u8,
    /// How long to wait for an answer: 4.096 µs · 2^timeout; 0 waits for ever.
    pub timeout: u8,
    /// How often to repeat without an answer.
    pub retry_count: u8,
    /// How often to repeat when the peer has no receive.
    pub rnr_retry_count: u8,
}

impl Qp {
    /// Asks the device for the attributes of the queue pair.
    ///
    /// # Errors
    ///
    /// When the queue pair was destroyed or the device is gone.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo> {
        query(self.entry()).map(|response| QpInfo::from_kernel(&response))
    }

    /// Asks the device for the state of the queue pair.
    ///
    /// # Errors
    ///
    /// As [`Qp::query`].
    pub fn query_state(&self) -> Result<QpState> {
        self.query().map(|info| info.state)
    }
}

fn query(entry: &QpEntry) -> Result<uverbs::QueryQpResp> {
    let operation = "query_qp";
    entry.with_handle(operation, |qp_handle| {
        let request = uverbs::QueryQp {
            qp_handle,
            attr_mask: (QpAttrMask::all() - QpAttrMask::RATE_LIMIT).bits(),
            ..Default::default()
        };
        entry
            .context()
            .command(uverbs::Command::QUERY_QP, &request)
            .map_err(|error| Error::from_os(operation, &error))
    })
}

impl QpInfo {
    fn from_kernel(response: &uverbs::QueryQpResp) -> Self {
        Self {
            state: QpState::from_kernel(response.qp_state),
            capabilities: QpCapabilities {
                max_send_wr: response.max_send_wr,
                max_recv_wr: response.max_recv_wr,
                max_send_sge: response.max_send_sge,
                max_recv_sge: response.max_recv_sge,
                max_inline_data: response.max_inline_data,
            },
            access: Access::from_bits_retain(response.qp_access_flags),
            port: response.port_num,
            pkey_index: response.pkey_index,
            qkey: response.qkey,
            remote_qp_num: response.dest_qp_num,
            path: Path::from_kernel(&from_qp_dest(&response.dest)),
            path_mtu: Mtu::from_code(response.path_mtu),
            receive_psn: response.rq_psn,
            send_psn: response.sq_psn,
            responder_resources: response.max_dest_rd_atomic,
            initiator_depth: response.max_rd_atomic,
            min_rnr_timer: response.min_rnr_timer,
            timeout: response.timeout,
            retry_count: response.retry_cnt,
            rnr_retry_count: response.rnr_retry,
        }
    }
}
