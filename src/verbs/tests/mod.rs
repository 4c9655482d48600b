//! Verbs on the scripted kernel.

mod async_events;
mod card;
mod datagrams;
mod depths;
mod lifetimes;
mod lists;
mod loopback;
mod memory;
mod mlx5_answers;
mod mlx5_counters;
mod mlx5_resets;
mod mlx5_threads;
mod recorded;
mod refusals;
mod requests;
mod shared_queues;
mod types;
mod waiting;
mod windows;

use std::sync::Arc;

use super::{Access, Buffer, CompletionChannel, Cq, Path, Pd, Qp, QpAttr, QpModify, QpState};
use crate::device::{Context, Gid};
use crate::error::Result;
use crate::fastpath::{Completion, CompletionStatus, PostError};
use crate::sys::twin::Twin;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

fn context(twin: &Arc<Twin>) -> Context {
    twin.registry().context_of_index(0).unwrap()
}

/// A queue pair with a completion queue and a buffer of its own.
struct End {
    context: Context,
    pd: Pd,
    qp: Qp,
    cq: Cq,
    completions: CompletionChannel,
    buffer: Buffer,
}

impl End {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let completions = context.completion_channel()?;
        let cq = context.completion_queue(64).channel(&completions).build()?;
        let qp = pd.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_sge(2)
                .max_inline_data(32),
        )?;
        let buffer = pd.alloc(4096, ALL)?;
        Ok(Self {
            context: context.clone(),
            pd,
            qp,
            cq,
            completions,
            buffer,
        })
    }

    /// Moves the queue pair up to a state.
    fn raise(&self, peer: &Self, target: QpState) -> Result<()> {
        let path = Path {
            gid: Gid([0; 16]),
            source_gid_index: 0,
            port: 1,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            lid: 0,
        };
        let steps = [
            QpModify::to(QpState::Init)
                .port(1)
                .pkey_index(0)
                .access(ALL),
            QpModify::to(QpState::Rtr)
                .path(path)
                .path_mtu(self.context.port(1)?.active_mtu)
                .remote_qp_num(peer.qp.number())
                .receive_psn(0)
                .responder_resources(4)
                .min_rnr_timer(12),
            QpModify::to(QpState::Rts)
                .send_psn(0)
                .timeout(14)
                .retry_count(6)
                .rnr_retry_count(7)
                .initiator_depth(4),
        ];
        let states = [QpState::Init, QpState::Rtr, QpState::Rts];
        for (step, state) in steps.iter().zip(states) {
            self.qp.modify(step)?;
            if state == target {
                break;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, wr_id: u64, length: usize) {
        let segment = self.buffer.slice(..length).unwrap();
        self.qp.recv_half().post(wr_id, &[segment]).unwrap();
    }

    fn send(&mut self, wr_id: u64, bytes: &[u8]) -> Result<(), PostError> {
        let mut batch = self.qp.send_half().batch();
        batch.send(wr_id).signaled().inline(bytes)?;
        batch.submit()
    }

    /// The one completion that there is.
    fn completion(&mut self) -> Completion {
        let mut entries = [Completion::default(); 2];
        let [completion] = self.cq.poll(&mut entries) else {
            panic!("not one completion")
        };
        *completion
    }

    fn status(&mut self) -> CompletionStatus {
        self.completion()
            .result()
            .map_or_else(|failed| failed.status, |_| CompletionStatus::Success)
    }
}

/// Two queue pairs that are connected to each other.
fn ends(twin: &Arc<Twin>) -> (End, End) {
    let context = context(twin);
    let (one, other) = (End::new(&context).unwrap(), End::new(&context).unwrap());
    one.raise(&other, QpState::Rts).unwrap();
    other.raise(&one, QpState::Rts).unwrap();
    (one, other)
}
