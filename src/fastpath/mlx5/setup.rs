//! The driver's part of the commands that make queues: the library allocates the memory, the kernel
//! is told where it is.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rdmacm_kernel_abi::mlx5::{
    CreateCq, CreateCqFlags, CreateCqResp, CreateQp, CreateQpResp, CreateSrq, CreateSrqResp,
    KNOWS_ECE, NUMBER_MASK, QpFlags, ResizeCq,
};
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;
use zerocopy::IntoBytes;

use super::card::{Card, UserIndex};
use super::completion_queue::CompletionQueue;
use super::cq_ring::CqRing;
use super::directory::{Directory, Held};
use super::posted::{Incoming, QueuePair, Receives, Sends, SharedReceives};
use super::queue_memory::{QueueMemory, pages};
use super::record::Record;
use super::recv_queue::RecvQueue;
#[cfg(test)]
use super::register::Register;
use super::registers::Lease;
use super::send_queue::SendQueue;
use super::shared_recv_queue::SharedRecvQueue;
use super::sizes::{BLOCK, RecvSize, SendSize, SharedSize};
use crate::device::{Context, DriverPart, Kept};
use crate::error::{Error, Result};
use crate::fastpath::provider::bad_queue;
use crate::fastpath::setup::{QpMade, QpQueues, QpWish};
use crate::fastpath::{QpType, queues};
use crate::qp_table::QueuePairMemory;
use crate::sys::Memory;

/// The driver's part of making a completion queue.
#[derive(Debug)]
pub(crate) struct CqSetup {
    card: Arc<Card>,
    ring: Arc<CqRing>,
    directory: Arc<Directory>,
    request: CreateCq,
    answer: CreateCqResp,
}

impl CqSetup {
    pub(crate) fn new(context: &Context, entries: u32) -> Result<Self> {
        let card = Card::of(context)?;
        let ring = new_ring("create_cq", context, &card, entries)?;
        let (record, has_user_index) = (card.record(context)?, card.grant.has_user_index);
        let directory = Directory::new(Arc::clone(&ring), record, has_user_index);
        let page = card.registers.page_of_completion_queues();
        let mut request = CreateCq {
            buf_addr: ring.address(),
            db_addr: directory.record().address(),
            cqe_size: ring.bytes_per_entry(),
            ..Default::default()
        };
        if let Some(page) = page {
            request.flags = CreateCqFlags::UAR_PAGE_INDEX.bits();
            request.uar_page_index = page as u16;
        }
        Ok(Self {
            card,
            ring,
            directory: Arc::new(directory),
            request,
            answer: CreateCqResp::default(),
        })
    }

    /// How many entries the kernel is told: it adds one.
    pub(crate) fn entries(&self) -> u32 {
        self.ring.count() - 1
    }

    /// The directory has the entries, also when they are others later, and the record.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        vec![self.directory.clone()]
    }

    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.answer.as_mut_bytes())
    }

    pub(crate) fn queue(self) -> CompletionQueue {
        CompletionQueue::new(
            self.ring,
            self.directory,
            self.answer.cqn,
            self.card.registers.arm().clone(),
            Arc::new(AtomicU32::new(0)),
            Arc::clone(&self.card.regions),
        )
    }
}

/// More entries than this and a counter of 24 bits would not tell a lap from the next.
const MOST_ENTRIES: u32 = 1 << 22;

/// Memory for so many entries. One is kept free: a queue that is full would look empty to the device.
fn new_ring(
    operation: &'static str,
    context: &Context,
    card: &Card,
    entries: u32,
) -> Result<Arc<CqRing>> {
    let count = entries
        .checked_add(1)
        .and_then(u32::checked_next_power_of_two);
    let count = count
        .filter(|count| *count <= MOST_ENTRIES)
        .ok_or_else(|| {
            let most = MOST_ENTRIES - 1;
            let text = format!("{entries} entries asked for; a queue has at most {most}");
            Error::invalid(operation, text)
        })?;
    let bytes = card.settings.completion_bytes;
    CqRing::new(context.kernel(), count, bytes).map(Arc::new)
}

/// The driver's part of resizing a completion queue.
#[derive(Debug)]
pub(crate) struct CqResize {
    ring: Arc<CqRing>,
    request: ResizeCq,
}

impl CqResize {
    pub(crate) fn new(context: &Context, entries: u32) -> Result<Self> {
        let card = Card::of(context)?;
        let ring = new_ring("resize_cq", context, &card, entries)?;
        let request = ResizeCq {
            buf_addr: ring.address(),
            cqe_size: ring.bytes_per_entry() as u16,
            ..Default::default()
        };
        Ok(Self { ring, request })
    }

    /// How many entries the kernel is told: it adds one.
    pub(crate) fn entries(&self) -> u32 {
        self.ring.count() - 1
    }

