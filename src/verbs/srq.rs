//! Shared receive queues.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::{Cq, Pd, Xrcd};
use crate::device::{Context, DriverPart, KernelObject, ObjectKind, SrqToken};
use crate::error::{Error, Result};
use crate::fastpath::{PostError, Provider, RecvQueue, Segment, SrqSetup};
use crate::sys::{Attr, Value};

/// A shared receive queue: queue pairs made with it ([`QpAttr::srq`](crate::QpAttr::srq)) take
/// their receives from here, in the order in which messages arrive.
///
/// There is one poster: posting takes `&mut self` and no lock. The kernel's queue lives as long as
/// this handle or a queue pair that uses it.
#[doc(alias = "ibv_srq")]
#[derive(Debug)]
pub struct Srq {
    queue: RecvQueue,
    object: Arc<KernelObject>,
    token: SrqToken,
    number: Option<u32>,
}

/// How large a shared receive queue is to be.
#[doc(alias("ibv_srq_init_attr", "ibv_srq_init_attr_ex"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqAttr {
    /// Receives that can be outstanding.
    pub max_wr: u32,
    /// Segments in a receive.
    pub max_sge: u32,
}

/// What a shared receive queue says of itself.
#[doc(alias = "ibv_srq_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqInfo {
    /// Receives that can be outstanding, as the device counts them.
    pub max_wr: u32,
    /// Segments in a receive.
    pub max_sge: u32,
    /// The armed limit, see [`Srq::arm_limit`]; 0 when none is armed.
    pub limit: u32,
}

impl Default for SrqAttr {
    /// 16 receives of one segment.
    fn default() -> Self {
        Self {
            max_wr: 16,
            max_sge: 1,
        }
    }
}

impl Pd {
    /// Makes a shared receive queue.
    ///
    /// ```no_run
    /// # use rdmacm::{Buffer, Cq, Pd, Result};
    /// # fn example(pd: &Pd, cq: &Cq, inbox: &Buffer) -> Result<()> {
    /// use rdmacm::{QpAttr, SrqAttr};
    ///
    /// let mut srq = pd.create_srq(&SrqAttr { max_wr: 64, max_sge: 1 })?;
    /// let attr = QpAttr::new(pd).send_cq(cq).recv_cq(cq).srq(&srq);
    /// let (one, other) = (pd.create_qp(&attr)?, pd.create_qp(&attr)?);
    /// srq.post(1, &[inbox.slice(..)?])?; // for whichever message is first
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Sizes of 0 and beyond the device's.
    #[doc(alias("ibv_create_srq", "rdma_create_srq", "rdma_create_srq_ex"))]
    pub fn create_srq(&self, attr: &SrqAttr) -> Result<Srq> {
        Srq::create(self, attr, None)
    }

    /// Makes a shared receive queue for the queue pairs of an XRC domain. Peers name it by its
    /// [number](Srq::number); what it receives is reported to `cq`.
    ///
    /// # Errors
    ///
    /// As [`Pd::create_srq`]; objects of another device; a device without XRC, as rxe is.
    #[doc(alias("ibv_create_srq_ex", "rdma_create_srq_ex"))]
    pub fn create_xrc_srq(&self, attr: &SrqAttr, xrcd: &Xrcd, cq: &Cq) -> Result<Srq> {
        for (name, context) in [
            ("XRC domain", xrcd.context()),
            ("completion queue", cq.context()),
        ] {
            if !context.same_as(self.context()) {
                let text = format!("the {name} is of {}", context.device().name());
                return Err(Error::invalid("create_srq", text));
            }
        }
        Srq::create(self, attr, Some(Xrc { xrcd, cq }))
    }
}

/// What a queue of an XRC domain has besides.
#[derive(Clone, Copy)]
struct Xrc<'a> {
    xrcd: &'a Xrcd,
    cq: &'a Cq,
}

