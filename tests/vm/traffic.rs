//! Connections and what goes over them, on one machine with itself.

pub mod addresses;
pub mod completions;
pub mod crowds;
pub mod device;
pub mod endpoint;
pub mod events;
pub mod failures;
pub mod first_use;
pub mod interface;
pub mod messages;
pub mod queues;
pub mod states;
pub mod threads;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        messages::tests(),
        queues::tests(),
        completions::tests(),
        failures::tests(),
        threads::tests(),
        crowds::tests(),
        first_use::tests(),
        endpoint::tests(),
        events::tests(),
        addresses::tests(),
        states::tests(),
        device::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
