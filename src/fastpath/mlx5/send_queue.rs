//! The send queue.
//!
//! Requests begin at blocks of 64 bytes and are as long as they need; one that reaches the end of the
//! queue goes on at its beginning. Counters of blocks and of requests run on, and are cut to the size
//! of the queue where they lead to memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rdmacm_kernel_abi::mlx5::{SND_DBR, WQ_COUNTER_MASK};

use super::doorbell;
use super::grant::Settings;
use super::posted::{FIRST, SendSlot, Sends};
use super::record::Record;
use super::register::Register;
use super::registers::Lease;
use super::sizes::{BLOCK, SEGMENT, SendSize};
use super::umr::LONGEST_WINDOW;
use super::wqe;
use crate::fastpath::request::{Operation, Payload, PostError, Request, total_length};

/// Bytes of the longest request there is, for building one that reaches around the end.
const LONGEST: usize = 1024;

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Behind the last request that the device was told of.
    rung: Position,
    /// What every request needs.
    hot: Hot,
    sends: Arc<Sends>,
    record: Arc<Record>,
    /// As many requests are under way before this number as fit, by what is known.
    full_at: u64,
    /// Whether the request that was pushed last changes a memory key, which the next one waits for.
    after_change_of_key: bool,
    /// The same of the last request that the device was told of, where that matters when a batch is
    /// forgotten; at worst a request waits for nothing then.
    rung_after_change_of_key: bool,
    /// Whether the request that was built last has its data inline.
    is_inline: bool,
    /// How often the queue pair was reset when that was last looked up.
    resets: u32,
    /// Whether there are usual requests; otherwise none is pushed in the short way.
    has_usual: bool,
    lease: Lease,
    size: SendSize,
    prefers_blue_flame: bool,
}

/// Numbers and addresses that stay as they are, close together. The queue keeps alive what they lead
/// to.
#[derive(Debug, Clone, Copy)]
struct Hot {
    /// The first block, and the first slot of what is noted of requests.
    first: NonNull<u8>,
    slots: NonNull<SendSlot>,
    /// Where the doorbell record says how far requests go, in the device's byte order.
    counter: NonNull<AtomicU32>,
    /// The register, where the queue pair has it to itself.
    register: NonNull<Register>,
    /// One less than there are blocks.
    mask: u32,
    /// The last block that the longest request can begin at and end before the end of the queue.
    last_fit: u32,
    max_inline: u32,
    qp_num: u32,
    /// The same as it stands in requests.
    qpn: u32,
    /// A request that is to be stored into the register is of so many units more than 2, at most, in
    /// a batch of its own; 0 where that is to be looked into.
    flame: u32,
    signal_all: bool,
}

// SAFETY: addresses in objects that are `Send` and `Sync`, and that the queue keeps.
unsafe impl Send for Hot {}
// SAFETY: as above.
unsafe impl Sync for Hot {}

impl Hot {
    /// A block by its index.
    ///
    /// # Safety
    ///
    /// There must be such a block.
    #[inline(always)]
    unsafe fn block(&self, index: u32) -> NonNull<u8> {
        // SAFETY: by the caller.
        unsafe { self.first.add(index as usize * BLOCK as usize) }
    }
}

/// A place between two requests.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// The number of the request behind it.
    number: u64,
    /// Blocks before it.
    block: u32,
}

impl Position {
    /// The beginning of the queue.
    fn first(number: u64) -> Self {
        Self { number, block: 0 }
    }
}

/// The requests of a batch, which the device is told of together. A batch has this for itself and
/// hands it from one call to the next, so that it can be in registers: what is in the queue has to be
/// loaded again behind each store to memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built {
    /// The number behind the last request.
    number: u64,
    /// The first block of the last request.
    last: NonNull<u8>,
    /// Blocks before the end of the last request, as in [`Position`].
    end: u32,
    /// The length of the last request in units of 16 bytes, 0 where there is none yet, and above what
    /// keeps it from being stored into the register as a matter of course.
    length: u32,
}

/// There are requests before it.
const SEVERAL: u32 = !0xffff;
/// Its blocks do not follow one another in memory, but go around the end of the queue.
const AROUND: u32 = 1 << 15;

// SAFETY: an address in the memory of the queue, which the queue keeps; it is used by the queue only.
unsafe impl Send for Built {}
// SAFETY: as above.
unsafe impl Sync for Built {}

impl Built {
    /// The place behind the last request.
    #[inline(always)]
    fn at(self) -> Position {
        Position {
            number: self.number,
            block: self.end,
        }
    }

