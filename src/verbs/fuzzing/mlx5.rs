//! Fuzz target: an mlx5 device whose kernel and whose card say anything.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::mlx5::{Cqe64, CqeOpcode, NUMBER_MASK, Opcode};

use crate::device::fuzzing::{machine, open_device};
use crate::fastpath::{Completion, CompletionStatus, PostError, Segment};
use crate::sys::hostile::{Card, Discovery, Hostile, Input};
use crate::{
    Access, AddressHandle, Buffer, Context, Cq, Destination, Gid, Path, Pd, Qp, QpAttr, QpModify,
    QpState, QpType, Srq, SrqAttr,
};

/// A device that is opened, asked for all kinds of objects, and worked with, while the kernel refuses
/// this and that or answers what cannot be, and the card writes what it wants wherever it may. Whatever
/// completes was posted there and has not completed before, or is said to be wrong; and all is given
/// back at the end.
pub fn mlx5_device(input: &[u8]) {
    let mut input = Input::new(input);
    let form = input.byte();
    let kernel = kernel(form, input.part());
    if let Some(mut world) = World::new(&kernel, input) {
        world.work();
    }
    assert_eq!(kernel.mappings(), 0);
}

/// A kernel with a card of one of eight forms, and what is wrong with its answers.
fn kernel(form: u8, answers: &[u8]) -> Arc<Hostile> {
    let kernel = machine(answers, Discovery::Mlx5);
    kernel.put_card(Card {
        has_static_registers: form & 3 != 0,
        has_user_index: form & 4 == 0,
    });
    if form & 2 != 0 {
        kernel.refuse_ioctls();
    }
    kernel
}

/// A completion queue, with the memory that the card writes to.
struct Queue {
    cq: Cq,
    ring: NonNull<u8>,
    /// The counter of the card.
    at: u32,
}

/// A queue pair, with what is under way in it.
struct Pair {
    qp: Qp,
    send_cq: usize,
    recv_cq: usize,
    sent: VecDeque<u64>,
    received: VecDeque<u64>,
}

/// What does not hold another of its kind.
struct World<'k> {
    kernel: &'k Hostile,
    /// What is done; what the kernel answers is another part of the input.
    input: Input<'k>,
    pairs: Vec<Pair>,
    queues: Vec<Queue>,
    shared: Vec<Srq>,
    handles: Vec<AddressHandle>,
    buffers: Vec<Buffer>,
    pd: Pd,
    context: Context,
    /// What was posted to shared queues and has not completed.
    waiting: Vec<u64>,
    next_id: u64,
}

/// More than this of a kind leads no further.
const MOST: usize = 4;

impl<'k> World<'k> {
    fn new(kernel: &'k Hostile, input: Input<'k>) -> Option<Self> {
        let context = open_device()?;
        let pd = context.alloc_pd().ok()?;
        Some(Self {
            kernel,
            input,
            pairs: Vec::new(),
            queues: Vec::new(),
            shared: Vec::new(),
            handles: Vec::new(),
            buffers: Vec::new(),
            pd,
            context,
            waiting: Vec::new(),
            next_id: 1,
        })
    }

