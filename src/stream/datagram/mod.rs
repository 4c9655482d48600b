//! Datagrams, wire-compatible with the C library's rsockets of type `SOCK_DGRAM`.
//!
//! `socket.rs` has what programs see; `core.rs` how calls wait. `exchange.rs` decides over which way
//! a datagram goes and never waits; `peers.rs` is what it knows of others, `way.rs` how it finds them,
//! `interface.rs` the queue pair of a local address, `inbox.rs` what came and was not read yet,
//! `polled.rs` how tasks wait. `wire.rs` has the headers.

mod core;
mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod inbox;
mod interface;
mod peers;
#[cfg(feature = "tokio")]
mod polled;
mod socket;
mod way;
mod wire;

#[cfg(feature = "tokio")]
pub(crate) use self::core::Core;
pub use socket::RdmaDatagram;