    /// Blocks before the end of the batch.
    #[inline(always)]
    pub(crate) fn end(self) -> u32 {
        self.end
    }

    /// With one more request, which begins at `last`.
    #[inline(always)]
    fn with(self, last: NonNull<u8>, length: u32, around: u32) -> Self {
        let several = self.length << SEVERAL.trailing_zeros();
        Self {
            number: self.number + 1,
            last,
            end: self.end.wrapping_add(blocks(length)),
            length: length | several | around,
        }
    }
}

/// That a request is not one of the usual ones.
#[cold]
fn unusual() -> bool {
    false
}

/// The blocks of a request of so many units of 16 bytes.
#[inline(always)]
fn blocks(length: u32) -> u32 {
    length.div_ceil(BLOCK / SEGMENT)
}

impl SendQueue {
    pub(super) fn new(
        sends: Arc<Sends>,
        lease: Lease,
        record: Arc<Record>,
        qp_num: u32,
        size: SendSize,
        signal_all: bool,
        settings: Settings,
    ) -> Self {
        assert!(size.blocks_per_request as usize * BLOCK as usize <= LONGEST);
        const { assert!(LONGEST as u32 / SEGMENT < AROUND) };
        assert!(size.blocks == sends.memory.count() && size.blocks_per_request <= size.blocks);
        let register = lease.register();
        let is_simple = settings.prefers_blue_flame && !register.is_shared();
        // Usual are requests that a reliable connection has, and of a segment.
        let has_usual = sends.is_reliable && size.max_segments > 0;
        let queue = Self {
            hot: Hot {
                first: sends.memory.at(0),
                slots: sends.slots(),
                counter: NonNull::from(record.counter(SND_DBR as usize)),
                register: NonNull::from(&**register),
                mask: size.blocks - 1,
                last_fit: size.blocks - size.blocks_per_request,
                max_inline: size.max_inline,
                qp_num,
                qpn: wqe::qpn(qp_num),
                flame: match is_simple {
                    true => (register.half() / SEGMENT).saturating_sub(1),
                    false => 0,
                },
                signal_all,
            },
            rung: Position::first(FIRST),
            full_at: FIRST + u64::from(size.depth),
            after_change_of_key: false,
            rung_after_change_of_key: false,
            is_inline: false,
            has_usual,
            resets: 0,
            sends,
            lease,
            record,
            size,
            prefers_blue_flame: settings.prefers_blue_flame,
        };
        queue.set_limit(queue.full_at);
        queue
    }

