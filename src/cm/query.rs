//! What the kernel knows of an id.

use rdmacm_kernel_abi::ucma;

use super::command::{QueryGid, QueryPath};
use super::{Address, CmId, IbAddress, PathRecord, address};
use crate::error::{Error, ErrorKind, Result};

impl CmId {
    /// The local address as InfiniBand has it: GID, service id and partition. Ids with IP addresses
    /// have one too, once they have a device.
    ///
    /// # Errors
    ///
    /// An id without a device.
    #[doc(alias("rdma_ib_addr", "rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_ib_addr(&self) -> Result<IbAddress> {
        let answer = self.query_gids("local_ib_addr")?;
        decode("local_ib_addr", &answer.src_addr)
    }

    /// The peer's address as InfiniBand has it. See [`CmId::local_ib_addr`].
    ///
    /// # Errors
    ///
    /// An id without a device or a peer.
    #[doc(alias("rdma_ib_addr", "rdma_get_peer_addr", "rdma_get_dst_port"))]
    pub fn peer_ib_addr(&self) -> Result<IbAddress> {
        let answer = self.query_gids("peer_ib_addr")?;
        decode("peer_ib_addr", &answer.dst_addr)
    }

    fn query_gids(&self, operation: &'static str) -> Result<ucma::QueryAddrResp> {
        let state = self.state();
        state.binding(operation)?;
        state.call(operation, &QueryGid::of(self.handle()))
    }

    /// The paths of the id's route, the one in use first: none before the route is resolved, and on
    /// iWARP.
    ///
    /// # Errors
    ///
    /// An id without a device.
    #[doc(alias = "rdma_route")]
    pub fn paths(&self) -> Result<Vec<PathRecord>> {
        let operation = "paths";
        let state = self.state();
        state.binding(operation)?;
        let answer = state.call(operation, &QueryPath::of(self.handle()))?;
        let count = (answer.head.num_paths as usize).min(answer.records.len());
        Ok(answer.records[..count]
            .iter()
            .map(|record| PathRecord::from_kernel(*record))
            .collect())
    }
}

fn decode(
    operation: &'static str,
    address: &rdmacm_kernel_abi::sockaddr::SockaddrStorage,
) -> Result<IbAddress> {
    match address::decode(address) {
        Some(Address::Ib(address)) => Ok(address),
        _ => Err(Error::new(
            operation,
            ErrorKind::InvalidState,
            "the id has no such address yet",
        )),
    }
}