    /// Does what the input says; of a long one only so much as it is worth.
    fn work(&mut self) {
        for _ in 0..96 {
            if self.input.is_done() {
                break;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let step = self.input.byte();
        let what = usize::from(step >> 4);
        match step & 15 {
            0 => self.add_queue(what),
            1 => self.add_pair(what),
            2 => self.add_other(what),
            3 | 4 => self.send(what),
            5 => self.receive(what),
            6 => self.receive_shared(what),
            7..=9 => self.complete(what),
            10 | 11 => self.poll(what),
            12 => self.move_pair(what),
            13 => self.resize(what),
            14 => self.disturb(),
            _ => self.remove(what),
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn add_queue(&mut self, depth: usize) {
        if self.queues.len() == MOST {
            return;
        }
        let before = self.kernel.mappings();
        let Ok(cq) = self.context.completion_queue(3 << (depth & 3)).build() else {
            return;
        };
        let ring = self.ring_since(before).expect("a queue has memory");
        self.queues.push(Queue { cq, ring, at: 0 });
    }

    /// The ring among the mappings that are there since: the one whose entries nobody has written.
    fn ring_since(&self, before: usize) -> Option<NonNull<u8>> {
        const NOBODYS: u8 = CqeOpcode::INVALID.0 << 4;
        let is_ring =
            |mapping: &usize| self.kernel.peek(*mapping, offset_of!(Cqe64, op_own)) == [NOBODYS];
        let mapping = (before..self.kernel.mappings()).find(is_ring)?;
        Some(self.kernel.mapping_address(mapping))
    }

    fn add_pair(&mut self, what: usize) {
        let (Some(_), true) = (self.queues.first(), self.pairs.len() < MOST) else {
            return;
        };
        let shape = usize::from(self.input.byte());
        let (send_cq, recv_cq) = (shape % self.queues.len(), (shape >> 2) % self.queues.len());
        let mut attr = QpAttr::new(&self.pd)
            .send_cq(&self.queues[send_cq].cq)
            .recv_cq(&self.queues[recv_cq].cq)
            .qp_type([QpType::Rc, QpType::Uc, QpType::Ud, QpType::Rc][what & 3])
            .max_send_wr(1 << (shape >> 4 & 3))
            .max_recv_wr(1 << (shape >> 6))
            .max_send_sge(1 + (what as u32 >> 2))
            .max_recv_sge(1 + (what as u32 >> 2))
            .max_inline_data(64);
        if let (Some(srq), true) = (self.shared.first(), what & 4 != 0) {
            attr = attr.srq(srq);
        }
        let Ok(qp) = self.pd.create_qp(&attr) else {
            return;
        };
        self.pairs.push(Pair {
            qp,
            send_cq,
            recv_cq,
            sent: VecDeque::new(),
            received: VecDeque::new(),
        });
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let _ = self.pairs[self.pairs.len() - 1]
                .qp
                .modify(&QpModify::to(state));
        }
    }

    fn add_other(&mut self, what: usize) {
        match what & 3 {
            0 if self.shared.len() < MOST => {
                let size = SrqAttr {
                    max_wr: 1 + (what as u32 >> 2),
                    max_sge: 2,
                };
                self.shared.extend(self.pd.create_srq(&size));
            }
            1 if self.handles.len() < MOST => {
                let path = Path {
                    gid: Gid([0xfe; 16]),
                    source_gid_index: 0,
                    port: 1,
                    hop_limit: 1,
                    traffic_class: 0,
                    flow_label: 0,
                    service_level: 0,
                    lid: 0,
                };
                self.handles.extend(self.pd.address_handle(&path));
            }
            2 if self.buffers.len() < MOST => {
                let buffer = self.pd.alloc(64 << (what >> 2), Access::LOCAL_WRITE);
                self.buffers.extend(buffer);
            }
            _ => {
                let _ = self.context.port(1);
            }
        }
    }

    /// One segment or two of the last buffer.
    fn segments(&self, shape: u8) -> Vec<Segment> {
        let Some(buffer) = self.buffers.last() else {
            return Vec::new();
        };
        let segment = |number: u8| {
            let at = usize::from(shape >> 2 & 15) + usize::from(number);
            buffer.slice(at..at + usize::from(shape >> 4))
        };
        (0..=shape & 1).flat_map(segment).collect()
    }

    fn send(&mut self, pair: usize) {
        let shape = self.input.byte();
        let ids = [self.new_id(), self.new_id()];
        let segments = self.segments(shape);
        let count = self.pairs.len();
        let Some(Pair { qp, sent, .. }) = self.pairs.get_mut(pair % count.max(1)) else {
            return;
        };
        let depth = qp.capabilities().max_send_wr;
        let mut batch = qp.send_half().batch();
        let mut pushed = Vec::new();
        for id in &ids[..1 + usize::from(shape & 1)] {
            let outcome = match (shape >> 1 & 3, self.handles.last()) {
                (0, _) => batch.send(*id).signaled().from(&segments),
                (1, _) => batch.send(*id).signaled().inline(&[7; 64]),
                (2, Some(handle)) => {
                    let to = Destination {
                        handle,
                        qp_num: 1,
                        qkey: 1,
                    };
                    batch.send_datagram(*id, to).signaled().from(&segments)
                }
                _ => batch.send(*id).from(&segments),
            };
            match outcome {
                Ok(()) => pushed.push(*id),
                Err(PostError::QueueFull { depth: told }) => assert_eq!(told, depth),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        if shape & 8 == 0 && batch.submit().is_ok() {
            sent.extend(pushed);
        }
    }

    fn receive(&mut self, pair: usize) {
        let (shape, id) = (self.input.byte(), self.new_id());
        let segments = self.segments(shape);
        let count = self.pairs.len();
        if let Some(Pair { qp, received, .. }) = self.pairs.get_mut(pair % count.max(1))
            && qp.recv_half().post(id, &segments).is_ok()
        {
            received.push_back(id);
        }
    }

    fn receive_shared(&mut self, srq: usize) {
        let (shape, id) = (self.input.byte(), self.new_id());
        let segments = self.segments(shape);
        let count = self.shared.len();
        if let Some(srq) = self.shared.get_mut(srq % count.max(1))
            && srq.post(id, &segments).is_ok()
        {
            self.waiting.push(id);
        }
    }

    /// An entry such as a card writes, changed in places.
    fn entry(&mut self) -> [u8; 64] {
        let (shape, key, counter) = (self.input.byte(), self.input.byte(), self.input.byte());
        let kind = match shape & 7 {
            0..=2 => CqeOpcode::REQ,
            3 | 4 => CqeOpcode::RESP_SEND,
            5 => CqeOpcode::REQ_ERR,
            6 => CqeOpcode::RESP_ERR,
            _ => CqeOpcode(self.input.byte() & 15),
        };
        let key = match key {
            0..0xf0 => u32::from(key & 7),
            _ => self.input.word(),
        };
        let opcode = match shape >> 3 & 3 {
            3 => self.input.byte(),
            _ => Opcode::SEND.0,
        };
        let mut entry = Cqe64 {
            srqn_uidx: key.into(),
            sop_drop_qpn: (u32::from(opcode) << 24 | key & NUMBER_MASK).into(),
            byte_cnt: u32::from(shape >> 4).into(),
            wqe_counter: match counter {
                0..0xf0 => u16::from(counter & 31),
                _ => self.input.half(),
            }
            .into(),
            op_own: kind.0 << 4 | shape >> 4 & 0xc,
            ..Default::default()
        };
        if shape & 0x40 != 0 {
            entry.flags_rqpn = self.input.word().into();
        }
        let mut bytes: [u8; 64] = zerocopy::transmute!(entry);
        if shape & 0x20 != 0 {
            bytes[usize::from(self.input.byte()) % 63] = self.input.byte();
        }
        bytes
    }

    /// Writes an entry where the card would.
    fn complete(&mut self, queue: usize) {
        let entry = self.entry();
        let count = self.queues.len();
        if let Some(queue) = self.queues.get_mut(queue % count.max(1)) {
            queue.put(self.kernel, entry);
        }
    }

    fn poll(&mut self, what: usize) {
        let count = self.queues.len();
        let number = what % count.max(1);
        let Some(queue) = self.queues.get_mut(number) else {
            return;
        };
        let mut entries = [Completion::default(); 4];
        let found: Vec<Completion> = match what >> 2 {
            limit @ 0..=2 => queue.cq.poll(&mut entries[..1 + limit]).to_vec(),
            _ => queue.cq.completions().take(64).collect(),
        };
        let _ = queue.cq.arm(what & 1 != 0);
        for completion in found {
            self.check(number, &completion);
        }
    }

    /// A completion is of something that is under way and completes there. What was posted before it
    /// in a queue is done as well.
    fn check(&mut self, queue: usize, completion: &Completion) {
        assert!(!format!("{completion:?}").is_empty());
        let wr_id = completion.wr_id();
        if wr_id == u64::MAX {
            let failure = completion.result().expect_err("of nothing");
            return assert_eq!(failure.status, CompletionStatus::Fatal);
        }
        for pair in &mut self.pairs {
            let sent = Some(&mut pair.sent).filter(|_| pair.send_cq == queue);
            let received = Some(&mut pair.received).filter(|_| pair.recv_cq == queue);
            for list in [sent, received].into_iter().flatten() {
                if let Some(at) = list.iter().position(|id| *id == wr_id) {
                    list.drain(..=at);
                    return;
                }
            }
        }
        let at = self.waiting.iter().position(|id| *id == wr_id);
        self.waiting.swap_remove(at.expect("it was posted"));
    }

    /// Resets a queue pair, or moves it to another state.
    fn move_pair(&mut self, what: usize) {
        let count = self.pairs.len();
        let Some(pair) = self.pairs.get_mut(what % count.max(1)) else {
            return;
        };
        if what & 4 == 0 {
            if pair.qp.modify(&QpModify::to(QpState::Reset)).is_ok() {
                pair.sent.clear();
                pair.received.clear();
            }
        } else {
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let _ = pair.qp.modify(&QpModify::to(state));
            }
        }
    }

    /// Resizes a queue, with the mark of the card at its end or without.
    fn resize(&mut self, what: usize) {
        let count = self.queues.len();
        let number = what % count.max(1);
        let before = self.kernel.mappings();
        let Some(queue) = self.queues.get_mut(number) else {
            return;
        };
        if what & 4 == 0 {
            let mark = Cqe64 {
                op_own: CqeOpcode::RESIZE_CQ.0 << 4,
                ..Default::default()
            };
            queue.put(self.kernel, zerocopy::transmute!(mark));
        }
        let _ = queue.cq.resize(3 << (what >> 2 & 3));
        // The old memory is gone when the queue has another.
        if self.kernel.mapping_at(queue.ring).is_none() {
            let ring = self.ring_since(before - 1);
            self.queues[number].ring = ring.unwrap_or(NonNull::dangling());
        }
    }

    /// Writes anything anywhere, but to the registers' page, which is not memory of this process.
    fn disturb(&mut self) {
        let mapping = usize::from(self.input.byte()) % self.kernel.mappings().max(1);
        let at = usize::from(self.input.byte()) * 16 + usize::from(self.input.byte() & 15);
        let bytes = self.input.word().to_ne_bytes();
        if mapping < self.kernel.mappings() {
            self.kernel.poke(mapping, at, &bytes);
        }
    }

    fn remove(&mut self, what: usize) {
        fn last<T>(list: &mut Vec<T>) {
            list.pop();
        }
        match what & 3 {
            0 => last(&mut self.pairs),
            1 => last(&mut self.buffers),
            2 => last(&mut self.handles),
            _ => {
                if let Some(pair) = self.pairs.pop() {
                    let _ = pair.qp.destroy();
                }
            }
        }
    }
}

impl Queue {
    /// Writes an entry, as the program's.
    fn put(&mut self, kernel: &Hostile, mut entry: [u8; 64]) {
        let count = self.cq.depth() + 1;
        let last = &mut entry[offset_of!(Cqe64, op_own)];
        *last = *last & 0xfe | u8::from(self.at & count != 0);
        if let Some(mapping) = kernel.mapping_at(self.ring) {
            let at = (self.at & (count - 1)) as usize * entry.len();
            kernel.poke(mapping, at, &entry);
        }
        self.at = self.at.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer, a completion queue, and a queue pair with a send and a receive under way.
    const POSTED: [u8; 8] = [0xa2, 0x10, 0x01, 0x50, 0x03, 0x40, 0x05, 0x40];

    /// So that the target gets beyond refusals.
    #[test]
    fn what_is_posted_to_a_device_that_is_as_it_should_be_completes() {
        for form in 0..8 {
            let kernel = kernel(form, &[]);
            let mut world = World::new(&kernel, Input::new(&POSTED)).unwrap();
            world.work();
            let pair = &world.pairs[0];
            assert_eq!((pair.sent.len(), pair.received.len()), (1, 1));
            let queue = &mut world.queues[0];
            for op_own in [CqeOpcode::REQ, CqeOpcode::RESP_SEND] {
                let entry = Cqe64 {
                    // Of the first queue pair that has one of the library's.
                    srqn_uidx: 0.into(),
                    sop_drop_qpn: (u32::from(Opcode::SEND.0) << 24 | pair.qp.number()).into(),
                    op_own: op_own.0 << 4,
                    ..Default::default()
                };
                queue.put(&kernel, zerocopy::transmute!(entry));
            }
            world.poll(4);
            let pair = &world.pairs[0];
            assert_eq!((pair.sent.len(), pair.received.len()), (0, 0));
            drop(world);
            assert_eq!(kernel.mappings(), 0);
        }
    }
}
