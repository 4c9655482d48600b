//! Verbs: protection domains, memory regions and windows, address handles, completion queues, queue pairs and
//! shared receive queues.
//!
//! Parents are held by their children, so any order of drops is a right one. Everything here can
//! be used without the connection manager.

mod access;
mod ah;
mod batch;
#[allow(unsafe_code)]
mod buffer;
mod builder;
#[allow(unsafe_code)]
mod comp_channel;
mod completions;
mod cq;
mod cq_change;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[allow(unsafe_code)]
mod inbox;
#[allow(unsafe_code)]
mod mr;
mod mr_change;
mod mw;
mod path;
mod pd;
#[cfg(feature = "tokio")]
mod polled;
mod qp;
mod qp_attr;
mod qp_modify;
mod qp_query;
mod qp_transition;
mod recv;
#[allow(unsafe_code)]
mod registered;
mod reply;
mod request_list;
mod send;
mod srq;
mod xrcd;

#[cfg(test)]
mod tests;

pub use access::Access;
pub use ah::{AddressHandle, Destination};
pub use batch::Batch;
pub use buffer::Buffer;
pub use builder::{
    AtomicBuilder, AtomicWriteBuilder, BindBuilder, FlushBuilder, InvalidateBuilder, ReadBuilder,
    RequestBuilder,
};
pub use comp_channel::CompletionChannel;
pub use completions::Completions;
pub(crate) use cq::completion_room;
pub use cq::{Cq, CqBuilder};
pub(crate) use inbox::{Inbox, View};
pub use mr::Mr;
pub use mr_change::MrChange;
pub use mw::{Mw, MwType};
pub use path::Path;
pub use pd::Pd;
pub use qp::Qp;
pub use qp_attr::{QpAttr, QpCapabilities};
pub use qp_modify::{QpModify, QpState};
pub use qp_query::QpInfo;
pub use recv::RecvHalf;
pub(crate) use registered::Registered;
pub use registered::RegisteredBuffer;
pub use request_list::{Data, ListError, RecvRequest, SendRequest, Work};
pub use send::SendHalf;
pub use srq::{Srq, SrqAttr, SrqInfo};
pub use xrcd::Xrcd;
