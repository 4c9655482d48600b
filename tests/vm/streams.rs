//! Byte streams.

mod basics;
mod ends;
pub mod killed;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [basics::tests(), ends::tests(), killed::tests()]
        .into_iter()
        .flatten()
        .collect()
}
