//! What a queue pair is made of.

use rdmacm_kernel_abi::uverbs::ioctl::QpCap;

use super::{Cq, Pd, Srq, Xrcd};
use crate::device::{Context, DeviceAttr};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Provider, QpFlags, QpType, QpWish};

/// How a queue pair is to be made: its type, its protection domain, its completion queues and its
/// size.
///
/// The defaults are the type RC (with an id, the id's type), the protection domain that makes it
/// (with an id, the device's shared one), 16 sends and 16 receives of one segment each, nothing
/// inline, and a completion only for requests that ask for one.
#[doc(alias("ibv_qp_init_attr", "ibv_qp_init_attr_ex"))]
#[derive(Debug, Clone)]
pub struct QpAttr<'a> {
    pd: Option<&'a Pd>,
    qp_type: Option<QpType>,
    pub(super) srq: Option<&'a Srq>,
    pub(super) xrcd: Option<&'a Xrcd>,
    pub(super) send_cq: Option<&'a Cq>,
    pub(super) recv_cq: Option<&'a Cq>,
    pub(super) cap: QpCapabilities,
    pub(super) signal_all: bool,
    pub(super) flags: QpFlags,
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

impl Default for QpAttr<'_> {
    fn default() -> Self {
        let cap = QpCapabilities {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        Self {
            pd: None,
            qp_type: None,
            srq: None,
            xrcd: None,
            send_cq: None,
            recv_cq: None,
            cap,
            signal_all: false,
            flags: QpFlags::empty(),
        }
    }
}

impl<'a> QpAttr<'a> {
    /// Begins with the defaults, in a protection domain.
    pub fn new(pd: &'a Pd) -> Self {
        Self {
            pd: Some(pd),
            ..Self::default()
        }
    }

    /// The transport service.
    pub fn qp_type(mut self, qp_type: QpType) -> Self {
        self.qp_type = Some(qp_type);
        self
    }

    /// Takes receives from a shared receive queue. `max_recv_wr` and `max_recv_sge` are then not
    /// used.
    pub fn srq(mut self, srq: &'a Srq) -> Self {
        self.srq = Some(srq);
        self
    }

    /// The XRC domain of a queue pair of type [`QpType::XrcRecv`]; it belongs to that instead of
    /// the protection domain.
    pub fn xrcd(mut self, xrcd: &'a Xrcd) -> Self {
        self.xrcd = Some(xrcd);
        self
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

    /// Send requests that can be outstanding. With 0 nothing can be sent, and no completion queue is
    /// needed for that; peers may read and write all the same. siw needs at least 1.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Receives that can be outstanding. With 0 no message can be received, and no completion queue
    /// is needed for that.
    pub fn max_recv_wr(mut self, receives: u32) -> Self {
        self.cap.max_recv_wr = receives;
        self
    }

    /// Segments in a send request, from 1 to [`DeviceAttr::max_sge`](crate::DeviceAttr::max_sge).
    pub fn max_send_sge(mut self, segments: u32) -> Self {
        self.cap.max_send_sge = segments;
        self
    }

    /// Segments in a receive, from 1 to [`DeviceAttr::max_sge`](crate::DeviceAttr::max_sge).
    pub fn max_recv_sge(mut self, segments: u32) -> Self {
        self.cap.max_recv_sge = segments;
        self
    }

    /// Bytes that a send request can carry inline: up to 512 on rxe, up to 80 on siw.
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

    /// What is special about it. What the driver does not have is refused: rxe and siw have none of
    /// the flags.
    #[doc(alias = "create_flags")]
    pub fn flags(mut self, flags: QpFlags) -> Self {
        self.flags = flags;
        self
    }

    pub(crate) fn pd(&self) -> Option<&'a Pd> {
        self.pd
    }

    pub(crate) fn has_send_cq(&self) -> bool {
        self.send_cq.is_some()
    }

    pub(crate) fn has_recv_cq(&self) -> bool {
        self.recv_cq.is_some()
    }

    /// The shared receive queue that was named, or else `default`.
    pub(crate) fn srq_or(&self, default: Option<&'a Srq>) -> Option<&'a Srq> {
        self.srq.or(default)
    }

    /// The sizes that were asked for.
    pub(crate) fn capabilities(&self) -> &QpCapabilities {
        &self.cap
    }

    /// The type that was asked for, or `default`.
    pub(crate) fn qp_type_or(&self, default: QpType) -> QpType {
        self.qp_type.unwrap_or(default)
    }

    /// Whether there is to be a queue for requests.
    pub(crate) fn has_send_queue(&self, qp_type: QpType) -> bool {
        qp_type.has_send_queue() && self.cap.max_send_wr > 0
    }

    /// Whether there is to be a queue for receives that is not shared.
    pub(crate) fn has_own_receive_queue(&self, qp_type: QpType) -> bool {
        qp_type.has_receive_queue() && self.srq.is_none() && self.cap.max_recv_wr > 0
    }

    /// Where the completions of sends go. The kernel wants to know of one also where nothing can be
    /// sent; any does.
    pub(super) fn completions_of_sends(&self, qp_type: QpType) -> Option<&'a Cq> {
        if !qp_type.has_send_queue() {
            return None;
        }
        match self.has_send_queue(qp_type) {
            true => self.send_cq,
            false => self.send_cq.or(self.recv_cq),
        }
    }

