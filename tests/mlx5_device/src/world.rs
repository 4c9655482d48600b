//! Everything that the kernel and the card know.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rdmacm_kernel_abi::uverbs::{self, QpState, QpType};

use crate::channel::Channel;
use crate::config::Config;
use crate::memory::Memory;
use crate::violation::Violations;

/// What went wrong with a command: the kernel's error number.
pub(crate) type Outcome<T = ()> = Result<T, i32>;

/// An open device file.
pub(crate) type FileId = u32;

/// What a program knows by a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Pd(u32),
    Mr(u32),
    Mw(u32),
    Ah { pd: u32 },
    Uar(u32),
    Cq(u32),
    Srq(u32),
    Qp(u32),
}

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) violations: Violations,
    pub(crate) files: BTreeMap<FileId, OpenFile>,
    pub(crate) objects: BTreeMap<(FileId, u32), Object>,
    pub(crate) keys: BTreeMap<u32, Key>,
    pub(crate) uars: BTreeMap<u32, Uar>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    pub(crate) srqs: BTreeMap<u32, Srq>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) channels: BTreeMap<u32, Channel>,
    /// Pages that the program gave back, for the next that is asked for.
    pub(crate) spare_pages: Vec<u64>,
    /// Queue pairs and completion queues that there were.
    pub(crate) buried: VecDeque<u32>,
    /// When channels were looked at.
    pub(crate) looked: Instant,
    next: u32,
}

/// A file, after its context was made.
#[derive(Debug, Default)]
pub(crate) struct OpenFile {
    pub(crate) context: Option<UserContext>,
    /// Where events go that belong to nobody, and those of objects that name no file.
    pub(crate) async_channel: Option<u32>,
    pub(crate) next_handle: u32,
}

/// What the kernel and the program agreed on.
#[derive(Debug, Default)]
pub(crate) struct UserContext {
    /// The pages that came with the context.
    pub(crate) static_uars: Vec<u32>,
    /// How many queue pairs use each register that came with the context, in the kernel's own
    /// numbering of two a page.
    pub(crate) registers: Vec<u32>,
    /// The first register that belongs to one queue pair alone.
    pub(crate) first_own: usize,
    /// Pages are allocated one by one.
    pub(crate) is_dynamic: bool,
}

/// A memory key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) file: FileId,
    /// The low byte.
    pub(crate) tag: u8,
    pub(crate) pd: u32,
    pub(crate) kind: KeyKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Region {
        memory: Memory,
        /// The address that requests call the start by.
        start: u64,
        access: uverbs::AccessFlags,
    },
    Window {
        is_type_2: bool,
        bound: Option<Bound>,
    },
}

/// What a window shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The queue pair it is open to; of type 1 any.
    pub(crate) qp: Option<u32>,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) access: uverbs::AccessFlags,
    /// The region below, and the address in it.
    pub(crate) region: u32,
    pub(crate) address: u64,
}

/// A doorbell page.
#[derive(Debug)]
pub(crate) struct Uar {
    pub(crate) file: FileId,
    /// Its memory, once mapped.
    pub(crate) page: Option<u64>,
    /// The offset that maps it.
    pub(crate) offset: u64,
    /// For BlueFlame.
    pub(crate) is_write_combining: bool,
    /// Copies of requests that were seen in its registers.
    pub(crate) copies: Vec<Copy>,
    /// What was in its four halves of registers after the last look, where that is known.
    pub(crate) seen: [Option<Vec<u8>>; 4],
}

/// A copy of a request that has still to be compared with the request.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) half: usize,
    pub(crate) expected: Vec<u8>,
    pub(crate) until: Instant,
    pub(crate) qp: u32,
}

/// What the record of a completion queue says before it is armed: no arm word.
pub(crate) const UNARMED: u32 = u32::MAX;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) user_handle: u64,
    pub(crate) memory: Memory,
    pub(crate) entries: u32,
    pub(crate) entry_size: u32,
    pub(crate) record: Memory,
    pub(crate) uar: u32,
    pub(crate) channel: Option<u32>,
    pub(crate) async_channel: Option<u32>,
    /// How many completions there were.
    pub(crate) produced: u32,
    /// The same when the last solicited one had been written.
    pub(crate) solicited: u32,
    /// Whether an event is due, and only for what is solicited.
    pub(crate) armed: Option<Armed>,
    /// The arm word that was last acted on, or [`UNARMED`].
    pub(crate) last_arm: u32,
    pub(crate) events: u32,
    /// Since when it is armed with a serial whose event was read already.
    pub(crate) stale_since: Option<Instant>,
    pub(crate) is_broken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Armed {
    Any,
    Solicited,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: u32,
    pub(crate) user_handle: u64,
    pub(crate) memory: Memory,
    pub(crate) entries: u32,
    pub(crate) stride: u32,
    pub(crate) max_segments: u32,
    pub(crate) record: Memory,
    pub(crate) async_channel: Option<u32>,
    pub(crate) limit: u32,
    /// The next request in the list.
    pub(crate) head: u16,
    pub(crate) consumed: u16,
    pub(crate) events: u32,
    pub(crate) is_stopped: bool,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) file: FileId,
    pub(crate) number: u32,
    pub(crate) kind: QpType,
    pub(crate) pd: u32,
    pub(crate) user_handle: u64,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
    pub(crate) async_channel: Option<u32>,
    pub(crate) recv: Memory,
    pub(crate) recv_count: u32,
    pub(crate) recv_shift: u32,
    pub(crate) send: Memory,
    /// Basic blocks.
    pub(crate) send_count: u32,
    pub(crate) record: Memory,
    pub(crate) uar: u32,
    /// The register, of those that came with the context.
    pub(crate) register: Option<usize>,
    pub(crate) index: u32,
    pub(crate) max_inline_answer: u32,
    pub(crate) max_inline_receive: u32,
    pub(crate) attr: uverbs::QueryQpResp,
    pub(crate) state: QpState,
    pub(crate) groups: Vec<[u8; 16]>,
    pub(crate) events: u32,
    /// The next block to execute.
    pub(crate) send_next: u16,
    pub(crate) recv_next: u16,
    /// A doorbell was rung and not all is done.
    pub(crate) is_rung: bool,
    pub(crate) wait: Option<Wait>,
    /// The card does not touch it any more.
    pub(crate) is_stopped: bool,
    pub(crate) is_last_reported: bool,
    /// The peer was heard of.
    pub(crate) is_known: bool,
}

