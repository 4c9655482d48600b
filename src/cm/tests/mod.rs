//! The connection manager on the scripted kernel.

mod closing;
mod datagrams;
mod ending;
mod faults;
// Miri has no fork.
#[cfg(not(miri))]
mod fork;
mod groups;
mod handshake;
mod hostile;
mod lookups;
mod options;
mod own_qp;
mod pair;
mod random;
mod requests;
mod teardown;
mod threads;
mod xrc;
