//! Queue pairs.

use std::io;
use std::sync::Arc;

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::{Pd, QpAttr, QpCapabilities, QpModify, QpState, RecvHalf, SendHalf};
use crate::device::{Context, KernelObject, ObjectKind};
use crate::error::{Error, Result};
use crate::fastpath::rxe::{Doorbell, RecvQueue, SendQueue};
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
    send: SendHalf,
    recv: RecvHalf,
    capabilities: QpCapabilities,
}

impl Pd {
    /// Makes a reliable-connected queue pair that belongs to no id. It has to be moved through its
    /// states with [`Qp::modify`].
    ///
    /// # Errors
    ///
    /// Sizes beyond the device's, a missing completion queue, objects of another device.
    #[doc(alias("ibv_create_qp", "ibv_create_qp_ex"))]
    pub fn create_qp(&self, attr: &QpAttr<'_>) -> Result<Qp> {
        Qp::create(attr)
    }
}

impl Qp {
    /// Makes a queue pair in the state RESET.
    pub(crate) fn create(attr: &QpAttr<'_>) -> Result<Self> {
        let operation = "create_qp";
        let context = attr.pd.context();
        let (Some(send_cq), Some(recv_cq)) = (attr.send_cq, attr.recv_cq) else {
            return Err(Error::invalid(
                operation,
                "a queue pair needs a completion queue for sends and one for receives",
            ));
        };
        for cq in [send_cq, recv_cq] {
            if !cq.context().same_as(context) {
                return Err(Error::invalid(
                    operation,
                    format!(
                        "the completion queue is of {}, the protection domain of {}",
                        cq.context().device().name(),
                        context.device().name()
                    ),
                ));
            }
        }
        attr.check(context.attr()?)?;

        let mut answer = Answer::default();
        let cqs = [send_cq.object(), recv_cq.object()];
        attr.pd.with_handle(operation, |pd| {
            let handles = [pd, cqs[0].handle(), cqs[1].handle()];
            create(context, handles, attr, &mut answer)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        let mut parents = attr.pd.parents();
        parents.extend(cqs.map(Arc::clone));
        let object = KernelObject::new(ObjectKind::QueuePair, context, answer.handle, parents);

        let map = |mmap: rxe::MmapInfo| {
            context
                .map(mmap.size as usize, mmap.offset)
                .map(Arc::new)
                .map_err(|error| Error::from_os("map_queue", &error))
        };
        let (sq, rq) = (map(answer.driver.sq_mi)?, map(answer.driver.rq_mi)?);
        let cap = answer.cap;
        let doorbell = Doorbell::new(context, answer.handle);
        let send = SendQueue::new(sq.clone(), doorbell, cap.max_send_sge, cap.max_inline_data)?;
        let recv = RecvQueue::new(rq.clone(), cap.max_recv_sge)?;
        let capabilities = QpCapabilities {
            // Some kernels return the depth that was asked for instead of the one that is there.
            max_send_wr: send.depth(),
            max_recv_wr: recv.depth(),
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        };
        let entry = Arc::new(QpEntry::new(
            object,
            answer.number,
            QpState::Reset.to_kernel(),
            vec![sq, rq],
        ));
        Ok(Self {
            send: SendHalf::new(send, Arc::clone(&entry)),
            recv: RecvHalf::new(recv, Arc::clone(&entry)),
            capabilities,
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

    /// The sizes that the device granted; never less than asked for.
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

    /// Asks the device for the state of the queue pair.
    ///
    /// # Errors
    ///
    /// When the queue pair was destroyed or the device is gone.
    #[doc(alias = "ibv_query_qp")]
    pub fn query_state(&self) -> Result<QpState> {
        let state = query(&self.entry)?.qp_state;
        Ok(QpState::from_kernel(state))
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

/// What the kernel says of a new queue pair.
#[derive(Default)]
struct Answer {
    handle: u32,
    number: u32,
    cap: ioctl::QpCap,
    driver: rxe::CreateQpResp,
}

fn create(
    context: &Context,
    [pd, send_cq, recv_cq]: [u32; 3],
    attr: &QpAttr<'_>,
    answer: &mut Answer,
) -> io::Result<()> {
    use ioctl::qp::create as id;
    let cap = ioctl::QpCap {
        max_send_wr: attr.cap.max_send_wr,
        max_recv_wr: attr.cap.max_recv_wr,
        max_send_sge: attr.cap.max_send_sge,
        max_recv_sge: attr.cap.max_recv_sge,
        max_inline_data: attr.cap.max_inline_data,
    };
    let flags = match attr.signal_all {
        true => uverbs::QpCreateFlags::SQ_SIG_ALL.bits(),
        false => 0,
    };
    let user_handle = 0u64;
    let kind = u64::from(uverbs::QpType::RC.0);
    context.method(
        ioctl::object::QP,
        ioctl::qp::CREATE,
        &mut [
            Attr::new(id::HANDLE, Value::NewHandle(&mut answer.handle)),
            Attr::new(id::PD_HANDLE, Value::Handle(pd)),
            Attr::new(id::SEND_CQ_HANDLE, Value::Handle(send_cq)),
            Attr::new(id::RECV_CQ_HANDLE, Value::Handle(recv_cq)),
            Attr::new(id::USER_HANDLE, Value::In(user_handle.as_bytes())),
            Attr::new(id::CAP, Value::In(cap.as_bytes())),
            Attr::new(id::TYPE, Value::In(kind.as_bytes())),
            Attr::new(id::FLAGS, Value::In(flags.as_bytes())),
            Attr::new(id::RESP_CAP, Value::Out(answer.cap.as_mut_bytes())),
            Attr::new(id::RESP_QP_NUM, Value::Out(answer.number.as_mut_bytes())),
            Attr::new(ioctl::UHW_OUT, Value::Out(answer.driver.as_mut_bytes())),
        ],
    )
}

fn query(entry: &QpEntry) -> Result<uverbs::QueryQpResp> {
    let operation = "query_qp";
    entry.with_handle(operation, |qp_handle| {
        let request = uverbs::QueryQp {
            qp_handle,
            attr_mask: uverbs::QpAttrMask::STATE.bits(),
            ..Default::default()
        };
        entry
            .context()
            .command(uverbs::Command::QUERY_QP, &request)
            .map_err(|error| Error::from_os(operation, &error))
    })
}
