//! Any work on small queues, against a model of what is in them, and a device that reads requests where
//! they must be.

use std::collections::VecDeque;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::posting::send_memory;
use super::world::{Pair, Plan, World};
use crate::fastpath::mlx5::posted::Incoming;
use crate::fastpath::{Completion, Operation, Payload, PostError, Request, Segment, SendFlags};

const QP_NUM: u32 = 0x123;
const CQ_ENTRIES: u32 = 8;
/// Kinds of completions.
const REQUESTER: u8 = 0;
const RESPONDER: u8 = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// With so many inline bytes, up to what fits.
    Send {
        is_signaled: bool,
        bytes: usize,
    },
    Receive,
    /// The device is done with the next request that is to be reported.
    CompleteSend,
    /// The device is done with one of the receives that it took.
    CompleteReceive {
        which: usize,
    },
    Poll {
        most: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (any::<bool>(), 0..300usize)
            .prop_map(|(is_signaled, bytes)| Step::Send { is_signaled, bytes }),
        Just(Step::Receive),
        Just(Step::CompleteSend),
        (0..4usize).prop_map(|which| Step::CompleteReceive { which }),
        (0..5usize).prop_map(|most| Step::Poll { most }),
    ];
    prop::collection::vec(step, 1..400)
}

/// A queue pair with queues of such depths.
fn scenario(sends: u32, receives: u32, is_shared: bool) -> Value {
    let cap = json!({
        "max_send_wr": sends, "max_recv_wr": receives, "max_send_sge": 1, "max_recv_sge": 1,
        "max_inline_data": 200,
    });
    let mut scenario = json!({
        "config": "default", "data_base": "0x200000000000", "steps": [],
        "cq": { "cqn": 1, "ncqe": CQ_ENTRIES, "cqe_size": 64 },
        "qp": {
            "type": "RC", "qpn": QP_NUM, "uidx": 3, "sq_sig_all": 0, "cap_requested": cap,
            "srq": is_shared,
        },
    });
    if is_shared {
        scenario["srq"] = json!({ "requested": { "max_wr": receives, "max_sge": 1 } });
    }
    scenario
}

/// A request that was posted.
#[derive(Debug, Clone)]
struct Sent {
    wr_id: u64,
    block: u32,
    is_signaled: bool,
    bytes: Vec<u8>,
}

/// The queues, what the model has in them, and the device.
struct Model {
    world: World,
    next_id: u64,
    /// Posted, and not known to be done.
    sends: VecDeque<Sent>,
    receives: usize,
    /// What the device has not done yet.
    to_send: VecDeque<Sent>,
    /// The place of the next receive, and how many the device took.
    next_receive: u32,
    taken: u32,
    /// Places and numbers of receives that the device took and has not filled.
    open: Vec<(u32, u64)>,
    /// Completions in the queue.
    written: VecDeque<(u8, u64)>,
    completions: u32,
}

impl Model {
    fn new(sends: u32, receives: u32, is_shared: bool) -> Self {
        let scenario = scenario(sends, receives, is_shared);
        Self {
            world: World::new(&scenario, &Plan::of(&scenario)),
            next_id: 1,
            sends: VecDeque::new(),
            receives: 0,
            to_send: VecDeque::new(),
            next_receive: 0,
            taken: 0,
            open: Vec::new(),
            written: VecDeque::new(),
            completions: 0,
        }
    }

