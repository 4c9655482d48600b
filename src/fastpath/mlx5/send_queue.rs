//! The send queue.
//!
//! Requests begin at blocks of 64 bytes and are as long as they need; one that reaches the end of the
//! queue goes on at its beginning. Counters of blocks and of requests run on, and are cut to the size
//! of the queue where they lead to memory.

use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::mlx5::SND_DBR;

use super::doorbell;
use super::grant::Settings;
use super::posted::Sends;
use super::record::Record;
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
    full_at: u32,
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

/// Numbers and addresses that stay as they are, close together.
#[derive(Debug, Clone, Copy)]
struct Hot {
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

/// A place between two requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(8))] // Copied and compared as one word.
struct Position {
    /// Blocks before it.
    block: u32,
    /// Requests before it.
    number: u32,
}

/// The request that was pushed last.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    block: u32,
    /// In units of 16 bytes.
    length: u32,
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
            pushed: Position::default(),
            rung: Position::default(),
            last: Last::default(),
            full_at: size.depth,
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
    #[inline(always)]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let (hot, at) = (self.hot, self.pushed);
        if at.number == self.full_at {
            self.look_for_room()?;
        }
        self.check(request)?;
        let head = wqe::head(&request.operation)?;
        let index = at.block & hot.mask;
        if index > hot.last_fit || self.after_change_of_key || head.changes_key {
            // So that the request itself can stay in registers.
            let copy = *request;
            self.push_rare(&copy, head);
            return Ok(());
        }
        let flags = wqe::flags(request.flags, hot.signal_all, false);
        let first = self.sends.memory.at(at.block);
        // SAFETY: the longest request of the queue has room from this block to the end. The blocks are
        // nobody's: all requests in them are done. What was checked above keeps the request within the
        // queue's limits, which `SendSize` computed for this room.
        let length =
            unsafe { wqe::write(first, &head, flags, at.block as u16, hot.qp_num, request) };
        self.note(request, head.completion, length);
        Ok(())
    }

    /// Notes a request that was written behind the others.
    #[inline(always)]
    fn note(&mut self, request: &Request<'_>, completion: u32, length: u32) {
        let at = self.pushed;
        self.sends
            .note(at.block, at.number, request.wr_id, completion);
        self.last = Last {
            block: at.block,
            length,
            is_inline: matches!(request.payload, Payload::Inline(_)),
        };
        self.pushed = Position {
            block: at.block.wrapping_add(length.div_ceil(BLOCK / SEGMENT)),
            number: at.number.wrapping_add(1),
        };
    }

    /// Builds a request that may reach around the end of the queue, or that changes a memory key, or
    /// waits for such a change.
    #[cold]
    fn push_rare(&mut self, request: &Request<'_>, head: wqe::Head) {
        let (hot, at) = (self.hot, self.pushed);
        if at == self.rung {
            self.rung_after_change_of_key = self.after_change_of_key;
        }
        let flags = wqe::flags(request.flags, hot.signal_all, self.after_change_of_key);
        let length = match at.block & hot.mask <= hot.last_fit {
            // SAFETY: as in `push`.
            true => unsafe {
                let first = self.sends.memory.at(at.block);
                wqe::write(first, &head, flags, at.block as u16, hot.qp_num, request)
            },
            false => self.write_around_the_end(&head, flags, request),
        };
        self.after_change_of_key = head.changes_key;
        self.note(request, head.completion, length);
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
        self.full_at = self.sends.done().wrapping_add(depth);
        match self.full_at == self.pushed.number {
            true => Err(PostError::QueueFull { depth }),
            false => Ok(()),
        }
    }

    #[inline(always)]
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

    #[inline(never)]
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
        if self.pushed != self.rung {
            self.rewind();
        }
    }

    #[cold]
    fn rewind(&mut self) {
        self.pushed = self.rung;
        self.after_change_of_key = self.rung_after_change_of_key;
    }

    /// Tells the device of the pushed requests, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) {
        let (pushed, rung) = (self.pushed, self.rung);
        if pushed == rung {
            return;
        }
        self.rung = pushed;
        // The requests before their count.
        doorbell::order_memory();
        self.record.set(SND_DBR as usize, pushed.block & 0xffff);
        let is_one = pushed.number.wrapping_sub(rung.number) == 1;
        if is_one && self.last.length.wrapping_sub(2) < self.hot.flame {
            // SAFETY: the request fits a half of the register.
            unsafe { self.store_last() };
        } else {
            self.ring_elsewhere(is_one);
        }
    }

    /// Rings where a request is not the only one, or not to be stored into the register as a matter
    /// of course.
    #[inline(never)]
    fn ring_elsewhere(&mut self, is_one: bool) {
        let Last { block, length, .. } = self.last;
        let register = self.lease.register();
        let is_preferred = self.last.is_inline || self.prefers_blue_flame;
        if is_one && is_preferred && length > 1 && length * SEGMENT <= register.half() {
            // SAFETY: as was seen.
            unsafe { self.store_last() };
        } else {
            // SAFETY: the request lies in the queue and begins with 8 bytes.
            let head = unsafe { self.sends.memory.at(block).cast::<u64>().read() };
            register.ring(head);
        }
    }

    /// Stores the last request into the register.
    ///
    /// # Safety
    ///
    /// It must fit a half of that.
    #[inline(always)]
    unsafe fn store_last(&self) {
        let Last { block, length, .. } = self.last;
        let memory = &self.sends.memory;
        // SAFETY: each block lies in the queue; by the caller they fit.
        unsafe {
            self.lease
                .register()
                .store(length.div_ceil(BLOCK / SEGMENT), |number| {
                    memory.at(block.wrapping_add(number)).cast()
                });
        }
    }

    /// Begins anew after the queue pair was reset.
    #[cold]
    fn restart(&mut self) {
        self.resets = self.sends.resets();
        self.pushed = Position::default();
        self.rung = Position::default();
        self.full_at = self.sends.done().wrapping_add(self.size.depth);
        self.after_change_of_key = false;
        self.rung_after_change_of_key = false;
        self.record.set(SND_DBR as usize, 0);
    }

    /// Blocks pushed so far.
    #[cfg(test)]
    pub(super) fn position(&self) -> u32 {
        self.pushed.block
    }
}
