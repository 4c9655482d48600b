//! The connection manager: ids, event channels, and the way from an address to a connection.
//!
//! An [`EventChannel`] is an open connection manager file. A [`CmId`] made on it is resolved,
//! connected or listens; what comes of that is read from the channel as [`Event`]s. Some events
//! move the id's queue pair on their way (`transition`).

mod address;
mod addrinfo;
mod channel;
mod cma_header;
mod command;
mod conn_param;
mod connect;
mod ece;
mod event;
mod explain;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod ib_address;
mod ibacm;
mod id;
mod listen;
mod migrate;
mod multicast;
mod option;
mod path_record;
mod peer_data;
#[cfg(feature = "tokio")]
mod polled;
mod port_space;
mod private_data;
mod qp;
mod query;
mod resolve;
mod service;
mod status;
mod transition;
mod wait;

#[cfg(test)]
mod tests;

pub use addrinfo::{AddrInfo, AddrInfoQuery, AddressFamily};
pub use channel::EventChannel;
pub use conn_param::ConnParam;
pub use ece::Ece;
pub use event::{ConnectRequest, Event, IdEvent};
pub use ib_address::{Address, IbAddress};
pub use id::CmId;
pub use multicast::Membership;
pub use path_record::PathRecord;
pub use peer_data::{ConnectionData, DatagramPeer};
pub use port_space::PortSpace;
pub use private_data::Step;
pub use service::Service;
pub use status::{RejectReason, Status};
pub use wait::Wake;
