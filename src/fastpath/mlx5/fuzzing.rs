//! Fuzz target: completions that no device writes, between posts, resets, and all else that happens to
//! queues.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, Cqe64, CqeOpcode, UAR_SIZE};
use rdmacm_kernel_abi::uverbs::WcStatus;
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;

use super::completion_queue::CompletionQueue;
use super::cq_ring::CqRing;
use super::directory::Directory;
use super::grant::{Grant, Settings};
use super::posted::{Incoming, QueuePair, Receives, Sends, SharedReceives};
use super::queue_memory::{QueueMemory, pages};
use super::record::{Record, Records};
use super::recv_queue::RecvQueue;
use super::register::{ArmRegister, Register, Use};
use super::registers::Lease;
use super::scatter::{RegionNote, Regions};
use super::send_queue::{Posting, SendQueue};
use super::setup::places;
use super::shared_recv_queue::SharedRecvQueue;
use super::sizes::{RecvSize, SendSize, SharedSize};
use crate::fastpath::request::{Operation, Payload, PostError, RemoteAddress, Request, SendFlags};
use crate::fastpath::{Completion, QpType, Segment};
use crate::sys::hostile::{Hostile, Input};
use crate::sys::{Kernel, MapFor, Mapping, Memory};

/// Completions of any bytes between posts, resets, ends and changes of queues. Each that is reported
/// is of a request or a receive that is under way in that queue, or says that something is wrong; and
/// nothing is written but to registered memory.
pub fn mlx5_completions(input: &[u8]) {
    let mut input = Input::new(input);
    let mut world = World::new(input.byte());
    for _ in 0..128 {
        if input.is_done() {
            break;
        }
        world.step(&mut input);
    }
    world.check_memory();
}

/// A completion queue, and where its device goes on.
struct Cq {
    queue: CompletionQueue,
    at: u32,
}

/// A queue pair, with what is under way in it.
struct Pair {
    key: u32,
    places: Vec<(Arc<Directory>, Arc<QueuePair>)>,
    send_cq: usize,
    recv_cq: usize,
    record: Arc<Record>,
    send: Posting,
    recv: Option<RecvQueue>,
    sent: VecDeque<u64>,
    received: VecDeque<u64>,
}

/// Data, with the bytes that nothing may change on both sides.
struct Area {
    memory: Arc<Memory>,
    lkey: u32,
    note: Option<RegionNote>,
    /// What is there once it is not registered any more.
    last: Option<Vec<u8>>,
}

struct World {
    kernel: Arc<dyn Kernel>,
    grant: Grant,
    settings: Settings,
    records: Arc<Records>,
    regions: Arc<Regions>,
    register: Arc<Register>,
    arm: ArmRegister,
    cqs: Vec<Cq>,
    srq: SharedRecvQueue,
    pairs: Vec<Pair>,
    areas: Vec<Area>,
    /// What was ever posted to the shared queue, and not reported.
    shared: BTreeSet<u64>,
    next_id: u64,
}

const KEYS: [u32; 3] = [0, 1, 0x00ab_cdef];
const AREA: usize = 512;
/// Where in its page an area is registered.
const BEGIN: usize = 1024;
const NOTHING: [u8; 4096] = [0; 4096];

