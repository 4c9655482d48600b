//! Byte streams.

mod basics;
mod datagram;
mod ends;

pub use datagram::fork_with_datagrams;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [basics::tests(), ends::tests(), datagram::tests()]
        .into_iter()
        .flatten()
        .collect()
}
