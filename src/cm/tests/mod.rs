//! The connection manager on the scripted kernel.

mod closing;
mod faults;
// Miri has no fork.
#[cfg(not(miri))]
mod fork;
mod handshake;
mod hostile;
mod pair;
mod random;
mod requests;
mod teardown;
