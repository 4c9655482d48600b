//! Our example programs and the C library's programs of the same names, each as server and as client of the other.

mod connected;
mod datagrams;
pub mod matrix;
mod pingpong;
mod rping;
mod streams;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        rping::tests(),
        connected::tests(),
        datagrams::tests(),
        pingpong::tests(),
        streams::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