    pub(crate) fn part(&self) -> DriverPart<'_> {
        DriverPart::Exchange {
            request: self.request.as_bytes(),
            response: &mut [],
        }
    }

    /// Brings over what is in the queue.
    ///
    /// # Errors
    ///
    /// When the device has not said where the old queue ends. The queue goes on in the new memory.
    pub(crate) fn move_queue(self, queue: &mut CompletionQueue, held: Held<'_>) -> Result<()> {
        match queue.move_to(self.ring, held) {
            true => Ok(()),
            false => Err(bad_queue(
                "the device left no mark at the end of the queue that was resized; completions are \
                 lost"
                    .into(),
            )),
        }
    }
}

/// The driver's part of making a shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqSetup {
    memory: Arc<Memory>,
    size: SharedSize,
    record: Arc<Record>,
    request: CreateSrq,
    answer: CreateSrqResp,
}

impl SrqSetup {
    pub(crate) fn new(context: &Context, max_wr: u32, max_sge: u32) -> Result<Self> {
        let card = Card::of(context)?;
        let size = SharedSize::new(max_wr, max_sge, &card.grant)?;
        let memory = pages(context.kernel(), size.bytes())?;
        let record = Arc::new(card.record(context)?);
        let request = CreateSrq {
            buf_addr: memory.address().as_ptr() as u64,
            db_addr: record.address(),
            ..Default::default()
        };
        Ok(Self {
            memory,
            size,
            record,
            request,
            answer: CreateSrqResp::default(),
        })
    }

    /// How many receives the kernel is told: it adds one.
    pub(crate) fn max_wr(&self) -> u32 {
        self.size.places - 1
    }

    /// How many segments a receive has.
    pub(crate) fn max_sge(&self) -> u32 {
        self.size.max_segments
    }

    /// The queue and its record.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        vec![self.memory.clone(), self.record.clone()]
    }

    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.answer.as_mut_bytes())
    }

    pub(crate) fn queue(self) -> SharedRecvQueue {
        let memory = QueueMemory::new(&self.memory, 0, self.size.places, self.size.shift);
        let receives = Arc::new(SharedReceives::new(memory));
        SharedRecvQueue::new(receives, self.record, self.size)
    }
}

/// The driver's part of making a queue pair.
#[derive(Debug)]
pub(crate) struct QpSetup {
    card: Arc<Card>,
    memory: Arc<Memory>,
    send: Option<SendSize>,
    recv: Option<RecvSize>,
    record: Arc<Record>,
    lease: Option<Lease>,
    user_index: Arc<UserIndex>,
    send_directory: Option<Arc<Directory>>,
    recv_directory: Option<Arc<Directory>>,
    shared: Option<Arc<SharedReceives>>,
    is_reliable: bool,
    signal_all: bool,
    cap: QpCap,
    request: CreateQp,
    answer: CreateQpResp,
}

/// Who is to know of a queue pair that completes into a queue.
fn directory_of(cq: Option<&queues::CompletionQueue>) -> Option<Arc<Directory>> {
    match cq {
        Some(queues::CompletionQueue::Mlx5(cq)) => Some(Arc::clone(cq.directory())),
        _ => None,
    }
}

impl QpSetup {
    pub(crate) fn new(context: &Context, wish: QpWish<'_>) -> Result<Self> {
        let card = Card::of(context)?;
        let send = SendSize::new(&wish.cap, wish.qp_type, &card.grant)?;
        let recv = match wish.srq {
            None => RecvSize::new(&wish.cap, &card.grant)?,
            Some(_) => None,
        };
        let bytes = recv.map_or(0, |size| size.bytes()) + send.map_or(0, |size| size.bytes());
        let memory = pages(context.kernel(), bytes.max(BLOCK as usize))?;
        let record = Arc::new(card.record(context)?);
        let lease = card.registers.lease(context, &card.grant, card.settings)?;
        let user_index = Arc::new(card.user_index());
        let mut flags = QpFlags::empty();
        flags.set(QpFlags::SCATTER_CQE, card.settings.scatters_to_completions);
        flags.set(QpFlags::UAR_PAGE_INDEX, lease.is_some());
        let request = CreateQp {
            buf_addr: memory.address().as_ptr() as u64,
            db_addr: record.address(),
            sq_wqe_count: send.map_or(0, |size| size.blocks),
            rq_wqe_count: recv.map_or(0, |size| size.depth),
            rq_wqe_shift: recv.map_or(0, |size| size.shift),
            flags: flags.bits(),
            uidx: user_index.to_kernel(),
            bfreg_index: lease.as_ref().map_or(0, |lease| lease.register().index()),
            ece_options: KNOWS_ECE,
            ..Default::default()
        };
        let cap = QpCap {
            max_inline_data: send.map_or(wish.cap.max_inline_data, |size| size.max_inline),
            ..wish.cap
        };
        Ok(Self {
            memory,
            send,
            recv,
            record,
            lease,
            user_index,
            send_directory: directory_of(wish.send_cq),
            recv_directory: directory_of(wish.recv_cq),
            shared: match wish.srq {
                Some(queues::RecvQueue::Mlx5Shared(srq)) => Some(Arc::clone(srq.receives())),
                _ => None,
            },
            is_reliable: wish.qp_type == QpType::Rc,
            signal_all: wish.signal_all,
            cap,
            request,
            answer: CreateQpResp::default(),
            card,
        })
    }

