//! Verbs: protection domains, memory regions, address handles, completion queues, queue pairs and
//! shared receive queues.
//!
//! Parents are held by their children, so any order of drops is a right one. Everything here can
//! be used without the connection manager.

mod access;
mod ah;
#[allow(unsafe_code)]
mod buffer;
#[allow(unsafe_code)]
mod comp_channel;
mod cq;
#[allow(unsafe_code)]
mod mr;
mod path;
mod pd;
mod qp;
mod qp_attr;
mod qp_modify;
mod qp_query;
mod qp_transition;
mod recv;
mod reply;
mod send;
mod srq;
mod xrcd;

#[cfg(test)]
mod tests;

pub use access::Access;
pub use ah::{AddressHandle, Destination};
pub use buffer::Buffer;
pub use comp_channel::CompletionChannel;
pub use cq::{Cq, CqBuilder};
pub use mr::{Mr, MrChange};
pub use path::Path;
pub use pd::Pd;
pub use qp::Qp;
pub use qp_attr::{QpAttr, QpCapabilities};
pub use qp_modify::{QpModify, QpState};
pub use qp_query::QpInfo;
pub use recv::RecvHalf;
pub use send::{AtomicBuilder, AtomicWriteBuilder, Batch, ReadBuilder, RequestBuilder, SendHalf};
pub use srq::{Srq, SrqAttr, SrqInfo};
pub use xrcd::Xrcd;
