//! Field reports that no other test covers. `tests/field-reports.md` has the table of all.

mod addresses;
mod concurrency;
mod durations;
mod events;
mod lifetime;
pub mod processes;
mod synchronous;

use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        lifetime::tests(),
        events::tests(),
        concurrency::tests(),
        addresses::tests(),
        processes::tests(),
        synchronous::tests(),
        durations::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