/// A request that is to be tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) next: Instant,
    pub(crate) reason: WaitReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The peer has no receive; so often it may still be tried, without end if `None`.
    NoReceive { left: Option<u8> },
    /// The peer does not answer; when to give up, if ever.
    NoAnswer { until: Option<Instant> },
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            violations: Violations::new(&config),
            config,
            files: BTreeMap::new(),
            objects: BTreeMap::new(),
            keys: BTreeMap::new(),
            uars: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            channels: BTreeMap::new(),
            spare_pages: Vec::new(),
            buried: VecDeque::new(),
            looked: Instant::now(),
            next: 0,
        }
    }

    /// A number that was not given before. Kinds of objects count from different starts, so that
    /// numbers which are mixed up lead nowhere.
    pub(crate) fn next_number(&mut self, start: u32) -> u32 {
        self.next += 1;
        start + self.next
    }

    pub(crate) fn insert(&mut self, file: FileId, object: Object) -> u32 {
        let open = self.files.entry(file).or_default();
        open.next_handle += 1;
        let handle = open.next_handle;
        self.objects.insert((file, handle), object);
        handle
    }

    pub(crate) fn object(&self, file: FileId, handle: u32) -> Outcome<Object> {
        let found = self.objects.get(&(file, handle));
        found.copied().ok_or(libc::ENOENT)
    }

    pub(crate) fn pd(&self, file: FileId, handle: u32) -> Outcome<u32> {
        match self.object(file, handle)? {
            Object::Pd(pd) => Ok(pd),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn cq_number(&self, file: FileId, handle: u32) -> Outcome<u32> {
        match self.object(file, handle)? {
            Object::Cq(number) => Ok(number),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn srq_number(&self, file: FileId, handle: u32) -> Outcome<u32> {
        match self.object(file, handle)? {
            Object::Srq(number) => Ok(number),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn qp_number(&self, file: FileId, handle: u32) -> Outcome<u32> {
        match self.object(file, handle)? {
            Object::Qp(number) => Ok(number),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn violation(&mut self, text: String) {
        self.violations.add(text);
    }

    /// Something is wrong with a queue pair's requests: the card stops at it.
    pub(crate) fn stop(&mut self, number: u32, text: String) {
        self.violation(format!("queue pair {number:#x}: {text}"));
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.is_stopped = true;
        }
    }

    /// The program gives memory back. True where it was a doorbell page, which is no memory of the
    /// kernel's then.
    pub(crate) fn note_unmap(&mut self, address: u64, length: u64) -> bool {
        for uar in self.uars.values_mut() {
            if uar.page == Some(address) {
                uar.page = None;
                self.spare_pages.push(address);
                return true;
            }
        }
        let gone = |memory: &Memory| memory.overlaps(address, length);
        let mut texts = Vec::new();
        for (number, qp) in &mut self.qps {
            if [&qp.send, &qp.recv, &qp.record].into_iter().any(gone) {
                texts.push(format!("the memory of queue pair {number:#x} was unmapped"));
                qp.is_stopped = true;
            }
        }
        for (number, cq) in &mut self.cqs {
            if [&cq.memory, &cq.record].into_iter().any(gone) {
                texts.push(format!("completion queue {number:#x} was unmapped"));
                cq.is_broken = true;
            }
        }
        for (number, srq) in &mut self.srqs {
            if [&srq.memory, &srq.record].into_iter().any(gone) {
                texts.push(format!("shared receive queue {number:#x} was unmapped"));
                srq.is_stopped = true;
            }
        }
        let mut regions = Vec::new();
        for (index, key) in &self.keys {
            match &key.kind {
                KeyKind::Region { memory, .. } if gone(memory) => regions.push(*index),
                _ => {}
            }
        }
        for index in regions {
            self.keys.remove(&index);
            texts.push(format!("region {index:#x} was unmapped while registered"));
        }
        texts.into_iter().for_each(|text| self.violation(text));
        false
    }
}

/// How long a responder that has no receive wants to be left alone, by its code.
pub(crate) fn rnr_delay(code: u8) -> Duration {
    const HUNDREDTHS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(HUNDREDTHS[usize::from(code & 31)]) * 10)
}
