//! The send queue.
//!
//! Requests begin at blocks of 64 bytes and are as long as they need; one that reaches the end of the
//! queue goes on at its beginning. Counters of blocks and of requests run on, and are cut to the size
//! of the queue where they lead to memory.

use std::ptr::NonNull;
use std::sync::Arc;

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
    /// What every request needs.
    hot: Hot,
    /// Behind the last request that was pushed.
    pushed: Position,
    /// Behind the last request that the device was told of.
    rung: Position,
    /// The request that was pushed last.
    last: Last,
    /// The number of the request that there may be no room for: as many are under way then as fit, by
    /// what is known.
    full_at: u64,
    /// Whether the request that was pushed last changes a memory key, which the next one waits for.
    after_change_of_key: bool,
    /// The same of the last request that the device was told of, where that matters when a batch is
    /// forgotten; at worst a request waits for nothing then.
    rung_after_change_of_key: bool,
    /// How often the queue pair was reset when that was last looked up.
    resets: u32,
    sends: Arc<Sends>,
    lease: Lease,
    record: Arc<Record>,
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
    /// The register, where the queue pair has it to itself.
    register: NonNull<Register>,
    /// One less than there are blocks.
    mask: u32,
    /// The last block that the longest request can begin at and end before the end of the queue.
    last_fit: u32,
    max_segments: u32,
    max_inline: u32,
    qp_num: u32,
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

    /// The place behind a request of so many blocks.
    #[inline(always)]
    fn behind(self, blocks: u32) -> Self {
        Self {
            number: self.number + 1,
            block: self.block.wrapping_add(blocks),
        }
    }
}

