//! rxe, software RoCE.
//!
//! The kernel carries requests out of the mapped rings itself; the doorbell is a `write()`.
//! Receives need none.

mod completion_queue;
mod cursor;
mod memory;
mod recv_queue;
mod ring;
mod send_queue;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rdmacm_kernel_abi::rxe::{CreateQpResp, MmapInfo};

use super::Doorbell;
use super::provider::{bad_queue, map};
use super::queues;
use super::setup::{QpMade, QpQueues};
use crate::device::Context;
use crate::error::{Error, Result};
use crate::sys::Mapping;

pub(super) use completion_queue::CompletionQueue;
pub(super) use recv_queue::RecvQueue;
use ring::BadRing;
pub(super) use send_queue::SendQueue;

/// The most bytes that one request can carry inline.
pub(super) const MAX_INLINE: u32 = 512;

impl From<BadRing> for Error {
    fn from(bad: BadRing) -> Self {
        bad_queue(bad.0)
    }
}

pub(super) fn map_qp(answer: &CreateQpResp, made: &QpMade<'_>) -> Result<QpQueues> {
    let QpMade { context, cap, .. } = *made;
    let map = |exists: bool, info| exists.then(|| map_ring(context, info)).transpose();
    let send = map(made.has_send_queue, answer.sq_mi)?;
    let recv = map(made.has_own_receive_queue, answer.rq_mi)?;
    let memory: Vec<Arc<Mapping>> = [&send, &recv].into_iter().flatten().cloned().collect();
    let send = send.map(|ring| {
        let doorbell = Doorbell::new(context, made.handle);
        SendQueue::new(ring, doorbell, cap.max_send_sge, cap.max_inline_data)
    });
    let recv = recv.map(|ring| RecvQueue::new(ring, cap.max_recv_sge));
    Ok(QpQueues {
        send: send.transpose()?.map(queues::SendQueue::Rxe),
        recv: recv.transpose()?.map(queues::RecvQueue::Rxe),
        cap: *cap,
        memory: Arc::new(memory),
    })
}

pub(super) fn map_cq(info: MmapInfo, context: &Context) -> Result<CompletionQueue> {
    CompletionQueue::new(map_ring(context, info)?)
}

pub(super) fn map_srq(info: MmapInfo, context: &Context, max_segments: u32) -> Result<RecvQueue> {
    RecvQueue::new(map_ring(context, info)?, max_segments)
}

fn map_ring(context: &Context, info: MmapInfo) -> Result<Arc<Mapping>> {
    map(context, info.size as usize, info.offset)
}
