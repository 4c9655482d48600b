//! Everything that the library makes in the kernel goes again, in the right order, whatever ends
//! it.

mod answers;
mod kit;
pub mod order;
mod order_test;
pub mod race;
mod rejected;
pub mod shuffle;
pub mod stop_early;

use crate::harness::Test;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    [
        order_test::tests(),
        answers::tests(),
        rejected::tests(),
        stop_early::tests(),
        race::tests(),
        shuffle::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
