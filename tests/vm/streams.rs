//! Byte streams.

pub mod basics;
mod crowds;
mod ends;
pub mod killed;
mod mapped;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        basics::tests(),
        ends::tests(),
        killed::tests(),
        mapped::tests(),
        crowds::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