    /// Requests from this number on are not pushed in the short way.
    fn set_limit(&self, number: u64) {
        let number = if self.has_usual { number } else { 0 };
        self.sends.progress.set_limit(number, self.resets);
    }

    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.depth
    }

    /// Begins a batch.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Built {
        Built {
            number: self.rung.number,
            last: self.hot.first,
            end: self.rung.block,
            length: 0,
        }
    }

    /// Builds a request in the queue, without telling the device, if it is one of those that are
    /// posted most: sends, writes and reads of one segment, or inline, of a reliable connection. It is
    /// within the limits of the queue then. For others [`SendQueue::push`] is to be called.
    ///
    /// In a forked child too, where the memory of the queue is the child's own.
    #[inline(always)]
    pub(crate) fn push_usual(&mut self, built: &mut Built, request: &Request<'_>) -> bool {
        let (hot, at) = (&self.hot, built.at());
        let index = at.block & hot.mask;
        // One after the other, each marked as seldom: or they would be computed first and looked at
        // together.
        if at.number >= self.sends.progress.limit() {
            return unusual();
        }
        if index > hot.last_fit {
            return unusual();
        }
        if !wqe::is_usual(request, hot.max_inline) {
            return unusual();
        }
        let Ok(head) = wqe::head(&request.operation) else {
            return false;
        };
        let flags = wqe::flags(request.flags, hot.signal_all, false);
        // SAFETY: the longest request of the queue has room from this block to the end. The blocks are
        // nobody's: all requests in them are done. What was checked above keeps the request within the
        // queue's limits, which `SendSize` computed for this room.
        let (first, length) = unsafe {
            let first = hot.block(index);
            let place = at.block as u16;
            let length = wqe::write_usual(first, &head, flags, place, hot.qpn, request);
            (first, length)
        };
        // SAFETY: there is a slot for each block.
        let slot = unsafe { hot.slots.add(index as usize).as_ref() };
        slot.note(at.number, request.wr_id);
        *built = built.with(first, length, 0);
        self.is_inline = matches!(request.payload, Payload::Inline(_));
        true
    }

    /// The same for any request, in any place. Returns what the batch is then: where the request is
    /// refused it is not always as it was, since the queue pair may have been reset.
    #[cold]
    #[inline(never)]
    pub(crate) fn push(
        &mut self,
        built: Built,
        request: &Request<'_>,
    ) -> (Built, Result<(), PostError>) {
        let (built, has_room) = match built.number >= self.sends.progress.limit() {
            true => self.look_for_room(built),
            false => (built, Ok(())),
        };
        let pushed = has_room.and_then(|()| self.push_into_room(built, request));
        match pushed {
            Ok(built) => (built, Ok(())),
            Err(error) => (built, Err(error)),
        }
    }

    fn push_into_room(&mut self, built: Built, request: &Request<'_>) -> Result<Built, PostError> {
        self.check(request)?;
        let head = wqe::head(&request.operation)?;
        let (hot, at) = (self.hot, built.at());
        if built.length == 0 {
            self.rung_after_change_of_key = self.after_change_of_key;
        }
        let flags = wqe::flags(request.flags, hot.signal_all, self.after_change_of_key);
        let index = at.block & hot.mask;
        let is_straight = index <= hot.last_fit;
        // SAFETY: there is such a block.
        let first = unsafe { hot.block(index) };
        let length = match is_straight {
            // SAFETY: as in `push_usual`.
            true => unsafe {
                wqe::write(first, &head, flags, at.block as u16, hot.qp_num, request)
            },
            false => self.write_around_the_end(at.block, &head, flags, request),
        };
        self.sends
            .note(at.block, at.number, request.wr_id, head.completion);
        if head.changes_key || self.after_change_of_key {
            self.after_change_of_key = head.changes_key;
            // The next one has to wait, which the short way does not know.
            self.set_limit(match head.changes_key {
                true => at.number + 1,
                false => self.full_at,
            });
        }
        self.is_inline = matches!(request.payload, Payload::Inline(_));
        Ok(built.with(first, length, if is_straight { 0 } else { AROUND }))
    }

    /// Builds the request elsewhere and copies it in two pieces.
    #[cold]
    fn write_around_the_end(
        &mut self,
        at: u32,
        head: &wqe::Head,
        flags: rdmacm_kernel_abi::mlx5::CtrlFlags,
        request: &Request<'_>,
    ) -> u32 {
        #[repr(align(64))]
        struct Room([u8; LONGEST]);
        let mut room = Room([0; LONGEST]);
        // SAFETY: the room has the bytes of the longest request of any queue. Each block lies in the
        // queue, and is nobody's, as in `push`; memory and room are apart.
        unsafe {
            let first = NonNull::from(&mut room.0).cast();
            let length = wqe::write(first, head, flags, at as u16, self.hot.qp_num, request);
            let bytes = (length * SEGMENT) as usize;
            for (number, block) in room.0[..bytes].chunks(BLOCK as usize).enumerate() {
                let to = self.sends.memory.at(at.wrapping_add(number as u32));
                to.copy_from_nonoverlapping(NonNull::from(block).cast(), block.len());
            }
            length
        }
    }

    /// Looks up whether the queue pair was reset, and how many requests are done. Returns what the
    /// batch is then.
    #[cold]
    fn look_for_room(&mut self, built: Built) -> (Built, Result<(), PostError>) {
        let mut built = built;
        if self.sends.progress.resets() != self.resets {
            self.restart(built.number);
            built = self.begin();
        }
        let depth = self.size.depth;
        // After a reset the last one that is done is from before.
        let full_at = self.sends.progress.done() + u64::from(depth);
        self.full_at = full_at.max(self.full_at);
        // Behind a request that changes a key the next one is looked at in any case.
        if !self.after_change_of_key {
            self.set_limit(self.full_at);
        }
        match self.full_at <= built.number {
            true => (built, Err(PostError::QueueFull { depth })),
            false => (built, Ok(())),
        }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), PostError> {
        match request.payload {
            Payload::Segments([]) => {}
            Payload::Segments([_]) if self.size.max_segments > 0 => {}
            Payload::Segments(segments) => self.check_segments(segments)?,
            Payload::Inline(bytes) if bytes.len() > self.size.max_inline as usize => {
                return Err(PostError::InlineTooLong {
                    length: bytes.len(),
                    max: self.size.max_inline,
                });
            }
            Payload::Inline(_) => {}
            Payload::Value(_) | Payload::Remote(_) => {}
        }
        match request.operation {
            Operation::BindWindow(bind) if bind.length > LONGEST_WINDOW => {
                Err(PostError::NotOnDevice {
                    what: "memory window of more than 2 GiB",
                })
            }
            _ => Ok(()),
        }
    }

    fn check_segments(&self, segments: &[crate::fastpath::Segment]) -> Result<(), PostError> {
        if segments.len() > self.size.max_segments as usize {
            return Err(PostError::TooManySegments {
                segments: segments.len(),
                max: self.size.max_segments,
            });
        }
        total_length(segments).map(drop)
    }

    /// Forgets the requests of a batch, up to a block: no completion is to find them.
    #[cold]
    pub(crate) fn discard(&mut self, end: u32) {
        let blocks = end.wrapping_sub(self.rung.block).min(self.size.blocks);
        if blocks == 0 {
            return;
        }
        for number in 0..blocks {
            self.sends.forget_at(self.rung.block.wrapping_add(number));
        }
        self.after_change_of_key = self.rung_after_change_of_key;
        // To look whether the next one has to wait.
        self.set_limit(self.rung.number);
    }

    /// Tells the device of the requests of a batch, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self, built: Built) {
        // False also where there is none, or more to be said than the length.
        if built.length.wrapping_sub(2) < self.hot.flame {
            self.count(built);
            // SAFETY: the queue keeps the register. The request fits a half of it, and lies in the
            // queue, its blocks one behind the other.
            unsafe {
                let register = self.hot.register.as_ref();
                register.store_alone(built.length * SEGMENT, built.last.cast());
            }
        } else {
            self.ring_elsewhere(built);
        }
    }

    /// Says in the doorbell record how far requests go.
    #[inline(always)]
    fn count(&mut self, built: Built) {
        self.rung = built.at();
        // The requests before their count.
        doorbell::order_memory();
        let counter = (built.end & WQ_COUNTER_MASK).to_be();
        // SAFETY: the queue keeps the record.
        unsafe { self.hot.counter.as_ref() }.store(counter, Ordering::Relaxed);
    }

    /// Rings where a request is not the only one, or not to be stored into the register as a matter
    /// of course.
    #[inline(never)]
    fn ring_elsewhere(&mut self, built: Built) {
        if built.length == 0 {
            return;
        }
        self.count(built);
        let register = self.lease.register();
        let is_alone = built.length & SEVERAL == 0;
        let is_preferred = self.is_inline || self.prefers_blue_flame;
        let length = built.length & (AROUND - 1);
        if is_alone && is_preferred && length > 1 && length * SEGMENT <= register.half() {
            let memory = &self.sends.memory;
            let first = built.end.wrapping_sub(blocks(length));
            // SAFETY: each block lies in the queue; they fit, as was seen.
            unsafe {
                register.store(blocks(length), |number| {
                    memory.at(first.wrapping_add(number)).cast()
                })
            };
        } else {
            // SAFETY: the request lies in the queue and begins with 8 bytes.
            register.ring(unsafe { built.last.cast::<u64>().read() });
        }
    }

    /// Begins anew after the queue pair was reset: requests that were built before are forgotten, like
    /// all others. Numbers go on.
    #[cold]
    fn restart(&mut self, number: u64) {
        self.resets = self.sends.progress.resets();
        // Once more: a request may have been pushed while the queue pair was reset.
        self.sends.forget();
        self.rung = Position::first(number);
        self.full_at = number + u64::from(self.size.depth);
        self.after_change_of_key = false;
        self.rung_after_change_of_key = false;
        self.record.set(SND_DBR as usize, 0);
        // Who finds what is noted from here on sees the reset: see `Members::is_current`.
        fence(Ordering::Release);
    }
}

/// A send queue with a batch that is being built, for tests.
#[cfg(any(test, fuzzing))]
#[derive(Debug)]
pub(super) struct Posting {
    queue: SendQueue,
    built: Built,
}

#[cfg(any(test, fuzzing))]
impl Posting {
    pub(super) fn new(queue: SendQueue) -> Self {
        let built = queue.begin();
        Self { queue, built }
    }

    pub(super) fn depth(&self) -> u32 {
        self.queue.depth()
    }

    pub(super) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        if self.queue.push_usual(&mut self.built, request) {
            return Ok(());
        }
        let (built, pushed) = self.queue.push(self.built, request);
        self.built = built;
        pushed
    }

    pub(super) fn discard(&mut self) {
        self.queue.discard(self.built.end());
        self.built = self.queue.begin();
    }

    pub(super) fn ring_doorbell(&mut self) {
        self.queue.ring_doorbell(self.built);
        self.built = self.queue.begin();
    }

    /// Blocks pushed so far.
    #[cfg(test)]
    pub(super) fn position(&self) -> u32 {
        self.built.end()
    }
}
