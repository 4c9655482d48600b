//! Verbs: protection domains, memory regions, completion queues and queue pairs.
//!
//! Parents are held by their children, so any order of drops is a right one. Everything here can
//! be used without the connection manager.

#[allow(unsafe_code)]
mod buffer;
#[allow(unsafe_code)]
mod comp_channel;
mod cq;
#[allow(unsafe_code)]
mod mr;
mod pd;
mod qp;
mod qp_attr;
mod qp_modify;
mod recv;
mod send;

#[cfg(test)]
mod tests;

pub use buffer::Buffer;
pub use comp_channel::CompletionChannel;
pub use cq::{Cq, CqBuilder, CqToken};
pub use mr::{Access, Mr};
pub use pd::Pd;
pub use qp::Qp;
pub use qp_attr::{QpAttr, QpCapabilities};
pub use qp_modify::{Path, QpModify, QpState};
pub use recv::RecvHalf;
pub use send::{Batch, ReadBuilder, RequestBuilder, SendHalf};
