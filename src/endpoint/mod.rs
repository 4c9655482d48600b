//! The short way: connect, or listen and accept, in one call each.
//!
//! A [`Connection`] has a queue pair, a completion queue and an event channel of its own. Its calls
//! wait, watch the connection manager meanwhile, and end when the peer goes away. A [`SyncId`] goes
//! the same way step by step, as programs of the C library do, and has a completion queue for each
//! direction.

mod connection;
mod connector;
mod ending;
mod lateness;
mod listener;
#[cfg(feature = "tokio")]
mod polled;
mod prepared;
mod settings;
mod sync_addrinfo;
mod sync_id;
mod sync_queues;

#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use connector::Connector;
pub use listener::{Incoming, Listener};
#[cfg(feature = "tokio")]
pub(crate) use polled::Awaited;
pub use prepared::Prepared;
pub use settings::Settings;
pub use sync_id::SyncId;
pub use sync_queues::Queues;
