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
mod event;
mod explain;
mod ib_address;
mod ibacm;
mod id;
mod path_record;
mod port_space;
mod resolve;
mod transition;
mod wait;

#[cfg(test)]
mod tests;

pub use addrinfo::{AddrInfo, AddrInfoQuery, AddressFamily};
pub use channel::EventChannel;
pub use conn_param::ConnParam;
pub use event::{ConnectRequest, ConnectionData, Event, IdEvent, RejectReason, Status};
pub use ib_address::{Address, IbAddress};
pub use id::CmId;
pub use path_record::PathRecord;
pub use port_space::PortSpace;
pub use wait::Wake;
