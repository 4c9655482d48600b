//! Random sequences of operations and drops on several ids: whatever happens, no id goes before its
//! queue pair and nothing is left.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::groups::GROUPS;
use super::pair::{self, Listening, TIMEOUT, address};
use crate::cm::{
    CmId, ConnParam, ConnectRequest, Ece, Event, EventChannel, Membership, PortSpace, Service,
};
use crate::fastpath::Completion;
use crate::sys::twin::{Call, Twin};
use crate::verbs::{Access, Buffer, Cq, Pd, Qp, QpAttr, RecvHalf, SendHalf};

const ECE: Ece = Ece {
    vendor_id: 1,
    options: 2,
};
/// The number of no queue pair.
const NO_QP: u32 = 0xff_fffe;

/// What a program holds, each in as many copies as it likes.
#[derive(Default)]
struct Holdings {
    channels: Vec<EventChannel>,
    ids: Vec<CmId>,
    events: Vec<Event>,
    requests: Vec<ConnectRequest>,
    pds: Vec<Pd>,
    cqs: Vec<Cq>,
    qps: Vec<Qp>,
    halves: Vec<(Option<SendHalf>, Option<RecvHalf>)>,
    buffers: Vec<Buffer>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    OpenChannel,
    CreateId,
    CreateDatagramId,
    CloneId,
    Resolve,
    ResolveRoute,
    Listen,
    ReadEvent,
    CreateQp,
    SplitQp,
    Register,
    Post,
    Connect,
    Accept,
    Reject,
    Disconnect,
    Migrate,
    Poll,
    SetOption,
    Ask,
    Join,
    Leave,
    LookUp,
    WriteEvent,
    ConnectOwnQp,
    Finish,
    DestroyQp,
    DestroyQpByHandle,
    DestroyId,
    DropChannel,
    DropId,
    DropEvent,
    DropRequest,
    DropPd,
    DropCq,
    DropQp,
    DropSendHalf,
    DropRecvHalf,
    DropBuffer,
    /// The next call is refused.
    Refuse,
}

const STEPS: [Step; 40] = [
    Step::OpenChannel,
    Step::CreateId,
    Step::CreateDatagramId,
    Step::CloneId,
    Step::Resolve,
    Step::ResolveRoute,
    Step::Listen,
    Step::ReadEvent,
    Step::CreateQp,
    Step::SplitQp,
    Step::Register,
    Step::Post,
    Step::Connect,
    Step::Accept,
    Step::Reject,
    Step::Disconnect,
    Step::Migrate,
    Step::Poll,
    Step::SetOption,
    Step::Ask,
    Step::Join,
    Step::Leave,
    Step::LookUp,
    Step::WriteEvent,
    Step::ConnectOwnQp,
    Step::Finish,
    Step::DestroyQp,
    Step::DestroyQpByHandle,
    Step::DestroyId,
    Step::DropChannel,
    Step::DropId,
    Step::DropEvent,
    Step::DropRequest,
    Step::DropPd,
    Step::DropCq,
    Step::DropQp,
    Step::DropSendHalf,
    Step::DropRecvHalf,
    Step::DropBuffer,
    Step::Refuse,
];

/// Steps that lead somewhere come more often than those that end something.
fn step() -> impl Strategy<Value = (Step, prop::sample::Index)> {
    let building = prop::sample::select(STEPS[..26].to_vec());
    let reading = Just(Step::ReadEvent);
    let any = prop::sample::select(STEPS.to_vec());
    (
        prop_oneof![6 => building, 3 => reading, 2 => any],
        any_index(),
    )
}

fn any_index() -> impl Strategy<Value = prop::sample::Index> {
    any::<prop::sample::Index>()
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 512 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_sequence_leaves_anything(steps in prop::collection::vec(step(), 0..150)) {
        let twin = Twin::new();
        let mut holdings = Holdings::default();
        for (step, pick) in steps {
            holdings.take(&twin, step, pick);
        }
        drop(holdings);
        twin.assert_clean();
    }

    #[test]
    fn no_sequence_on_a_connection_leaves_anything(
        steps in prop::collection::vec(step(), 0..40)
    ) {
        let twin = Twin::new();
        let mut holdings = Holdings::connected(&twin);
        for (step, pick) in steps {
            holdings.take(&twin, step, pick);
        }
        drop(holdings);
        twin.assert_clean();
    }
}