    /// What the kernel is told of the sizes.
    pub(crate) fn cap(&self) -> QpCap {
        self.cap
    }

    /// The queues, their record, and the number that completions name the queue pair by.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        vec![
            self.memory.clone(),
            self.record.clone(),
            self.user_index.clone(),
        ]
    }

    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.answer.as_mut_bytes())
    }

    /// The register that the queue pair is to ring.
    #[cfg(test)]
    pub(super) fn register(&self) -> Result<Arc<Register>> {
        match &self.lease {
            Some(lease) => Ok(Arc::clone(lease.register())),
            None => {
                let lease = self.card.registers.chosen(self.answer.bfreg_index)?;
                Ok(Arc::clone(lease.register()))
            }
        }
    }

    /// The queues of the new queue pair, and what has to outlive it.
    pub(crate) fn queues(self, made: &QpMade<'_>) -> Result<QpQueues> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => self.card.registers.chosen(self.answer.bfreg_index)?,
        };
        let recv_bytes = self.recv.map_or(0, |size| size.bytes());
        let send = self.send.map(|size| {
            let shift = BLOCK.trailing_zeros();
            let memory = QueueMemory::new(&self.memory, recv_bytes, size.blocks, shift);
            let sends = Arc::new(Sends::new(memory, self.is_reliable));
            let record = Arc::clone(&self.record);
            let (signal_all, settings) = (self.signal_all, self.card.settings);
            let queue = SendQueue::new(
                Arc::clone(&sends),
                lease,
                record,
                made.number,
                size,
                signal_all,
                settings,
            );
            (sends, queue)
        });
        let recv = self.recv.map(|size| {
            let memory = QueueMemory::new(&self.memory, 0, size.depth, size.shift);
            let receives = Arc::new(Receives::new(memory));
            let record = Arc::clone(&self.record);
            let queue = RecvQueue::new(Arc::clone(&receives), record, size);
            (receives, queue)
        });
        let cap = QpCap {
            max_send_wr: self.send.map_or(0, |size| size.depth),
            max_recv_wr: self.recv.map_or(0, |size| size.depth),
            max_send_sge: self.send.map_or(0, |size| size.max_segments),
            max_recv_sge: self.recv.map_or(0, |size| size.max_segments),
            max_inline_data: self.send.map_or(0, |size| size.max_inline),
        };
        let (sends, send) = send.unzip();
        let (receives, recv) = recv.unzip();
        let incoming = match (receives, self.shared) {
            (Some(receives), _) => Incoming::Own(receives),
            (None, Some(shared)) => Incoming::Shared(shared),
            (None, None) => Incoming::None,
        };
        let key = self.user_index.key(made.number);
        let places = places(
            (key, made.number & NUMBER_MASK),
            sends,
            self.send_directory,
            incoming,
            self.recv_directory,
        );
        for (directory, pair) in &places {
            directory.add(pair);
        }
        let footprint = Footprint {
            places,
            record: self.record,
            _user_index: self.user_index,
            _memory: self.memory,
        };
        Ok(QpQueues {
            send: send.map(queues::SendQueue::Mlx5),
            recv: recv.map(queues::RecvQueue::Mlx5),
            cap,
            memory: Arc::new(footprint),
        })
    }
}

/// What a queue pair, given its key and its number, completes in which queue: all of it in one, or requests in one and receives in
/// another. A queue knows nothing of what completes elsewhere.
pub(super) fn places(
    (key, number): (u32, u32),
    sends: Option<Arc<Sends>>,
    send_directory: Option<Arc<Directory>>,
    incoming: Incoming,
    recv_directory: Option<Arc<Directory>>,
) -> Vec<(Arc<Directory>, Arc<QueuePair>)> {
    let place = |directory, sends, incoming| {
        let pair = QueuePair {
            key,
            number,
            sends,
            incoming,
        };
        (directory, Arc::new(pair))
    };
    match (send_directory, recv_directory) {
        (Some(send), Some(recv)) if Arc::ptr_eq(&send, &recv) => vec![place(send, sends, incoming)],
        (send, recv) => {
            let send = send.map(|send| place(send, sends, Incoming::None));
            let recv = recv.map(|recv| place(recv, None, incoming));
            send.into_iter().chain(recv).collect()
        }
    }
}

/// What a queue pair leaves, and what must be there for as long as it is.
#[derive(Debug)]
pub(super) struct Footprint {
    /// What completes where.
    places: Vec<(Arc<Directory>, Arc<QueuePair>)>,
    record: Arc<Record>,
    _user_index: Arc<UserIndex>,
    _memory: Arc<Memory>,
}

impl QueuePairMemory for Footprint {
    fn was_reset(&self) {
        for (directory, pair) in &self.places {
            directory.clean(pair);
        }
        self.record.reset();
        for (_, pair) in &self.places {
            pair.reset();
        }
    }

    fn was_destroyed(&self) {
        for (directory, pair) in &self.places {
            directory.remove(pair);
        }
        // So that who posts takes a closer look.
        for (_, pair) in &self.places {
            pair.reset();
        }
    }
}