    fn pair(&mut self) -> &mut Pair {
        self.world.pairs.get_mut(&QP_NUM).unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { is_signaled, bytes } => self.send(is_signaled, bytes),
            Step::Receive => self.receive(),
            Step::CompleteSend => self.complete_send(),
            Step::CompleteReceive { which } => self.complete_receive(which),
            Step::Poll { most } => self.poll(most),
        }
    }

    fn send(&mut self, is_signaled: bool, bytes: usize) {
        let wr_id = self.next_id;
        let in_queue = self.sends.len();
        let size = self.pair().send_size.unwrap();
        let bytes: Vec<u8> = (0..bytes.min(size.max_inline as usize))
            .map(|at| (at as u64 + 3 * wr_id) as u8)
            .collect();
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, is_signaled);
        let send = self.pair().send.as_mut().unwrap();
        let block = send.position();
        let pushed = send.push(&Request {
            wr_id,
            operation: Operation::Send,
            flags,
            payload: Payload::Inline(&bytes),
        });
        if in_queue == size.depth as usize {
            assert_eq!(pushed, Err(PostError::QueueFull { depth: size.depth }));
            return;
        }
        pushed.unwrap();
        send.ring_doorbell();
        let end = send.position();
        assert_eq!(self.pair().record.get(1), end & 0xffff);
        let sent = Sent {
            wr_id,
            block,
            is_signaled,
            bytes,
        };
        self.sends.push_back(sent.clone());
        self.to_send.push_back(sent);
        self.next_id += 1;
    }

    fn receive(&mut self) {
        let wr_id = self.next_id;
        let in_queue = self.receives;
        // The device finds the number again in the address.
        let segment = [Segment::of_buffer(wr_id, 64, 7)];
        let (depth, pushed) = match &mut self.world.shared {
            Some(shared) => {
                let pushed = shared.queue.push(wr_id, &segment);
                shared.queue.publish();
                (shared.queue.depth(), pushed)
            }
            None => {
                let recv = self.pair().recv.as_mut().unwrap();
                let pushed = recv.push(wr_id, &segment);
                recv.publish();
                (recv.depth(), pushed)
            }
        };
        if in_queue == depth as usize {
            assert_eq!(pushed, Err(PostError::QueueFull { depth }));
            return;
        }
        pushed.unwrap();
        self.receives += 1;
        self.next_id += 1;
        self.take_receive(wr_id);
    }

    /// The device takes the next receive, which is where the one before says, or where the counter
    /// does.
    fn take_receive(&mut self, wr_id: u64) {
        let place = self.next_receive;
        let shared = self.world.shared.as_ref().map(|shared| {
            let count = shared.record.get(0);
            (shared.queue.bytes(), shared.size.shift, count)
        });
        let (at, posted) = match shared {
            Some((memory, shift, count)) => {
                let at = (place as usize) << shift;
                self.next_receive = u32::from(u16::from_be_bytes([memory[at + 2], memory[at + 3]]));
                (memory[at + 16..at + 32].to_vec(), count)
            }
            None => {
                let pair = self.pair();
                let count = pair.record.get(0);
                let Incoming::Own(receives) = &pair.pair.incoming else {
                    unreachable!("the queue pair has a queue of its own");
                };
                // SAFETY: only this thread writes to it.
                let memory = unsafe { receives.memory.bytes() };
                let at = receives.memory.index(place) * receives.memory.stride();
                let segment = memory[at..at + 16].to_vec();
                self.next_receive += 1;
                (segment, count)
            }
        };
        self.taken += 1;
        assert_eq!(posted & 0xffff, self.taken & 0xffff);
        assert_eq!(at[..8], [0, 0, 0, 64, 0, 0, 0, 7]);
        assert_eq!(at[8..16], wr_id.to_be_bytes());
        self.open.push((place, wr_id));
    }

    fn complete_send(&mut self) {
        let Some(last) = self.to_send.iter().position(|sent| sent.is_signaled) else {
            return;
        };
        if self.written.len() == CQ_ENTRIES as usize {
            return;
        }
        let memory = send_memory(self.pair());
        for sent in self.to_send.drain(..=last).collect::<Vec<_>>() {
            check_request(&memory, &sent);
            if sent.is_signaled {
                self.write(REQUESTER, 0x0a, sent.block as u16, sent.wr_id);
            }
        }
    }

    fn complete_receive(&mut self, which: usize) {
        if self.open.is_empty() || self.written.len() == CQ_ENTRIES as usize {
            return;
        }
        // Receives of one queue pair are filled in their order.
        let which = match self.world.shared {
            Some(_) => which % self.open.len(),
            None => 0,
        };
        let (place, wr_id) = self.open.remove(which);
        self.write(RESPONDER, 0, place as u16, wr_id);
    }

    fn write(&mut self, kind: u8, opcode: u8, counter: u16, wr_id: u64) {
        let mut cqe = [0; 64];
        cqe[32..36].copy_from_slice(&3u32.to_be_bytes());
        cqe[56..60].copy_from_slice(&(u32::from(opcode) << 24 | QP_NUM).to_be_bytes());
        cqe[60..62].copy_from_slice(&counter.to_be_bytes());
        cqe[63] = kind << 4 | u8::from(self.completions & CQ_ENTRIES != 0);
        let ring = self.world.cq.ring();
        ring.put(self.completions % CQ_ENTRIES, &cqe);
        self.completions += 1;
        self.written.push_back((kind, wr_id));
    }

    fn poll(&mut self, most: usize) {
        let mut entries = vec![Completion::default(); most];
        let taken = self.world.cq.poll(&mut entries);
        assert_eq!(taken.len(), most.min(self.written.len()));
        for (completion, (kind, wr_id)) in taken.iter().zip(self.written.drain(..taken.len())) {
            assert_eq!((completion.wr_id(), completion.qp_num()), (wr_id, QP_NUM));
            assert!(completion.result().is_ok());
            match kind {
                REQUESTER => while self.sends.pop_front().unwrap().wr_id != wr_id {},
                _ => self.receives -= 1,
            }
        }
        let consumed = self.completions - self.written.len() as u32;
        assert_eq!(self.world.directory.record().get(0), consumed);
    }
}

/// Reads a request as the device does.
fn check_request(memory: &[u8], sent: &Sent) {
    let blocks = memory.len() / 64;
    let at = |offset: usize| memory[(sent.block as usize % blocks * 64 + offset) % memory.len()];
    let word = |offset: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| at(offset + byte)));
    assert_eq!(word(0), (sent.block & 0xffff) << 8 | 0x0a);
    assert_eq!(word(4) >> 8, QP_NUM);
    assert_eq!(at(11) & 8 != 0, sent.is_signaled);
    let length = sent.bytes.len();
    if length == 0 {
        assert_eq!(word(4) & 0x3f, 1);
        return;
    }
    assert_eq!(word(4) as usize & 0x3f, 1 + (4 + length).div_ceil(16));
    assert_eq!(word(16) as usize, length | 1 << 31);
    let bytes: Vec<u8> = (20..20 + length).map(at).collect();
    assert_eq!(bytes, sent.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "its pages are of a file")]
    fn small_queues_are_as_the_model_has_them(
        sends in 1..4u32,
        receives in 1..4u32,
        is_shared in any::<bool>(),
        steps in steps(),
    ) {
        let mut model = Model::new(sends, receives, is_shared);
        for step in steps {
            model.step(step);
        }
    }
}