    /// As [`QpAttr::completions_of_sends`].
    pub(super) fn completions_of_receives(&self, qp_type: QpType) -> Option<&'a Cq> {
        if !qp_type.has_receive_queue() {
            return None;
        }
        match self.has_own_receive_queue(qp_type) || self.srq.is_some() {
            true => self.recv_cq,
            false => self.recv_cq.or(self.send_cq),
        }
    }

    /// The sizes without those of queues that the queue pair does not have, for which some devices
    /// take nothing but 0.
    pub(super) fn sizes(&self, qp_type: QpType) -> QpCapabilities {
        let mut cap = self.cap;
        if !self.has_send_queue(qp_type) {
            (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
        }
        if !self.has_own_receive_queue(qp_type) {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        cap
    }

    /// What a driver that makes the queues itself has to know.
    pub(super) fn wish(&self, qp_type: QpType, context: &Context) -> Result<QpWish<'_>> {
        let sizes = match Provider::of(context)?.is_told_all_sizes() {
            true => self.sizes_within(context.attr()?),
            false => self.sizes(qp_type),
        };
        Ok(QpWish {
            qp_type,
            cap: QpCap {
                max_send_wr: sizes.max_send_wr,
                max_recv_wr: sizes.max_recv_wr,
                max_send_sge: sizes.max_send_sge,
                max_recv_sge: sizes.max_recv_sge,
                max_inline_data: sizes.max_inline_data,
            },
            send_cq: self.completions_of_sends(qp_type).map(|cq| cq.queue.any()),
            recv_cq: self
                .completions_of_receives(qp_type)
                .map(|cq| cq.queue.any()),
            srq: self.srq.map(Srq::queue),
            signal_all: self.signal_all,
        })
    }

    /// The sizes as they were asked for. The kernel takes no notice of those of a receive queue that
    /// is not made, but refuses one that is beyond the device's limit.
    fn sizes_within(&self, device: &DeviceAttr) -> QpCapabilities {
        let mut cap = self.cap;
        if self.srq.is_some() {
            cap.max_recv_wr = cap.max_recv_wr.min(device.max_qp_wr());
        }
        cap
    }

    /// Refuses what the device would refuse without a reason.
    pub(super) fn check(&self, qp_type: QpType, context: &Context) -> Result<()> {
        let provider = Provider::of(context)?;
        if !provider.has_qp_type(qp_type) {
            let driver = context.device().driver();
            return Err(Error::new(
                "create_qp",
                ErrorKind::NotSupported,
                format!("devices of the driver {driver} have no queue pairs of type {qp_type:?}"),
            ));
        }
        let lacking = self.flags.difference(provider.qp_flags());
        if !lacking.is_empty() {
            let name = context.device().name();
            let text = format!("{name} has no queue pairs with {lacking:?}");
            return Err(Error::new("create_qp", ErrorKind::NotSupported, text));
        }
        self.check_objects(qp_type, context)?;
        let device = context.attr()?;
        let within = |name: &str, asked: u32, least: u32, most: u32| {
            if (least..=most).contains(&asked) {
                return Ok(());
            }
            refuse(format!(
                "{name} is {asked}; the device allows {least} to {most}"
            ))
        };
        let (wr, sge) = (device.max_qp_wr(), device.max_sge());
        if qp_type.has_send_queue() {
            let least = provider.least_sends();
            within("max_send_wr", self.cap.max_send_wr, least, wr)?;
        }
        if self.has_send_queue(qp_type) {
            within("max_send_sge", self.cap.max_send_sge, 1, sge)?;
            let inline = provider.max_inline();
            within("max_inline_data", self.cap.max_inline_data, 0, inline)?;
        }
        if self.has_own_receive_queue(qp_type) {
            within("max_recv_wr", self.cap.max_recv_wr, 1, wr)?;
            let most = provider.most_receive_segments(sge);
            within("max_recv_sge", self.cap.max_recv_sge, 1, most)?;
        }
        Ok(())
    }

    /// Refuses objects that do not fit the type or each other.
    fn check_objects(&self, qp_type: QpType, own: &Context) -> Result<()> {
        if qp_type.has_send_queue() && self.completions_of_sends(qp_type).is_none() {
            return refuse("a queue pair needs a completion queue for sends (send_cq)");
        }
        if qp_type.has_receive_queue() && self.completions_of_receives(qp_type).is_none() {
            return refuse("a queue pair needs a completion queue for receives (recv_cq)");
        }
        if self.srq.is_some() && !qp_type.has_receive_queue() {
            return refuse(format!(
                "a queue pair of type {qp_type:?} takes no receives (srq)"
            ));
        }
        if self.srq.is_some_and(|srq| srq.number().is_some()) {
            return refuse("the shared receive queue is of an XRC domain, whose senders name it");
        }
        if self.xrcd.is_some() != (qp_type == QpType::XrcRecv) {
            return refuse(
                "a queue pair of type XrcRecv, and no other, needs an XRC domain (xrcd)",
            );
        }
        let foreign = |name: &str, context: &Context| match context.same_as(own) {
            true => Ok(()),
            false => refuse(format!(
                "the {name} is of {}, the protection domain of {}",
                context.device().name(),
                own.device().name()
            )),
        };
        for cq in [self.send_cq, self.recv_cq].into_iter().flatten() {
            foreign("completion queue", cq.context())?;
        }
        if let Some(srq) = self.srq {
            foreign("shared receive queue", srq.context())?;
        }
        self.xrcd
            .map_or(Ok(()), |xrcd| foreign("XRC domain", xrcd.context()))
    }
}

fn refuse(text: impl Into<std::borrow::Cow<'static, str>>) -> Result<()> {
    Err(Error::invalid("create_qp", text))
}
