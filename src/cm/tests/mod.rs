//! The connection manager on the scripted kernel.

mod faults;
mod pair;
mod teardown;
