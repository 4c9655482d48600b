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
use super::posted::{FIRST, Sends};
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
    sends: Arc<Sends>,
    lease: Lease,
    record: Arc<Record>,
    qp_num: u32,
    size: SendSize,
    signal_all: bool,
    prefers_blue_flame: bool,
    /// Behind the last request that was pushed.
    pushed: Position,
    /// Behind the last request that the device was told of.
    rung: Position,
    /// What is to be known of the pushed requests when the doorbell is rung.
    last: Last,
    /// The number behind the last request that was done when that was last looked up.
    done: u64,
    /// How often the queue pair was reset when that was last looked up.
    resets: u32,
}

/// A place between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// Blocks before it.
    block: u32,
    /// The number of the request behind it.
    number: u64,
    /// Whether the request before it changes a memory key.
    after_change_of_key: bool,
}

impl Position {
    /// The beginning of the queue.
    fn first(number: u64) -> Self {
        Self {
            block: 0,
            number,
            after_change_of_key: false,
        }
    }
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
        Self {
            sends,
            lease,
            record,
            qp_num,
            size,
            signal_all,
            prefers_blue_flame: settings.prefers_blue_flame,
            pushed: Position::first(FIRST),
            rung: Position::first(FIRST),
            last: Last::default(),
            done: FIRST,
            resets: 0,
        }
    }

    /// How many requests fit.
    pub(crate) fn depth(&self) -> u32 {
        self.size.depth
    }

    /// Builds a request in the queue, without telling the device.
    #[inline(always)]
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        if self.sends.resets() != self.resets {
            self.restart();
        }
        self.check_room()?;
        self.check(request)?;
        let head = wqe::head(&request.operation)?;
        let at = self.pushed;
        let flags = wqe::flags(request.flags, self.signal_all, at.after_change_of_key);
        let place = at.block as u16;
        let index = self.sends.memory.index(at.block) as u32;
        let fits = index + self.size.blocks_per_request <= self.size.blocks;
        let length = match fits {
            // SAFETY: the longest request of the queue has room from this block to the end. The
            // blocks are nobody's: all requests in them are done. What was checked above keeps the
            // request within the queue's limits, which `SendSize` computed for this room.
            true => unsafe {
                let first = self.sends.memory.at(at.block);
                wqe::write(first, &head, flags, place, self.qp_num, request)
            },
            false => self.write_around_the_end(&head, flags, request),
        };
        self.sends
            .note(at.block, at.number, request.wr_id, head.completion);
        self.last = Last {
            block: at.block,
            length,
            is_inline: matches!(request.payload, Payload::Inline(_)),
        };
        self.pushed = Position {
            block: at.block.wrapping_add(length.div_ceil(BLOCK / SEGMENT)),
            number: at.number + 1,
            after_change_of_key: head.changes_key,
        };
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
            let length = wqe::write(first, head, flags, at as u16, self.qp_num, request);
            let bytes = (length * SEGMENT) as usize;
            for (number, block) in room.0[..bytes].chunks(BLOCK as usize).enumerate() {
                let to = self.sends.memory.at(at.wrapping_add(number as u32));
                to.copy_from_nonoverlapping(NonNull::from(block).cast(), block.len());
            }
            length
        }
    }

    #[inline(always)]
    fn check_room(&mut self) -> Result<(), PostError> {
        if self.pushed.number < self.done + u64::from(self.size.depth) {
            return Ok(());
        }
        // After a reset the last one that is done is from before.
        self.done = self.sends.done().max(self.done);
        match self.pushed.number < self.done + u64::from(self.size.depth) {
            true => Ok(()),
            false => Err(PostError::QueueFull {
                depth: self.size.depth,
            }),
        }
    }

    #[inline(always)]
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
        if self.pushed.number != self.rung.number {
            self.take_back();
        }
    }

    /// No completion is to find them.
    #[cold]
    fn take_back(&mut self) {
        let blocks = self.pushed.block.wrapping_sub(self.rung.block);
        for number in 0..blocks {
            self.sends.forget_at(self.rung.block.wrapping_add(number));
        }
        self.pushed = self.rung;
    }

    /// Tells the device of the pushed requests, if there are any.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) {
        let count = self.pushed.number - self.rung.number;
        if count == 0 {
            return;
        }
        if self.sends.resets() != self.resets {
            // They were pushed before the reset, which forgot them.
            return self.restart();
        }
        self.rung = self.pushed;
        // The requests before their count.
        doorbell::order_memory();
        self.record
            .set(SND_DBR as usize, self.pushed.block & 0xffff);
        let Last { block, length, .. } = self.last;
        let register = self.lease.register();
        let is_preferred = self.last.is_inline || self.prefers_blue_flame;
        let fits = length > 1 && length * SEGMENT <= register.half();
        if count == 1 && is_preferred && fits {
            let memory = &self.sends.memory;
            let blocks = length.div_ceil(BLOCK / SEGMENT);
            // SAFETY: each block lies in the queue; no longer request fits the register.
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
        self.done = self.pushed.number;
        self.record.set(SND_DBR as usize, 0);
    }

    /// Blocks pushed so far.
    #[cfg(test)]
    pub(super) fn position(&self) -> u32 {
        self.pushed.block
    }
}