/// The request that was pushed last.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    block: u32,
    /// In units of 16 bytes.
    length: u32,
    blocks: u32,
    is_inline: bool,
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
        assert!(size.blocks == sends.memory.count() && size.blocks_per_request <= size.blocks);
        let register = lease.register();
        let is_simple = settings.prefers_blue_flame && !register.is_shared();
        Self {
            hot: Hot {
                first: sends.memory.at(0),
                slots: sends.slots(),
                register: NonNull::from(&**register),
                mask: size.blocks - 1,
                last_fit: size.blocks - size.blocks_per_request,
                max_segments: size.max_segments,
                max_inline: size.max_inline,
                qp_num,
                flame: match is_simple {
                    true => (register.half() / SEGMENT).saturating_sub(1),
                    false => 0,
                },
                signal_all,
            },
            pushed: Position::first(FIRST),
            rung: Position::first(FIRST),
            last: Last::default(),
            full_at: FIRST + u64::from(size.depth),
            after_change_of_key: false,
            rung_after_change_of_key: false,
            resets: 0,
            sends,
            lease,
            record,
            size,
            prefers_blue_flame: settings.prefers_blue_flame,
        }
    }

    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.depth
    }

    /// Begins a batch: forgets what was pushed before and not rung, and all where the queue pair was
    /// reset. Requests that are pushed must be of a batch.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        if self.sends.resets() != self.resets {
            self.restart();
        }
        self.discard();
    }

    /// Builds a request in the queue, without telling the device.
    ///
    /// The way of what is posted most is inlined: sends, writes and reads of one segment, or inline.
    #[inline(always)]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let (hot, at) = (self.hot, self.pushed);
        let index = at.block & hot.mask;
        let is_usual = at.number != self.full_at
            && index <= hot.last_fit
            && !self.after_change_of_key
            && wqe::is_usual(request, hot.max_segments, hot.max_inline);
        if !is_usual {
            // So that the request itself can stay in registers.
            let copy = *request;
            return self.push_any(&copy);
        }
        let head = wqe::head(&request.operation)?;
        let flags = wqe::flags(request.flags, hot.signal_all, false);
        // SAFETY: the longest request of the queue has room from this block to the end. The blocks are
        // nobody's: all requests in them are done. What was checked above keeps the request within the
        // queue's limits, which `SendSize` computed for this room.
        let length = unsafe {
            let first = hot.block(index);
            wqe::write_usual(first, &head, flags, at.block as u16, hot.qp_num, request)
        };
        // SAFETY: there is a slot for each block.
        let slot = unsafe { hot.slots.add(index as usize).as_ref() };
        slot.note(at.number, request.wr_id);
        let blocks = length.div_ceil(BLOCK / SEGMENT);
        self.last = Last {
            block: at.block,
            length,
            blocks,
            is_inline: matches!(request.payload, Payload::Inline(_)),
        };
        self.pushed = at.behind(blocks);
        Ok(())
    }

    /// The same for any request, in any place.
    #[inline(never)]
    fn push_any(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        if self.pushed.number == self.full_at {
            self.look_for_room()?;
        }
        self.check(request)?;
        let head = wqe::head(&request.operation)?;
        let (hot, at) = (self.hot, self.pushed);
        if at.number == self.rung.number {
            self.rung_after_change_of_key = self.after_change_of_key;
        }
        let flags = wqe::flags(request.flags, hot.signal_all, self.after_change_of_key);
        let index = at.block & hot.mask;
        let length = match index <= hot.last_fit {
            // SAFETY: as in `push`.
            true => unsafe {
                let first = hot.block(index);
                wqe::write(first, &head, flags, at.block as u16, hot.qp_num, request)
            },
            false => self.write_around_the_end(&head, flags, request),
        };
        self.after_change_of_key = head.changes_key;
        self.sends
            .note(at.block, at.number, request.wr_id, head.completion);
        let blocks = length.div_ceil(BLOCK / SEGMENT);
        self.last = Last {
            block: at.block,
            length,
            blocks,
            is_inline: matches!(request.payload, Payload::Inline(_)),
        };
        self.pushed = at.behind(blocks);
        Ok(())
    }

    /// Builds the request elsewhere and copies it in two pieces.
    #[cold]
    fn write_around_the_end(
        &mut self,
        head: &wqe::Head,
        flags: rdmacm_kernel_abi::mlx5::CtrlFlags,
        request: &Request<'_>,
    ) -> u32 {
        #[repr(align(64))]
        struct Room([u8; LONGEST]);
        let mut room = Room([0; LONGEST]);
        let at = self.pushed.block;
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

    /// Looks up how many requests are done.
    #[cold]
    fn look_for_room(&mut self) -> Result<(), PostError> {
        let depth = self.size.depth;
        // After a reset the last one that is done is from before.
        let full_at = self.sends.done() + u64::from(depth);
        self.full_at = full_at.max(self.full_at);
        match self.full_at == self.pushed.number {
            true => Err(PostError::QueueFull { depth }),
            false => Ok(()),
        }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), PostError> {
        match request.payload {
            Payload::Segments([]) => {}
            Payload::Segments([_]) if self.hot.max_segments > 0 => {}
            Payload::Segments(segments) => self.check_segments(segments)?,
            Payload::Inline(bytes) if bytes.len() > self.hot.max_inline as usize => {
                return Err(PostError::InlineTooLong {
                    length: bytes.len(),
                    max: self.hot.max_inline,
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

    /// Forgets the requests that were pushed since the last doorbell.
    #[inline(always)]
    pub(crate) fn discard(&mut self) {
        if self.pushed.number != self.rung.number {
            self.rewind();
        }
    }

    /// No completion is to find them.
    #[cold]
    fn rewind(&mut self) {
        let blocks = self.pushed.block.wrapping_sub(self.rung.block);
        for number in 0..blocks {
            self.sends.forget_at(self.rung.block.wrapping_add(number));
        }
        self.pushed = self.rung;
        self.after_change_of_key = self.rung_after_change_of_key;
    }

    /// Tells the device of the pushed requests, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) {
        let (hot, last) = (self.hot, self.last);
        let (pushed, rung) = (self.pushed, self.rung);
        if pushed.number == rung.number {
            return;
        }
        self.rung = pushed;
        // The requests before their count.
        doorbell::order_memory();
        self.record
            .set(SND_DBR as usize, pushed.block & WQ_COUNTER_MASK);
        let is_one = pushed.number == rung.number + 1;
        if is_one && last.length.wrapping_sub(2) < hot.flame {
            // SAFETY: the queue keeps the register. The request fits a half of it, and each block lies
            // in the queue.
            unsafe {
                let block = |number| hot.block(last.block.wrapping_add(number) & hot.mask).cast();
                hot.register.as_ref().store_alone(last.blocks, block);
            }
        } else {
            self.ring_elsewhere(is_one);
        }
    }

    /// Rings where a request is not the only one, or not to be stored into the register as a matter
    /// of course.
    #[inline(never)]
    fn ring_elsewhere(&mut self, is_one: bool) {
        let Last {
            block,
            length,
            blocks,
            ..
        } = self.last;
        let register = self.lease.register();
        let is_preferred = self.last.is_inline || self.prefers_blue_flame;
        if is_one && is_preferred && length > 1 && length * SEGMENT <= register.half() {
            let memory = &self.sends.memory;
            // SAFETY: each block lies in the queue; they fit, as was seen.
            unsafe {
                register.store(blocks, |number| {
                    memory.at(block.wrapping_add(number)).cast()
                })
            };
        } else {
            // SAFETY: the request lies in the queue and begins with 8 bytes.
            let head = unsafe { self.sends.memory.at(block).cast::<u64>().read() };
            register.ring(head);
        }
    }

    /// Begins anew after the queue pair was reset.
    #[cold]
    fn restart(&mut self) {
        self.resets = self.sends.resets();
        // Once more: a request may have been pushed while the queue pair was reset.
        self.sends.forget();
        self.pushed = Position::first(self.pushed.number);
        self.rung = self.pushed;
        self.full_at = self.pushed.number + u64::from(self.size.depth);
        self.after_change_of_key = false;
        self.rung_after_change_of_key = false;
        self.record.set(SND_DBR as usize, 0);
    }

    /// Whether something was pushed and not rung.
    #[cfg(test)]
    pub(super) fn is_in_batch(&self) -> bool {
        self.pushed.number != self.rung.number
    }

    /// Blocks pushed so far.
    #[cfg(test)]
    pub(super) fn position(&self) -> u32 {
        self.pushed.block
    }
}
