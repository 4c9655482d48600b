//! What the connection manager tests of rdma-core prove of the C library, proven of this one.
//!
//! Sync traffic, async traffic with the ACK timeout read back, a rejection with private data,
//! multicast (plain, extended, leaving), a queue pair of the program's own, datagrams, RDMA read,
//! RDMA write, and lookups by id. Multicast has tests of its own, on one host (`multicast`) and
//! between two (`two_hosts`).

mod datagrams;
mod lookups;
mod options;
mod own_qp;
mod private_data;
mod sync;

use crate::harness::Test;

/// The tests of all modules.
pub fn tests() -> Vec<Test> {
    [
        sync::tests(),
        options::tests(),
        private_data::tests(),
        own_qp::tests(),
        datagrams::tests(),
        lookups::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