/// One of several, or none when there are none.
fn one<'a, T>(all: &'a [T], pick: &prop::sample::Index) -> Option<&'a T> {
    (!all.is_empty()).then(|| pick.get(all))
}

fn take_one<T>(all: &mut Vec<T>, pick: &prop::sample::Index) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(pick.index(all.len())))
}

impl Holdings {
    fn connected(twin: &Arc<Twin>) -> Self {
        let pair = pair::connect(twin, twin.registry()).unwrap();
        let Listening { id, channel } = pair.listening;
        let mut holdings = Self {
            ids: vec![id],
            channels: vec![channel],
            ..Self::default()
        };
        for side in [pair.active, pair.passive] {
            holdings.ids.push(side.id);
            holdings.channels.push(side.channel);
            holdings.pds.push(side.pd);
            holdings.cqs.push(side.cq);
            holdings.halves.push((Some(side.send), Some(side.recv)));
            holdings.buffers.push(side.buffer);
        }
        holdings
    }

    /// Takes a step; whether it fits the moment is for the library to say.
    fn take(&mut self, twin: &Arc<Twin>, step: Step, pick: prop::sample::Index) {
        match step {
            Step::OpenChannel => self.open_channel(twin),
            Step::CreateId => self.create_id(PortSpace::Tcp, &pick),
            Step::CreateDatagramId => self.create_id(PortSpace::Udp, &pick),
            Step::CloneId => self.ids.extend(one(&self.ids, &pick).cloned()),
            Step::ReadEvent => self.read_event(&pick),
            Step::CreateQp => self.create_qp(twin, &pick),
            Step::SplitQp => {
                let qp = take_one(&mut self.qps, &pick);
                self.halves.extend(qp.map(|qp| {
                    let (send, recv) = qp.split();
                    (Some(send), Some(recv))
                }));
            }
            Step::Register => {
                let pd = one(&self.pds, &pick);
                self.buffers
                    .extend(pd.and_then(|pd| pd.alloc(64, Access::LOCAL_WRITE).ok()));
            }
            Step::Post => self.post(&pick),
            Step::Poll => {
                let mut entries = [Completion::default(); 8];
                if let Some(cq) = self.cqs.first_mut() {
                    cq.poll(&mut entries);
                    let _ = cq.wait(&mut entries, Some(Duration::ZERO));
                }
            }
            Step::Refuse => twin.fail(0, libc::ENOMEM, |call: &Call| !call.is_destroy()),
            _ => self.use_id(step, &pick),
        }
        self.let_go(step, &pick);
    }

    fn open_channel(&mut self, twin: &Arc<Twin>) {
        // All channels are of one kernel and of one registry.
        let registry = self.channels.first().map(EventChannel::registry);
        let registry = registry.unwrap_or_else(|| twin.registry());
        self.channels.extend(EventChannel::open_on(registry).ok());
    }

    fn create_id(&mut self, space: PortSpace, pick: &prop::sample::Index) {
        let channel = one(&self.channels, pick);
        let id = channel.and_then(|channel| channel.create_id(space).ok());
        self.ids.extend(id);
    }

    fn read_event(&mut self, pick: &prop::sample::Index) {
        let Some(channel) = one(&self.channels, pick) else {
            return;
        };
        match channel.try_next_event() {
            Ok(Some(Event::ConnectRequest(request))) => {
                self.ids.push(request.id().clone());
                self.requests.push(request);
            }
            Ok(Some(event)) => self.events.push(event),
            Ok(None) | Err(_) => {}
        }
    }

