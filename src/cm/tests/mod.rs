//! The connection manager on the scripted kernel.

mod faults;
mod handshake;
mod hostile;
mod pair;
mod random;
mod teardown;
