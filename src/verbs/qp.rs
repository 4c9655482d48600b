//! Queue pairs.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::{Cq, Pd, QpAttr, QpCapabilities, QpModify, QpState, RecvHalf, SendHalf, Srq, Xrcd};
use crate::device::{Context, Gid, KernelObject, ObjectKind, QpToken};
use crate::error::{Error, Result};
use crate::fastpath::{QpMade, QpQueues, QpSetup, QpType, RecvQueue, SendQueue};
use crate::qp_table::QpEntry;
use crate::sys::{Attr, Value};

/// A queue pair: a send half and a receive half.
///
/// Made by [`CmId::create_qp`](crate::CmId::create_qp) it belongs to the id, which destroys it;
/// this handle then stops working. Made by [`Pd::create_qp`] it is destroyed when the handle and
/// both halves are dropped.
#[doc(alias = "ibv_qp")]
#[derive(Debug)]
pub struct Qp {
    entry: Arc<QpEntry>,
    token: QpToken,
    send: SendHalf,
    recv: RecvHalf,
    qp_type: QpType,
    capabilities: QpCapabilities,
}

impl Pd {
    /// Makes a queue pair that belongs to no id: of the type RC, unless `attr` asks for another. It
    /// has to be moved through its states with [`Qp::modify`].
    ///
    /// # Errors
    ///
    /// Sizes beyond the device's, a missing completion queue, objects of another device or that do
    /// not fit the type; a type that the device does not have.
    #[doc(alias("ibv_create_qp", "ibv_create_qp_ex"))]
    pub fn create_qp(&self, attr: &QpAttr<'_>) -> Result<Qp> {
        let pd = attr.pd().unwrap_or(self);
        Qp::create(pd, attr.qp_type_or(QpType::Rc), attr)
    }
}

impl Qp {
    /// Makes a queue pair in the state RESET.
    pub(crate) fn create(pd: &Pd, qp_type: QpType, attr: &QpAttr<'_>) -> Result<Self> {
        let operation = "create_qp";
        let context = pd.context();
        attr.check(qp_type, context)?;

        let handles = Handles::of(attr, qp_type);
        let wish = attr.wish(qp_type, context)?;
        let mut answer = Answer::new(QpSetup::new(context, wish)?);
        let token = QpToken::new();
        pd.with_handle(operation, |pd| {
            create(context, pd, &handles, attr, token, &mut answer)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        let object = KernelObject::new(
            ObjectKind::QueuePair,
            context,
            answer.handle,
            handles.parents(pd),
        )
        .keeping(answer.driver.kept());
        let made = answer.driver.queues(&QpMade {
            context,
            handle: answer.handle,
            number: answer.number,
            cap: &answer.cap,
            has_send_queue: attr.has_send_queue(qp_type),
            has_own_receive_queue: attr.has_own_receive_queue(qp_type),
            signal_all: attr.signal_all,
        })?;
        let QpQueues {
            send,
            recv,
            cap,
            memory,
        } = made;
        let capabilities = QpCapabilities {
            // Some kernels return the depth that was asked for instead of the one that is there.
            max_send_wr: send.as_ref().map_or(0, SendQueue::depth),
            max_recv_wr: recv.as_ref().map_or(0, RecvQueue::depth),
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        };
        let entry = Arc::new(QpEntry::new(
            object,
            answer.number,
            qp_type.to_kernel(),
            attr.srq.is_some(),
            QpState::Reset.to_kernel(),
            memory,
        ));
        Ok(Self {
            send: SendHalf::new(send, Arc::clone(&entry), qp_type, pd.clone()),
            recv: RecvHalf::new(recv, Arc::clone(&entry), qp_type),
            qp_type,
            capabilities,
            token,
            entry,
        })
    }

    pub(crate) fn entry(&self) -> &Arc<QpEntry> {
        &self.entry
    }

    /// The number that the peer addresses.
    pub fn number(&self) -> u32 {
        self.entry.number()
    }

    /// What asynchronous events of this queue pair say ([`AsyncEvent`](crate::AsyncEvent)). A
    /// program that [splits](Self::split) it asks before.
    pub fn token(&self) -> QpToken {
        self.token
    }

    /// The transport service.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// The sizes that the device granted; never less than asked for, and 0 for a queue that the
    /// queue pair does not have of its own.
    pub fn capabilities(&self) -> QpCapabilities {
        self.capabilities
    }

    /// The half that requests are posted to.
    pub fn send_half(&mut self) -> &mut SendHalf {
        &mut self.send
    }

    /// The half that receives are posted to.
    pub fn recv_half(&mut self) -> &mut RecvHalf {
        &mut self.recv
    }

    /// Both halves, for one thread each.
    pub fn split(self) -> (SendHalf, RecvHalf) {
        (self.send, self.recv)
    }

    /// Changes the state or other attributes. A queue pair of an id is moved by the id.
    ///
    /// # Errors
    ///
    /// When the transition is not allowed; the text names what was missing or superfluous.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, change: &QpModify) -> Result<()> {
        change.apply(&self.entry)
    }

    /// Receives the datagrams of a multicast group from now on. `lid` is the group's on InfiniBand
    /// and 0 on Ethernet. Nothing happens where the queue pair is attached already.
    ///
    /// The device only filters: that the network delivers the group's packets is arranged by
    /// joining it.
    ///
    /// # Errors
    ///
    /// For queue pairs other than UD ones, and for a GID that is no multicast group's.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, gid: Gid, lid: u16) -> Result<()> {
        let refuse = |text: &'static str| Err(Error::invalid("attach_mcast", text));
        if self.qp_type != QpType::Ud {
            return refuse("only UD queue pairs receive multicast datagrams");
        }
        if !gid.to_ip().is_multicast() {
            return refuse("the GID is not that of a multicast group");
        }
        self.entry.attach(gid, lid)
    }

