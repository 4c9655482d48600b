//! Shared receive queues.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::recv::post_list;
use super::{Cq, ListError, Pd, RecvRequest, Xrcd};
use crate::device::{Context, DriverPart, KernelObject, ObjectKind, SrqToken};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{
    PostError, Provider, QpType, RecvQueue, Segment, SrqResize, SrqSetup, SrqSize,
};
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
    /// Segments in a receive, as the kernel granted them.
    max_segments: u32,
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
        if !Provider::of(self.context())?.has_qp_type(QpType::XrcRecv) {
            let name = self.context().device().name();
            let text = format!("{name} has no extended reliable connections here");
            return Err(Error::new("create_srq", ErrorKind::NotSupported, text));
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
        let mut answer = Answer::new(SrqSetup::new(context, attr.size())?);
        pd.with_handle(operation, |pd| {
            create(context, pd, xrc, token, &mut answer)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        let mut parents = pd.parents();
        if let Some(Xrc { xrcd, cq }) = xrc {
            parents.extend([xrcd.object(), cq.object()].map(Arc::clone));
        }
        let kind = ObjectKind::SharedReceiveQueue;
        let object = KernelObject::new(kind, context, answer.handle, parents);
        let object = Arc::new(object.keeping(answer.driver.kept()));
        // Some drivers decide on the sizes themselves, the others say them in the answer.
        let queue = answer.driver.queue(context, answer.max_sge)?;
        Ok(Self {
            queue,
            object,
            token,
            number: xrc.map(|_| answer.number),
            max_segments: answer.max_sge,
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

    /// Posts receives one after the other, as `ibv_post_srq_recv` does with a list. One that cannot be
    /// posted ends it: those before it are posted, it and those after it are not.
    ///
    /// # Errors
    ///
    /// As for [`Srq::post`], with the index of the receive.
    #[doc(alias("ibv_post_srq_recv", "bad_wr"))]
    pub fn post_list<'r>(
        &mut self,
        receives: impl IntoIterator<Item = RecvRequest<'r>>,
    ) -> Result<(), ListError> {
        if self.object.context().is_inherited() {
            let source = PostError::Inherited;
            return Err(ListError { index: 0, source });
        }
        post_list(&mut self.queue, receives)
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
            let driver = DriverPart::Exchange {
                request: Provider::of(context)?.srq_change(),
                response: &mut [],
            };
            let []: [u8; 0] = context
                .command_with_driver(uverbs::Command::MODIFY_SRQ, &request, driver)
                .map_err(|error| Error::from_os(operation, &error))?;
            Ok(())
        })
    }

    /// Changes the queue's room to at least `max_wr` receives. Those that are posted stay in it, in
    /// their order, and messages may come meanwhile.
    ///
    /// # Errors
    ///
    /// A size of 0 or beyond the device's; fewer than are posted, or than the armed
    /// [limit](Self::arm_limit). [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) where the queues of the device keep
    /// their depth, as siw's. When the kernel has resized the queue and it cannot be mapped
    /// (`map_queue`, for want of memory), it takes no receives until `resize` succeeds once more;
    /// those that were posted are still used.
    ///
    /// rxe of Linux 6.1 destroys its queue when it has too little memory for the larger one.
    #[doc(alias("ibv_modify_srq", "IBV_SRQ_MAX_WR"))]
    pub fn resize(&mut self, max_wr: u32) -> Result<()> {
        let operation = "modify_srq";
        let context = self.context().clone();
        let mut driver = SrqResize::new(Provider::of(&context)?)?;
        check_size(operation, "max_wr", max_wr, context.attr()?.max_srq_wr())?;
        // Nobody else posts, so that there will not be more.
        let posted = self.queue.waiting();
        if max_wr < posted {
            let text = format!("max_wr is {max_wr}; the queue holds {posted} receives");
            return Err(Error::invalid(operation, text));
        }
        self.object.with_handle(operation, |srq_handle| {
            let request = uverbs::ModifySrq {
                srq_handle,
                attr_mask: uverbs::SrqAttrMask::MAX_WR.bits(),
                max_wr,
                srq_limit: 0,
            };
            let []: [u8; 0] = context
                .command_with_driver(uverbs::Command::MODIFY_SRQ, &request, driver.part())
                .map_err(|error| explain_resize(operation, max_wr, &error))?;
            Ok(())
        })?;
        // What would be posted into the old memory nobody would find.
        self.queue = RecvQueue::Unmapped(posted);
        self.queue = driver.queue(&context, self.max_segments)?;
        Ok(())
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

    pub(super) fn queue(&self) -> &RecvQueue {
        &self.queue
    }

    pub(super) fn object(&self) -> &Arc<KernelObject> {
        &self.object
    }
}

impl SrqAttr {
    fn size(&self) -> SrqSize {
        SrqSize {
            max_wr: self.max_wr,
            max_sge: self.max_sge,
        }
    }

    /// Refuses what the device would refuse without a reason.
    fn check(&self, context: &Context) -> Result<()> {
        let device = context.attr()?;
        let operation = "create_srq";
        check_size(operation, "max_wr", self.max_wr, device.max_srq_wr())?;
        check_size(operation, "max_sge", self.max_sge, device.max_srq_sge())
    }
}

fn check_size(operation: &'static str, name: &str, asked: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&asked) {
        return Ok(());
    }
    let text = format!("{name} is {asked}; the device allows 1 to {most}");
    Err(Error::invalid(operation, text))
}

fn explain_resize(operation: &'static str, max_wr: u32, error: &io::Error) -> Error {
    let described = Error::from_os(operation, error);
    match error.raw_os_error() {
        Some(libc::EINVAL) => described.because(format!(
            "the armed limit of the queue is more than {max_wr}"
        )),
        _ => described,
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
    xrc: Option<Xrc<'_>>,
    token: SrqToken,
    answer: &mut Answer,
) -> io::Result<()> {
    use ioctl::srq::create as id;
    let (user_handle, limit) = (token.to_kernel(), 0u32);
    let size = answer.driver.size();
    let (request, response) = answer.driver.parts();
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
        Attr::new(id::MAX_WR, Value::In(size.max_wr.as_bytes())),
        Attr::new(id::MAX_SGE, Value::In(size.max_sge.as_bytes())),
        Attr::new(id::LIMIT, Value::In(limit.as_bytes())),
        Attr::new(id::TYPE, Value::In(kind.as_bytes())),
        Attr::new(id::RESP_MAX_WR, Value::Out(answer.max_wr.as_mut_bytes())),
        Attr::new(id::RESP_MAX_SGE, Value::Out(answer.max_sge.as_mut_bytes())),
        Attr::new(ioctl::UHW_OUT, Value::Out(response)),
    ];
    if !request.is_empty() {
        attrs.push(Attr::new(ioctl::UHW_IN, Value::In(request)));
    }
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
