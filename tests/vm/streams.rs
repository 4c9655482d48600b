//! Byte streams.

pub mod basics;
mod crowds;
mod datagram;
mod descriptors;
mod ends;
mod forked;
mod hand_made;
pub mod killed;
mod mapped;
pub mod queue_pairs;
mod routes;
mod zero_copy;

pub use datagram::fork_with_datagrams;
pub use forked::fork_with_streams;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        basics::tests(),
        ends::tests(),
        forked::tests(),
        descriptors::tests(),
        killed::tests(),
        mapped::tests(),
        queue_pairs::tests(),
        routes::tests(),
        zero_copy::tests(),
        crowds::tests(),
        datagram::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
