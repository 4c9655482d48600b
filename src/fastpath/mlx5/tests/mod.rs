//! What the C provider did, byte for byte, and what this one does in its place.
//!
//! The recordings (`tests/mlx5_vectors`) hold inputs and outputs. [`vectors`] reads them, [`fields`]
//! says of each field what it is, [`compare`] compares and counts. [`scenario`] replays work on
//! queues, those of a [`world`]: [`posting`] what is posted, with the requests of [`post`] and the
//! registers of [`stores`], [`polling`] what completes. [`create`] replays how queues are made. [`all`]
//! does it for a folder, and [`flips`] shows that the comparison sees every bit. [`model`] has no
//! recordings: any work on small queues must be as a model has it; nor have [`doorbell_pages`] and
//! [`answers`].

mod all;
mod answers;
mod compare;
mod create;
mod doorbell_pages;
mod fields;
mod flips;
mod model;
mod polling;
mod post;
mod posting;
mod scenario;
mod stores;
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