    /// Receives the datagrams of a group no more. False when it did not. A queue pair that is
    /// destroyed leaves its groups by itself.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_multicast(&self, gid: Gid, lid: u16) -> Result<bool> {
        self.entry.detach(gid, lid)
    }

    /// Destroys the queue pair now. False when it was destroyed before. Posting to either half
    /// fails from then on. After an error it is as it was.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(&self) -> Result<bool> {
        self.entry.destroy()
    }
}

/// The objects that a queue pair is made with, besides the protection domain.
struct Handles<'a> {
    qp_type: QpType,
    send_cq: Option<&'a Arc<KernelObject>>,
    recv_cq: Option<&'a Arc<KernelObject>>,
    srq: Option<&'a Arc<KernelObject>>,
    xrcd: Option<&'a Arc<KernelObject>>,
}

impl<'a> Handles<'a> {
    /// Those that queue pairs of the type have.
    fn of(attr: &QpAttr<'a>, qp_type: QpType) -> Self {
        Self {
            qp_type,
            send_cq: attr.completions_of_sends(qp_type).map(Cq::object),
            recv_cq: attr.completions_of_receives(qp_type).map(Cq::object),
            srq: attr.srq.map(Srq::object),
            xrcd: attr.xrcd.map(Xrcd::object),
        }
    }

    /// What the queue pair keeps alive.
    fn parents(&self, pd: &Pd) -> Vec<Arc<KernelObject>> {
        let mut parents = pd.parents();
        let objects = [self.send_cq, self.recv_cq, self.srq, self.xrcd];
        parents.extend(objects.into_iter().flatten().cloned());
        parents
    }
}

/// What the kernel says of a new queue pair.
struct Answer {
    handle: u32,
    number: u32,
    cap: ioctl::QpCap,
    driver: QpSetup,
}

impl Answer {
    fn new(driver: QpSetup) -> Self {
        Self {
            handle: 0,
            number: 0,
            cap: ioctl::QpCap::default(),
            driver,
        }
    }
}

fn create(
    context: &Context,
    pd: u32,
    handles: &Handles<'_>,
    attr: &QpAttr<'_>,
    token: QpToken,
    answer: &mut Answer,
) -> io::Result<()> {
    use ioctl::qp::create as id;
    let cap = answer.driver.cap();
    let signal_all = match attr.signal_all {
        true => uverbs::QpCreateFlags::SQ_SIG_ALL.bits(),
        false => 0,
    };
    let flags = attr.flags.bits() | signal_all;
    let user_handle = token.to_kernel();
    let events = context.event_file();
    let kind = u64::from(handles.qp_type.to_kernel().0);
    let (request, response) = answer.driver.parts();
    let mut attrs = vec![
        Attr::new(id::HANDLE, Value::NewHandle(&mut answer.handle)),
        Attr::new(id::USER_HANDLE, Value::In(user_handle.as_bytes())),
        Attr::new(id::CAP, Value::In(cap.as_bytes())),
        Attr::new(id::TYPE, Value::In(kind.as_bytes())),
        Attr::new(id::RESP_CAP, Value::Out(answer.cap.as_mut_bytes())),
        Attr::new(id::RESP_QP_NUM, Value::Out(answer.number.as_mut_bytes())),
        Attr::new(ioctl::UHW_OUT, Value::Out(response)),
    ];
    if flags != 0 {
        attrs.push(Attr::new(id::FLAGS, Value::In(flags.as_bytes())));
    }
    if !request.is_empty() {
        attrs.push(Attr::new(ioctl::UHW_IN, Value::In(request)));
    }
    // A queue pair of an XRC domain belongs to that alone.
    if handles.xrcd.is_none() {
        attrs.push(Attr::new(id::PD_HANDLE, Value::Handle(pd)));
    }
    for (id, object) in [
        (id::SEND_CQ_HANDLE, handles.send_cq),
        (id::RECV_CQ_HANDLE, handles.recv_cq),
        (id::SRQ_HANDLE, handles.srq),
        (id::XRCD_HANDLE, handles.xrcd),
    ] {
        attrs.extend(object.map(|object| Attr::new(id, Value::Handle(object.handle()))));
    }
    if let Some(events) = &events {
        attrs.push(Attr::new(id::EVENT_FD, Value::Fd(events.as_fd())));
    }
    context.method(ioctl::object::QP, ioctl::qp::CREATE, &mut attrs)
}
