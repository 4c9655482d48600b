//! Byte streams, wire-compatible with the C library's rsockets.
//!
//! `stream.rs`, `listener.rs`, `lent.rs`, `registered.rs` and `mapped.rs` have what programs see;
//! `core.rs` how calls wait, `shared.rs` the phases of a connection, `link.rs` what a connected stream
//! posts and polls, `first_word.rs` what is done about a peer that stays silent, `protocol` what may be
//! said. `handshake.rs` makes connections, `backlog.rs` those of a listener, with the help of the
//! thread in `service.rs`. `polled.rs` is how tasks wait instead of threads. Datagrams are in `datagram`.

mod backlog;
mod core;
mod datagram;
mod ending;
mod first_word;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handshake;
#[allow(unsafe_code)]
mod lent;
mod link;
mod listener;
mod mapped;
mod options;
#[cfg(feature = "tokio")]
mod polled;
mod protocol;
mod queues;
mod registered;
mod released;
mod service;
mod settings;
mod shared;
#[allow(clippy::module_inception)]
mod stream;
mod turn;

#[cfg(feature = "tokio")]
pub(crate) use self::{backlog::Backlog, core::Core, datagram::Core as DatagramCore};
pub use datagram::RdmaDatagram;
pub use lent::Lent;
pub use listener::{Incoming as IncomingStreams, RdmaListener};
pub use mapped::MappedBuffer;
pub use settings::StreamSettings;
pub use stream::{RdmaStream, StreamReady};