impl World {
    fn new(form: u8) -> Self {
        let kernel: Arc<dyn Kernel> = Hostile::new();
        let grant = Grant::new(&AllocUcontextResp {
            bf_reg_size: 512,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 1 << 15,
            max_recv_wr: 1 << 15,
            max_srq_recv_wr: 1 << 15,
            num_uars_per_page: 1,
            cqe_version: form & 1,
            ..Default::default()
        });
        let settings = Settings {
            completion_bytes: 64 << (form >> 1 & 1),
            ..Settings::default()
        };
        let null = File::open("/dev/null").expect("/dev/null");
        let page = Mapping::new(&kernel, null.as_fd(), UAR_SIZE, 0, MapFor::Writing);
        let page = Arc::new(page.expect("a page"));
        let register = Register::new(&page, 0, 0, 256, Use::Alone, 0).expect("a register");
        let grant = grant.expect("a good answer");
        let records: Arc<Records> = Arc::default();
        let size = SharedSize::new(5, 2, &grant).expect("a size");
        let memory = pages(&kernel, size.bytes()).expect("memory");
        let memory = QueueMemory::new(&memory, 0, size.places, size.shift);
        let record = Arc::new(records.take(&kernel).expect("memory"));
        let srq = SharedRecvQueue::new(Arc::new(SharedReceives::new(memory)), record, size);
        let mut world = Self {
            kernel,
            grant,
            settings,
            records,
            regions: Arc::default(),
            register: Arc::new(register),
            arm: ArmRegister::new(&page, 0).expect("a register"),
            cqs: Vec::new(),
            srq,
            pairs: Vec::new(),
            areas: Vec::new(),
            shared: BTreeSet::new(),
            next_id: 1,
        };
        for _ in 0..2 {
            world.add_cq();
            world.add_area();
        }
        // Both in one, each in its own, and one of the shared queue.
        world.add_pair(0, (0, 0), form & 4 != 0);
        world.add_pair(1, (0, 1), form & 8 != 0);
        world
    }

    fn ring(&self, count: u32) -> Arc<CqRing> {
        let bytes = self.settings.completion_bytes;
        Arc::new(CqRing::new(&self.kernel, count, bytes).expect("memory"))
    }

    fn add_cq(&mut self) {
        let ring = self.ring(8);
        let record = self.records.take(&self.kernel).expect("memory");
        let directory = Directory::new(Arc::clone(&ring), record, self.grant.has_user_index);
        let queue = CompletionQueue::new(
            ring,
            Arc::new(directory),
            7,
            self.arm.clone(),
            Arc::new(AtomicU32::new(0)),
            Arc::clone(&self.regions),
        );
        self.cqs.push(Cq { queue, at: 0 });
    }

    fn add_area(&mut self) {
        let memory = pages(&self.kernel, 4096).expect("memory");
        let mut area = Area {
            memory,
            lkey: 0x100 << self.areas.len(),
            note: None,
            last: None,
        };
        area.register(&self.regions);
        self.areas.push(area);
    }

