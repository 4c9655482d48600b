//! Byte streams.

mod basics;
mod ends;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [basics::tests(), ends::tests()]
        .into_iter()
        .flatten()
        .collect()
}
