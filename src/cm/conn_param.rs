//! What the two sides of a connection agree on.

use rdmacm_kernel_abi::ucma;

use super::private_data::{self, Message};
use crate::device::Context;
use crate::error::{Error, Result};

/// The parameters of a connection, for [`CmId::connect`](super::CmId::connect) and
/// [`CmId::accept`](super::CmId::accept).
///
/// The defaults are the most the device can do, 7 retries, and no private data.
///
/// ```
/// use rdmacm::ConnParam;
///
/// let param = ConnParam::new().initiator_depth(4).private_data(b"version 1")?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[doc(alias = "rdma_conn_param")]
#[derive(Debug, Clone)]
pub struct ConnParam {
    private_data: Vec<u8>,
    responder_resources: Option<u8>,
    initiator_depth: Option<u8>,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    own_qp: Option<QpNumber>,
}

impl Default for ConnParam {
    fn default() -> Self {
        Self::new()
    }
}

impl ConnParam {
    /// Begins with the defaults.
    pub fn new() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: None,
            initiator_depth: None,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            own_qp: None,
        }
    }

    /// Bytes that the peer finds in its event. On InfiniBand and RoCE a connect carries up to 56
    /// bytes, an accept 196 and a reject 148 (datagrams: 180, 136 and 136); the peer sees that
    /// many, padded with zeros. On iWARP each carries up to 251 bytes, and the peer sees what was
    /// passed. [`CmId::max_private_data`](super::CmId::max_private_data) has the limit of an id.
    ///
    /// # Errors
    ///
    /// More than 255 bytes, which no device carries. The limit of the device at hand is checked
    /// by the call that sends them.
    pub fn private_data(mut self, bytes: &[u8]) -> Result<Self> {
        private_data::check_length("private_data", bytes, private_data::LONGEST)?;
        self.private_data = bytes.to_vec();
        Ok(self)
    }

    /// Reads and atomics of the peer that are answered at a time. 0 means none at all.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    pub fn responder_resources(mut self, operations: u8) -> Self {
        self.responder_resources = Some(operations);
        self
    }

    /// Reads and atomics of ours under way at a time. 0 means none at all.
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    pub fn initiator_depth(mut self, operations: u8) -> Self {
        self.initiator_depth = Some(operations);
        self
    }

    /// Whether the hardware's flow control is available.
    pub fn flow_control(mut self, available: bool) -> Self {
        self.flow_control = available;
        self
    }

    /// How often a request is repeated when the peer does not answer, 0 to 7.
    ///
    /// rxe repeats for ever at 7: a vanished peer then shows in the connection manager's events
    /// only.
    pub fn retry_count(mut self, retries: u8) -> Self {
        self.retry_count = retries;
        self
    }

    /// How often the peer repeats a request that finds no receive posted here, 0 to 7; 7 is for
    /// ever. How often this side does is the peer's to say.
    pub fn rnr_retry_count(mut self, retries: u8) -> Self {
        self.rnr_retry_count = retries;
        self
    }

    /// The queue pair, for an id that has none of its own: one that the program made with
    /// [`Pd::create_qp`](crate::Pd::create_qp) and moves itself. `has_srq` says whether it has a
    /// shared receive queue.
    ///
    /// The connection manager proposes what each state needs ([`CmId::init_qp_attr`]). The steps of
    /// the active side, once its route is resolved, and those of the passive side:
    ///
    /// ```no_run
    /// use rdmacm::{CmId, ConnParam, Event, EventChannel, Qp, QpState, Result};
    ///
    /// fn connect(channel: &EventChannel, id: &CmId, qp: &Qp) -> Result<()> {
    ///     qp.modify(&id.init_qp_attr(QpState::Init)?)?; // receives can be posted from here on
    ///     id.connect(&ConnParam::new().own_qp(qp.number(), false))?;
    ///     channel.expect("connect", None, |event| matches!(event, Event::ConnectResponse(_)))?;
    ///     qp.modify(&id.init_qp_attr(QpState::Rtr)?)?;
    ///     qp.modify(&id.init_qp_attr(QpState::Rts)?)?;
    ///     id.establish() // no event follows here
    /// }
    ///
    /// // `id` is that of the request, and `qp` is made on its device.
    /// fn accept(channel: &EventChannel, id: &CmId, qp: &Qp) -> Result<()> {
    ///     for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
    ///         qp.modify(&id.init_qp_attr(state)?)?;
    ///     }
    ///     id.accept(&ConnParam::new().own_qp(qp.number(), false))?;
    ///     channel.expect("accept", None, |event| matches!(event, Event::Established(_)))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// [`CmId::disconnect`] does not move such a queue pair, nor does any event; the program
    /// destroys it.
    ///
    /// [`CmId::init_qp_attr`]: super::CmId::init_qp_attr
    /// [`CmId::disconnect`]: super::CmId::disconnect
    #[doc(alias("qp_num", "srq"))]
    pub fn own_qp(mut self, number: u32, has_srq: bool) -> Self {
        self.own_qp = Some(QpNumber { number, has_srq });
        self
    }

    /// The same, with bytes before the private data that stand for addresses.
    pub(crate) fn after(&self, head: &[u8]) -> Result<Self> {
        self.clone()
            .private_data(&[head, &self.private_data].concat())
    }

    pub(super) fn named_qp(&self) -> Option<QpNumber> {
        self.own_qp
    }

    /// For an active side: fills in the device's limits.
    pub(super) fn for_connect(
        &self,
        context: &Context,
        message: Message,
        qp: QpNumber,
    ) -> Result<ucma::ConnParam> {
        let operation = "connect";
        let depths = self.depths(operation, context)?;
        self.encode(operation, message, qp, depths)
    }

    /// For a passive side: no more than the device's limits and what the peer offered.
    pub(super) fn for_accept(
        &self,
        context: &Context,
        message: Message,
        qp: QpNumber,
        offered: Offer,
    ) -> Result<ucma::ConnParam> {
        let operation = "accept";
        let own = self.depths(operation, context)?;
        let depths = Offer {
            responder_resources: own.responder_resources.min(offered.responder_resources),
            initiator_depth: own.initiator_depth.min(offered.initiator_depth),
        };
        self.encode(operation, message, qp, depths)
    }

    /// What was asked for, or else the most that the device can do.
    fn depths(&self, operation: &'static str, context: &Context) -> Result<Offer> {
        let device = context.attr()?;
        let depth = |name, asked, limit| within(operation, name, asked, limit);
        Ok(Offer {
            responder_resources: depth(
                "responder_resources",
                self.responder_resources,
                device.max_responder_resources(),
            )?,
            initiator_depth: depth(
                "initiator_depth",
                self.initiator_depth,
                device.max_initiator_depth(),
            )?,
        })
    }

    fn encode(
        &self,
        operation: &'static str,
        message: Message,
        qp: QpNumber,
        depths: Offer,
    ) -> Result<ucma::ConnParam> {
        message.check(operation, &self.private_data)?;
        for (name, count) in [
            ("retry_count", self.retry_count),
            ("rnr_retry_count", self.rnr_retry_count),
        ] {
            within(operation, name, Some(count), 7)?;
        }
        let mut param = ucma::ConnParam {
            qp_num: qp.number,
            srq: u8::from(qp.has_srq),
            private_data_len: self.private_data.len() as u8,
            responder_resources: depths.responder_resources,
            initiator_depth: depths.initiator_depth,
            flow_control: u8::from(self.flow_control),
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            valid: 1,
            ..Default::default()
        };
        param.private_data[..self.private_data.len()].copy_from_slice(&self.private_data);
        Ok(param)
    }
}

/// The queue pair that a message tells the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QpNumber {
    pub number: u32,
    pub has_srq: bool,
}

/// How many reads and atomics a side answers and begins at a time, or offers to, seen from our
/// side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub responder_resources: u8,
    pub initiator_depth: u8,
}

fn within(operation: &'static str, name: &str, asked: Option<u8>, limit: u8) -> Result<u8> {
    match asked {
        None => Ok(limit),
        Some(asked) if asked <= limit => Ok(asked),
        Some(asked) => Err(Error::invalid(
            operation,
            format!("{name} is {asked}; the most is {limit}"),
        )),
    }
}
