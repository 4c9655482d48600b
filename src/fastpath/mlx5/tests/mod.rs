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
