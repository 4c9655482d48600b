//! What a queue pair is made of.

use super::{Cq, Pd};
use crate::device::DeviceAttr;
use crate::error::{Error, Result};
use crate::fastpath::rxe::MAX_INLINE;

/// How a queue pair is to be made: its protection domain, its completion queues and its size.
///
/// The defaults are 16 sends and 16 receives of one segment each, nothing inline, and a completion
/// only for requests that ask for one.
#[doc(alias("ibv_qp_init_attr", "ibv_qp_init_attr_ex"))]
#[derive(Debug, Clone)]
pub struct QpAttr<'a> {
    pub(super) pd: &'a Pd,
    pub(super) send_cq: Option<&'a Cq>,
    pub(super) recv_cq: Option<&'a Cq>,
    pub(super) cap: QpCapabilities,
    pub(super) signal_all: bool,
}

/// The size of a queue pair.
#[doc(alias = "ibv_qp_cap")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCapabilities {
    /// Send requests that can be outstanding.
    pub max_send_wr: u32,
    /// Receives that can be outstanding.
    pub max_recv_wr: u32,
    /// Segments in a send request.
    pub max_send_sge: u32,
    /// Segments in a receive.
    pub max_recv_sge: u32,
    /// Bytes that a send request can carry inline.
    pub max_inline_data: u32,
}

impl<'a> QpAttr<'a> {
    /// Begins with the defaults.
    pub fn new(pd: &'a Pd) -> Self {
        let cap = QpCapabilities {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        Self {
            pd,
            send_cq: None,
            recv_cq: None,
            cap,
            signal_all: false,
        }
    }

    /// Where the completions of sends go.
    pub fn send_cq(mut self, cq: &'a Cq) -> Self {
        self.send_cq = Some(cq);
        self
    }

    /// Where the completions of receives go. May be the same queue.
    pub fn recv_cq(mut self, cq: &'a Cq) -> Self {
        self.recv_cq = Some(cq);
        self
    }

    /// Send requests that can be outstanding.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Receives that can be outstanding.
    pub fn max_recv_wr(mut self, receives: u32) -> Self {
        self.cap.max_recv_wr = receives;
        self
    }

    /// Segments in a send request.
    pub fn max_send_sge(mut self, segments: u32) -> Self {
        self.cap.max_send_sge = segments;
        self
    }

    /// Segments in a receive.
    pub fn max_recv_sge(mut self, segments: u32) -> Self {
        self.cap.max_recv_sge = segments;
        self
    }

    /// Bytes that a send request can carry inline.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Gives a completion for every send request, asked for or not.
    #[doc(alias = "sq_sig_all")]
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    pub(crate) fn pd(&self) -> &'a Pd {
        self.pd
    }

    /// Refuses what the device would refuse without a reason.
    pub(super) fn check(&self, device: &DeviceAttr) -> Result<()> {
        let within = |name: &str, asked: u32, least: u32, most: u32| {
            if (least..=most).contains(&asked) {
                return Ok(());
            }
            Err(Error::invalid(
                "create_qp",
                format!("{name} is {asked}; the device allows {least} to {most}"),
            ))
        };
        let (wr, sge) = (device.max_qp_wr(), device.max_sge());
        within("max_send_wr", self.cap.max_send_wr, 1, wr)?;
        within("max_recv_wr", self.cap.max_recv_wr, 1, wr)?;
        within("max_send_sge", self.cap.max_send_sge, 1, sge)?;
        within("max_recv_sge", self.cap.max_recv_sge, 1, sge)?;
        within("max_inline_data", self.cap.max_inline_data, 0, MAX_INLINE)
    }
}
