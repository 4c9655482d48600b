//! siw, software iWARP.
//!
//! A queue is an array whose elements change hands one by one: a flag in each says whose it is.
//! Neither side tells the other an index. The doorbell of the send queue is a `write()`; receives
//! need none, and a completion queue is armed by a store.

mod completion_queue;
mod elements;
mod recv_queue;
mod send_queue;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rdmacm_kernel_abi::siw::{self, UrespCreateCq, UrespCreateQp, UrespCreateSrq};

use super::Doorbell;
use super::provider::map;
use super::queues;
use super::setup::{QpMade, QpQueues};
use crate::device::Context;
use crate::error::Result;
use crate::sys::Mapping;

pub(super) use completion_queue::CompletionQueue;
pub(super) use recv_queue::RecvQueue;
pub(super) use send_queue::SendQueue;

/// The most bytes that one request can carry inline.
pub(super) const MAX_INLINE: u32 = siw::MAX_INLINE as u32;

pub(super) fn map_qp(answer: &UrespCreateQp, made: &QpMade<'_>) -> Result<QpQueues> {
    let QpMade { context, cap, .. } = *made;
    // A queue exists if it was asked for: its key tells nothing, and a queue pair with a shared
    // receive queue may be told a size all the same.
    let map = |exists: bool, count, size, key| {
        exists
            .then(|| map_elements(context, count, size, key))
            .transpose()
    };
    let (sq, rq) = (size_of::<siw::Sqe>(), size_of::<siw::Rqe>());
    let send = map(made.has_send_queue, answer.num_sqe, sq, answer.sq_key)?;
    let recv = map(
        made.has_own_receive_queue,
        answer.num_rqe,
        rq,
        answer.rq_key,
    )?;
    let memory: Vec<Arc<Mapping>> = [&send, &recv].into_iter().flatten().cloned().collect();
    let send = send.map(|memory| {
        let doorbell = Doorbell::new(context, made.handle);
        SendQueue::new(memory, answer.num_sqe, doorbell, cap, made.signal_all)
    });
    let recv = recv.map(|memory| RecvQueue::new(memory, answer.num_rqe, cap.max_recv_sge));
    Ok(QpQueues {
        send: send.transpose()?.map(queues::SendQueue::Siw),
        recv: recv.transpose()?.map(queues::RecvQueue::Siw),
        cap: *cap,
        memory: Arc::new(memory),
    })
}

pub(super) fn map_cq(answer: &UrespCreateCq, context: &Context) -> Result<CompletionQueue> {
    let length = CompletionQueue::length(answer.num_cqe);
    CompletionQueue::new(map(context, length, answer.cq_key)?, answer.num_cqe)
}

pub(super) fn map_srq(
    answer: &UrespCreateSrq,
    context: &Context,
    max_segments: u32,
) -> Result<RecvQueue> {
    let size = size_of::<siw::Rqe>();
    let memory = map_elements(context, answer.num_rqe, size, answer.srq_key)?;
    RecvQueue::new(memory, answer.num_rqe, max_segments)
}

fn map_elements(context: &Context, count: u32, size: usize, key: u64) -> Result<Arc<Mapping>> {
    map(context, count as usize * size, key)
}