    fn add_pair(&mut self, key: usize, (send_cq, recv_cq): (usize, usize), is_shared: bool) {
        let cap = QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 32,
        };
        let size = SendSize::new(&cap, QpType::Rc, &self.grant).expect("a size");
        let send_size = size.expect("a send queue");
        let size = RecvSize::new(&cap, &self.grant).expect("a size");
        let recv_size = size.filter(|_| !is_shared);
        let recv_bytes = recv_size.map_or(0, |size| size.bytes());
        let memory = pages(&self.kernel, recv_bytes + send_size.bytes()).expect("memory");
        let record = Arc::new(self.records.take(&self.kernel).expect("memory"));
        let blocks = QueueMemory::new(&memory, recv_bytes, send_size.blocks, 6);
        let sends = Arc::new(Sends::new(blocks, true));
        let send = Posting::new(SendQueue::new(
            Arc::clone(&sends),
            Lease::of(Arc::clone(&self.register)),
            Arc::clone(&record),
            0x42,
            send_size,
            false,
            self.settings,
        ));
        let recv = recv_size.map(|size| {
            let memory = QueueMemory::new(&memory, 0, size.depth, size.shift);
            let receives = Arc::new(Receives::new(memory));
            let queue = RecvQueue::new(Arc::clone(&receives), Arc::clone(&record), size);
            (receives, queue)
        });
        let (receives, recv) = recv.unzip();
        let incoming = match receives {
            Some(receives) => Incoming::Own(receives),
            None => Incoming::Shared(Arc::clone(self.srq.receives())),
        };
        let directory = |cq: usize| Some(Arc::clone(self.cqs[cq].queue.directory()));
        let (from, to) = (directory(send_cq), directory(recv_cq));
        let places = places((KEYS[key], 0x42), Some(sends), from, incoming, to);
        for (directory, pair) in &places {
            directory.add(pair);
        }
        self.pairs.push(Pair {
            key: KEYS[key],
            places,
            send_cq,
            recv_cq,
            record,
            send,
            recv,
            sent: VecDeque::new(),
            received: VecDeque::new(),
        });
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.byte();
        let cq = usize::from(step >> 4 & 1);
        let pair = usize::from(step >> 5) % self.pairs.len();
        match step & 15 {
            0..=3 => self.complete(cq, input),
            4 => {
                let index = input.word();
                let bytes = self.entry(input);
                self.cqs[cq].queue.ring().put(index, &bytes);
            }
            5 | 6 => self.poll(cq, usize::from(step >> 5)),
            7 => self.poll_one_by_one(cq),
            8 | 9 => self.send(pair, input),
            10 => self.receive(pair, input),
            11 => self.receive_shared(input),
            12 => match input.byte() & 3 {
                0 => self.reset(pair),
                1 => self.replace(pair, input),
                2 => self.cqs[cq].queue.arm(true),
                _ => {
                    let area = input.below(self.areas.len());
                    self.areas[area].change(&self.regions);
                }
            },
            13 => self.resize(cq, input),
            _ => self.complete(cq, input),
        }
    }

    /// The bytes of an entry: a shape that leads far, changed in places.
    fn entry(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let mut bytes = vec![0x5a; self.settings.completion_bytes as usize];
        let half = bytes.len() - size_of::<Cqe64>();
        let key = match input.byte() {
            choice @ 0..0xe0 => self.pairs[usize::from(choice) % self.pairs.len()].key,
            _ => input.word(),
        };
        let shape = input.byte();
        let counter = match shape & 1 {
            0 => u16::from(input.byte() & 15),
            _ => input.half(),
        };
        let opcode = [0x0a, 0x08, 0x10, 0x12, 0x25, 0x0d, 0x00, input.byte()];
        let opcode = opcode[usize::from(shape >> 1 & 7)];
        let length = match shape >> 4 & 3 {
            3 => input.word(),
            _ => u32::from(input.byte() & 0x7f),
        };
        let mut put = |at: usize, with: &[u8]| {
            bytes[half + at..][..with.len()].copy_from_slice(with);
        };
        put(offset_of!(Cqe64, srqn_uidx), &key.to_be_bytes());
        let word = u32::from(opcode) << 24 | key & 0x00ff_ffff;
        put(offset_of!(Cqe64, sop_drop_qpn), &word.to_be_bytes());
        put(offset_of!(Cqe64, byte_cnt), &length.to_be_bytes());
        put(offset_of!(Cqe64, wqe_counter), &counter.to_be_bytes());
        put(offset_of!(Cqe64, op_own), &[input.byte()]);
        if shape & 0x80 != 0 {
            put(input.below(64), &[input.byte()]);
        }
        bytes
    }

    /// Writes an entry where the device would, as the program's unless the input says otherwise.
    fn complete(&mut self, cq: usize, input: &mut Input<'_>) {
        let mut bytes = self.entry(input);
        let is_whole = input.byte() < 0xf0;
        let cq = &mut self.cqs[cq];
        let ring = cq.queue.ring();
        let last = bytes.last_mut().expect("an entry has bytes");
        if is_whole {
            *last = *last & 0xfe | u8::from(cq.at & ring.count() != 0);
        }
        ring.put(cq.at, &bytes);
        cq.at = cq.at.wrapping_add(1);
    }

    fn poll(&mut self, cq: usize, count: usize) {
        let mut entries = [Completion::default(); 8];
        let polled = self.cqs[cq].queue.poll(&mut entries[..count]).to_vec();
        for completion in &polled {
            self.check(cq, completion);
        }
    }

    fn poll_one_by_one(&mut self, cq: usize) {
        let end = self.cqs[cq].queue.end();
        let mut count = 0;
        while let Some(completion) = self.cqs[cq].queue.next_before(end) {
            self.check(cq, &completion);
            count += 1;
            assert!(count <= 64, "each entry is looked at once");
        }
        self.cqs[cq].queue.give_back();
    }

    /// A completion is of something that is under way and completes there. What was posted before it
    /// is done as well.
    fn check(&mut self, cq: usize, completion: &Completion) {
        let wc = &completion.0;
        assert!(!format!("{completion:?}").is_empty());
        if wc.wr_id == u64::MAX {
            assert_eq!(wc.status, WcStatus::FATAL_ERR.0);
            return;
        }
        for pair in &mut self.pairs {
            let sent = Some(&mut pair.sent).filter(|_| pair.send_cq == cq);
            let received = Some(&mut pair.received).filter(|_| pair.recv_cq == cq);
            for list in [sent, received].into_iter().flatten() {
                if let Some(at) = list.iter().position(|id| *id == wc.wr_id) {
                    list.drain(..=at);
                    return;
                }
            }
        }
        assert!(self.shared.remove(&wc.wr_id), "{wc:?} is of nothing");
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn segments(&self, input: &mut Input<'_>) -> Vec<Segment> {
        let shape = input.byte();
        let area = &self.areas[usize::from(shape & 1)];
        let begin = area.memory.address().as_ptr() as u64 + BEGIN as u64;
        let segment = |number: u8| {
            let length = u32::from(shape >> 2 & 0x1f);
            // Some reach beyond the end of what is registered, or name nothing.
            let offset = if shape & 0x80 != 0 {
                AREA as u64 - 8
            } else {
                64
            };
            let lkey = area.lkey ^ u32::from(shape == 0xff);
            Segment::of_buffer(begin + offset * u64::from(number + 1), length, lkey)
        };
        (0..shape >> 1 & 1).chain(0..1).map(segment).collect()
    }

    /// Builds some requests, and rings or lets them be.
    fn send(&mut self, pair: usize, input: &mut Input<'_>) {
        let shape = input.byte();
        let mut pushed = Vec::new();
        for _ in 0..shape & 3 {
            let wr_id = self.new_id();
            let segments = self.segments(input);
            let at = RemoteAddress {
                address: 0,
                rkey: 1,
            };
            let (operation, payload) = match input.byte() & 7 {
                0 => (Operation::Send, Payload::Inline(&[7; 32])),
                1 => (
                    Operation::FetchAdd { at, add: 1 },
                    Payload::Segments(&segments[..1]),
                ),
                2 | 3 => (Operation::Read(at), Payload::Segments(&segments)),
                4 => (Operation::LocalInvalidate(9), Payload::Segments(&[])),
                _ => (Operation::Send, Payload::Segments(&segments)),
            };
            let request = Request {
                wr_id,
                operation,
                flags: SendFlags::SIGNALED,
                payload,
            };
            let pair = &mut self.pairs[pair];
            let room = pair.send.depth() as usize - pair.sent.len() - pushed.len();
            match pair.send.push(&request) {
                Ok(()) => {
                    assert!(room > 0);
                    pushed.push(wr_id);
                }
                Err(error) => {
                    assert!(matches!(error, PostError::QueueFull { .. }), "{error}");
                    assert_eq!(room, 0);
                }
            }
        }
        let pair = &mut self.pairs[pair];
        if shape & 0x80 == 0 {
            pair.send.ring_doorbell();
            pair.sent.extend(pushed);
        } else {
            pair.send.discard();
        }
    }

    fn receive(&mut self, pair: usize, input: &mut Input<'_>) {
        let (wr_id, segments) = (self.new_id(), self.segments(input));
        let pair = &mut self.pairs[pair];
        let Some(queue) = &mut pair.recv else { return };
        let room = queue.depth() as usize - pair.received.len();
        match queue.push(wr_id, &segments) {
            Ok(()) => {
                assert!(room > 0);
                pair.received.push_back(wr_id);
            }
            Err(error) => {
                assert!(matches!(error, PostError::QueueFull { .. }), "{error}");
                assert_eq!(room, 0);
            }
        }
        queue.publish();
        assert_eq!(queue.waiting() as usize, pair.received.len());
    }

    fn receive_shared(&mut self, input: &mut Input<'_>) {
        let (wr_id, segments) = (self.new_id(), self.segments(input));
        match self.srq.push(wr_id, &segments) {
            Ok(()) => assert!(self.shared.insert(wr_id)),
            Err(error) => {
                assert!(matches!(error, PostError::QueueFull { .. }), "{error}");
                assert!(self.shared.len() >= self.srq.depth() as usize);
            }
        }
        self.srq.publish();
    }

    fn reset(&mut self, pair: usize) {
        let pair = &mut self.pairs[pair];
        for (directory, part) in &pair.places {
            directory.clean(part);
        }
        pair.record.reset();
        for (_, part) in &pair.places {
            part.reset();
        }
        pair.sent.clear();
        pair.received.clear();
    }

    /// Destroys a queue pair, and makes another that may be known by the same.
    fn replace(&mut self, pair: usize, input: &mut Input<'_>) {
        let gone = self.pairs.remove(pair);
        for (directory, part) in &gone.places {
            directory.remove(part);
        }
        let choice = input.byte();
        let free = (0..KEYS.len()).filter(|at| self.pairs.iter().all(|pair| pair.key != KEYS[*at]));
        let free: Vec<usize> = free.collect();
        let key = free[usize::from(choice >> 3) % free.len()];
        let (send, recv) = (usize::from(choice & 1), usize::from(choice >> 1 & 1));
        self.add_pair(key, (send, recv), choice & 4 != 0);
    }

    /// As a program, the kernel and the device resize a queue together.
    fn resize(&mut self, cq: usize, input: &mut Input<'_>) {
        let shape = input.byte();
        let ring = self.ring(4 << (shape & 3));
        let mut mark = self.entry(input);
        let Cq { queue, at } = &mut self.cqs[cq];
        let directory = Arc::clone(queue.directory());
        let mut held = directory.hold();
        queue.catch_up_with(&mut held);
        queue.give_back();
        let owner = u8::from(*at & queue.ring().count() != 0);
        *mark.last_mut().expect("an entry has bytes") = CqeOpcode::RESIZE_CQ.0 << 4 | owner;
        if shape & 0x80 == 0 {
            queue.ring().put(*at, &mark);
        }
        queue.move_to(ring, held);
        *at = at.wrapping_add(1);
    }

    /// Nothing was written but where it may be.
    fn check_memory(&self) {
        for area in &self.areas {
            let bytes = area.bytes();
            let (before, behind) = (&bytes[..BEGIN], &bytes[BEGIN + AREA..]);
            // As wholes: coverage is counted of each comparison.
            assert!(*before == NOTHING[..before.len()] && *behind == NOTHING[..behind.len()]);
            assert!(area.last.as_ref().is_none_or(|last| *last == bytes));
        }
    }
}

impl Area {
    fn register(&mut self, regions: &Arc<Regions>) {
        let begin = self.memory.address().as_ptr() as u64 + BEGIN as u64;
        self.note = Some(regions.note(self.lkey, (begin, begin, AREA as u64)));
        self.last = None;
    }

    /// Takes the registration back, or registers it again, under the same key.
    fn change(&mut self, regions: &Arc<Regions>) {
        match self.note.take() {
            None => self.register(regions),
            Some(note) => {
                drop(note);
                self.last = Some(self.bytes());
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let first = self.memory.address().as_ptr();
        // SAFETY: the memory has so many bytes, and only this thread touches it.
        unsafe { std::slice::from_raw_parts(first, self.memory.length()) }.to_vec()
    }
}