impl Srq {
    fn create(pd: &Pd, attr: &SrqAttr, xrc: Option<Xrc<'_>>) -> Result<Self> {
        let operation = "create_srq";
        let context = pd.context();
        attr.check(context)?;
        let token = SrqToken::new();
        let mut answer = Answer::new(SrqSetup::new(Provider::of(context)?));
        pd.with_handle(operation, |pd| {
            create(context, pd, attr, xrc, token, &mut answer)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        let mut parents = pd.parents();
        if let Some(Xrc { xrcd, cq }) = xrc {
            parents.extend([xrcd.object(), cq.object()].map(Arc::clone));
        }
        let kind = ObjectKind::SharedReceiveQueue;
        let object = Arc::new(KernelObject::new(kind, context, answer.handle, parents));
        let queue = answer.driver.queue(context, answer.max_sge)?;
        Ok(Self {
            queue,
            object,
            token,
            number: xrc.map(|_| answer.number),
        })
    }

    /// Posts a receive: the next message of any of the queue pairs is placed into the segments,
    /// one after the other. Does not enter the kernel. `wr_id` comes back in the completion, which
    /// names the queue pair. A datagram comes with [`GRH_LENGTH`](crate::GRH_LENGTH) bytes in front
    /// of it.
    ///
    /// # Errors
    ///
    /// A full queue and more segments than the queue was made for; the queue stays as it was.
    #[doc(alias("ibv_post_srq_recv", "rdma_post_recv", "rdma_post_recvv"))]
    #[inline(always)]
    pub fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if self.object.context().is_inherited() {
            return Err(PostError::Inherited);
        }
        self.queue.post(wr_id, segments)
    }

    /// How many receives can be outstanding.
    pub fn depth(&self) -> u32 {
        self.queue.depth()
    }

    /// What asynchronous events of this queue say ([`AsyncEvent`](crate::AsyncEvent)).
    pub fn token(&self) -> SrqToken {
        self.token
    }

    /// The number by which peers name a queue of an XRC domain; others have none.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// The device of the queue.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Asks the device for the attributes of the queue.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqInfo> {
        let operation = "query_srq";
        let response: uverbs::QuerySrqResp = self.object.with_handle(operation, |srq_handle| {
            let request = uverbs::QuerySrq {
                srq_handle,
                ..Default::default()
            };
            self.context()
                .command(uverbs::Command::QUERY_SRQ, &request)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        Ok(SrqInfo {
            max_wr: response.max_wr,
            max_sge: response.max_sge,
            limit: response.srq_limit,
        })
    }

    /// Asks for one asynchronous event,
    /// [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached), when fewer than
    /// `receives` receives are left. 0 asks for none. Has to be called again after each event.
    ///
    /// # Errors
    ///
    /// When the limit is more than the queue holds.
    #[doc(alias = "ibv_modify_srq")]
    pub fn arm_limit(&self, receives: u32) -> Result<()> {
        let operation = "modify_srq";
        if receives > self.depth() {
            let text = format!(
                "a limit of {receives}, but the queue holds {}",
                self.depth()
            );
            return Err(Error::invalid(operation, text));
        }
        self.object.with_handle(operation, |srq_handle| {
            let request = uverbs::ModifySrq {
                srq_handle,
                attr_mask: uverbs::SrqAttrMask::LIMIT.bits(),
                max_wr: 0,
                srq_limit: receives,
            };
            let context = self.context();
            let driver = DriverPart {
                request: Provider::of(context)?.srq_change(),
                response: &mut [],
            };
            let []: [u8; 0] = context
                .command_with_driver(uverbs::Command::MODIFY_SRQ, &request, driver)
                .map_err(|error| Error::from_os(operation, &error))?;
            Ok(())
        })
    }

    /// Destroys the queue now.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a queue pair uses it; it is then destroyed after the last of them.
    #[doc(alias("ibv_destroy_srq", "rdma_destroy_srq"))]
    pub fn destroy(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    pub(super) fn object(&self) -> &Arc<KernelObject> {
        &self.object
    }
}

impl SrqAttr {
    /// Refuses what the device would refuse without a reason.
    fn check(&self, context: &Context) -> Result<()> {
        let device = context.attr()?;
        for (name, asked, most) in [
            ("max_wr", self.max_wr, device.max_srq_wr()),
            ("max_sge", self.max_sge, device.max_srq_sge()),
        ] {
            if asked == 0 || asked > most {
                return Err(Error::invalid(
                    "create_srq",
                    format!("{name} is {asked}; the device allows 1 to {most}"),
                ));
            }
        }
        Ok(())
    }
}

/// What the kernel says of a new shared receive queue.
struct Answer {
    handle: u32,
    max_wr: u32,
    max_sge: u32,
    number: u32,
    driver: SrqSetup,
}

impl Answer {
    fn new(driver: SrqSetup) -> Self {
        Self {
            handle: 0,
            max_wr: 0,
            max_sge: 0,
            number: 0,
            driver,
        }
    }
}

fn create(
    context: &Context,
    pd: u32,
    attr: &SrqAttr,
    xrc: Option<Xrc<'_>>,
    token: SrqToken,
    answer: &mut Answer,
) -> io::Result<()> {
    use ioctl::srq::create as id;
    let (user_handle, limit) = (token.to_kernel(), 0u32);
    let events = context.event_file();
    let kind = match xrc {
        Some(_) => uverbs::SrqType::XRC,
        None => uverbs::SrqType::BASIC,
    };
    let kind = u64::from(kind.0);
    let mut attrs = vec![
        Attr::new(id::HANDLE, Value::NewHandle(&mut answer.handle)),
        Attr::new(id::PD_HANDLE, Value::Handle(pd)),
        Attr::new(id::USER_HANDLE, Value::In(user_handle.as_bytes())),
        Attr::new(id::MAX_WR, Value::In(attr.max_wr.as_bytes())),
        Attr::new(id::MAX_SGE, Value::In(attr.max_sge.as_bytes())),
        Attr::new(id::LIMIT, Value::In(limit.as_bytes())),
        Attr::new(id::TYPE, Value::In(kind.as_bytes())),
        Attr::new(id::RESP_MAX_WR, Value::Out(answer.max_wr.as_mut_bytes())),
        Attr::new(id::RESP_MAX_SGE, Value::Out(answer.max_sge.as_mut_bytes())),
        Attr::new(ioctl::UHW_OUT, Value::Out(answer.driver.answer())),
    ];
    if let Some(Xrc { xrcd, cq }) = xrc {
        attrs.extend([
            Attr::new(id::XRCD_HANDLE, Value::Handle(xrcd.object().handle())),
            Attr::new(id::CQ_HANDLE, Value::Handle(cq.object().handle())),
            Attr::new(id::RESP_SRQ_NUM, Value::Out(answer.number.as_mut_bytes())),
        ]);
    }
    if let Some(events) = &events {
        attrs.push(Attr::new(id::EVENT_FD, Value::Fd(events.as_fd())));
    }
    context.method(ioctl::object::SRQ, ioctl::srq::CREATE, &mut attrs)
}
