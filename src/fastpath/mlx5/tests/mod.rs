//! What the C provider did, byte for byte, and what this one does in its place.
//!
//! The recordings (`tests/mlx5_vectors`) hold inputs and outputs. [`vectors`] reads them, [`fields`]
//! says of each field what it is, [`compare`] compares and counts. [`scenario`] replays work on
//! queues: those of a [`world`], to which [`post`] posts. [`flips`] shows that the comparison sees every
//! bit.

mod all;
mod compare;
mod create;
mod fields;
mod flips;
mod post;
mod scenario;
mod vectors;
mod world;

use super::grant::{STAND_IN, Settings};

/// How the device was used in the recordings of a configuration.
fn settings_of(config: &str) -> Settings {
    let defaults = Settings::default();
    Settings {
        no_blue_flame: config == "shut_up_bf",
        prefers_blue_flame: config != "no_prefer_bf",
        scatters_to_completions: config != "no_scatter",
        completion_bytes: match config {
            "cqe128" => 128,
            _ => defaults.completion_bytes,
        },
    }
}

/// Has devices that this thread opens used as in the recordings of a configuration.
pub(crate) fn use_as_in(config: &str) {
    STAND_IN.set(Some(settings_of(config)));
}