    fn create_qp(&mut self, twin: &Arc<Twin>, pick: &prop::sample::Index) {
        let Some(id) = one(&self.ids, pick).cloned() else {
            return;
        };
        let Ok(pd) = id.protection_domain() else {
            return;
        };
        let Ok(cq) = pd.context().completion_queue(16).build() else {
            return;
        };
        if let Ok(qp) = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq)) {
            twin.note_owner(id.handle(), qp.number());
            self.qps.push(qp);
        }
        self.pds.push(pd);
        self.cqs.push(cq);
    }

    fn post(&mut self, pick: &prop::sample::Index) {
        let Some(buffer) = one(&self.buffers, pick) else {
            return;
        };
        let segment = buffer.slice(..8).unwrap();
        for (send, recv) in &mut self.halves {
            if let Some(recv) = recv {
                let _ = recv.post(1, &[segment]);
            }
            if let Some(send) = send {
                let mut batch = send.batch();
                let _ = batch.send(2).signaled().from(&[segment]);
                let _ = batch.submit();
            }
        }
    }

    fn use_id(&mut self, step: Step, pick: &prop::sample::Index) {
        let Some(id) = one(&self.ids, pick) else {
            return;
        };
        let param = ConnParam::new();
        let _ = match step {
            Step::Resolve => id.resolve_addr(None, address(), TIMEOUT),
            Step::ResolveRoute => id.resolve_route(TIMEOUT),
            Step::Listen => id.bind_addr(address()).and_then(|()| id.listen(1)),
            Step::Connect => id.connect(&param),
            Step::Accept => id.accept(&param),
            Step::Reject => id.reject(b"no"),
            Step::Disconnect => id.disconnect(),
            Step::Migrate => match one(&self.channels, pick) {
                Some(channel) => id.migrate(channel),
                None => Ok(()),
            },
            Step::SetOption => id
                .set_ack_timeout(14)
                .and_then(|()| id.set_reuse_addr(true)),
            Step::Ask => id
                .paths()
                .and_then(|paths| id.set_path(&paths))
                .and_then(|()| id.local_ib_addr().map(drop)),
            Step::Join => id.join_multicast(*pick.get(&GROUPS), Membership::Full),
            Step::Leave => id.leave_multicast(*pick.get(&GROUPS)).map(drop),
            Step::LookUp => id
                .resolve_service(Service::Id(1))
                .and_then(|()| id.query_addrinfo().map(drop)),
            Step::WriteEvent => id.write_user_event(7),
            Step::ConnectOwnQp => id
                .set_local_ece(ECE)
                .and_then(|()| id.connect(&param.own_qp(NO_QP, false))),
            Step::Finish => id.notify_established().and_then(|()| id.establish()),
            Step::DestroyQp => id.destroy_qp().map(drop),
            Step::DestroyId => id.destroy(),
            _ => Ok(()),
        };
    }

    fn let_go(&mut self, step: Step, pick: &prop::sample::Index) {
        match step {
            Step::DestroyQpByHandle => {
                if let Some(qp) = one(&self.qps, pick) {
                    let _ = qp.destroy();
                }
            }
            Step::DropChannel => drop(take_one(&mut self.channels, pick)),
            Step::DropId => drop(take_one(&mut self.ids, pick)),
            Step::DropEvent => drop(take_one(&mut self.events, pick)),
            Step::DropRequest => drop(take_one(&mut self.requests, pick)),
            Step::DropPd => drop(take_one(&mut self.pds, pick)),
            Step::DropCq => drop(take_one(&mut self.cqs, pick)),
            Step::DropQp => drop(take_one(&mut self.qps, pick)),
            Step::DropBuffer => drop(take_one(&mut self.buffers, pick)),
            Step::DropSendHalf | Step::DropRecvHalf if self.halves.is_empty() => {}
            Step::DropSendHalf => {
                let index = pick.index(self.halves.len());
                self.halves[index].0 = None;
            }
            Step::DropRecvHalf => {
                let index = pick.index(self.halves.len());
                self.halves[index].1 = None;
            }
            _ => {}
        }
    }
}
