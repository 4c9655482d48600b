//! What is posted: what a completion queue has to know of the requests of a queue pair, since a
//! completion says little more than where in its queue a request stood.
//!
//! A send or receive queue writes here what it posts, and the completion queue reads it when the
//! completion comes, perhaps in another thread. Between the two is the device: it sees a request
//! only after all that was stored before, and its completion is seen only after that. So the values
//! need no order of their own.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::bits::Bits;
use super::queue_memory::QueueMemory;

/// The requests of a send queue, by the block that each begins at.
#[derive(Debug)]
pub(super) struct Sends {
    slots: Box<[SendSlot]>,
    /// How many requests are done, all in all.
    done: AtomicU32,
    /// How often the queue pair was reset: what was posted before is forgotten.
    resets: AtomicU32,
    /// The queue, of which an answer within its completion wants to know the segments.
    pub(super) memory: QueueMemory,
    /// Whether answers within completions can come: a service of its own.
    pub(super) is_reliable: bool,
}

#[derive(Debug)]
pub(super) struct SendSlot {
    wr_id: AtomicU64,
    /// The request's number, and in the upper half the opcode of its completion where the device's
    /// does not tell it.
    number_and_opcode: AtomicU64,
}

/// A number that no request which is under way has, while few are done.
const NO_NUMBER: u64 = u32::MAX as u64;

impl SendSlot {
    /// Notes a request.
    #[inline(always)]
    pub(super) fn note(&self, number: u32, wr_id: u64, opcode: u32) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        let noted = u64::from(number) | u64::from(opcode) << 32;
        self.number_and_opcode.store(noted, Ordering::Relaxed);
    }

    const fn unused() -> Self {
        Self {
            wr_id: AtomicU64::new(0),
            number_and_opcode: AtomicU64::new(NO_NUMBER),
        }
    }
}

/// What was noted of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    pub wr_id: u64,
    pub opcode: u32,
}

impl Sends {
    pub(super) fn new(memory: QueueMemory, is_reliable: bool) -> Self {
        Self {
            slots: (0..memory.count()).map(|_| SendSlot::unused()).collect(),
            done: AtomicU32::new(0),
            resets: AtomicU32::new(0),
            memory,
            is_reliable,
        }
    }

    /// The first slot, of as many as there are blocks.
    pub(super) fn slots(&self) -> NonNull<SendSlot> {
        NonNull::from(&self.slots[..]).cast()
    }

    /// Notes a request that begins at a block.
    #[inline(always)]
    pub(super) fn note(&self, block: u32, number: u32, wr_id: u64, opcode: u32) {
        // SAFETY: there is a slot for each block.
        let slot = unsafe { self.slots.get_unchecked(self.memory.index(block)) };
        slot.note(number, wr_id, opcode);
    }

    /// Takes note that the request at a block is done, and all before it. `None` when no request that
    /// is under way begins there.
    #[inline(always)]
    pub(super) fn finish(&self, block: u32) -> Option<Noted> {
        let slot = &self.slots[self.memory.index(block) & (self.slots.len() - 1)];
        let noted = slot.number_and_opcode.load(Ordering::Relaxed);
        let number = noted as u32;
        let done = self.done.load(Ordering::Relaxed);
        // Requests are at least a block long.
        if number.wrapping_sub(done) >= self.slots.len() as u32 {
            return None;
        }
        let wr_id = slot.wr_id.load(Ordering::Relaxed);
        // Release: what was read of the request was read before its place is used again.
        self.done.store(number.wrapping_add(1), Ordering::Release);
        let opcode = (noted >> 32) as u32;
        Some(Noted { wr_id, opcode })
    }

    /// How many requests are done.
    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        // Acquire pairs with the stores in `finish` and `commit`.
        self.done.load(Ordering::Acquire)
    }

    /// How often the queue pair was reset.
    #[inline(always)]
    pub(super) fn resets(&self) -> u32 {
        // Acquire pairs with the addition in `reset`: `done` is as that left it, or newer.
        self.resets.load(Ordering::Acquire)
    }

    fn reset(&self) {
        for slot in &self.slots {
            slot.number_and_opcode.store(NO_NUMBER, Ordering::Relaxed);
        }
        self.done.store(0, Ordering::Relaxed);
        self.resets.fetch_add(1, Ordering::Release);
    }
}

/// The slots of a send queue for finishing many requests of it: of nobody's, until there is one.
#[derive(Debug)]
pub(super) struct Finisher {
    places: Places,
    done: NonNull<AtomicU32>,
    /// Keeps both valid.
    _sends: Option<Arc<Sends>>,
}

/// Where the slots are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    slots: NonNull<SendSlot>,
    mask: u32,
}

// SAFETY: addresses of atomics in an object that is `Sync` and kept alive, or static.
unsafe impl Send for Finisher {}
// SAFETY: as above.
unsafe impl Sync for Finisher {}

static NO_SLOT: SendSlot = SendSlot::unused();
static NOTHING_DONE: AtomicU32 = AtomicU32::new(0);

impl Finisher {
    /// Of a send queue; without one it finishes nothing.
    pub(super) fn of(sends: Option<&Arc<Sends>>) -> Self {
        let (slots, done) = match sends {
            Some(sends) => (&sends.slots[..], &sends.done),
            None => (std::slice::from_ref(&NO_SLOT), &NOTHING_DONE),
        };
        Self {
            places: Places {
                slots: NonNull::from(slots).cast(),
                mask: slots.len() as u32 - 1,
            },
            done: NonNull::from(done),
            _sends: sends.cloned(),
        }
    }

    /// To be used while the finisher is there.
    #[inline(always)]
    pub(super) fn places(&self) -> Places {
        self.places
    }

    /// How many requests are done.
    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        // SAFETY: see the fields.
        unsafe { self.done.as_ref() }.load(Ordering::Relaxed)
    }

    /// Gives the places back.
    #[inline(always)]
    pub(super) fn commit(&self, done: u32) {
        // SAFETY: see the fields. Release: what was read of the requests was read before their places
        // are used again.
        unsafe { self.done.as_ref() }.store(done, Ordering::Release);
    }
}

impl Places {
    /// As [`Sends::finish`], for requests whose opcode the device tells: their number. `done` is
    /// counted up, and is to be given to [`Finisher::commit`].
    ///
    /// # Safety
    ///
    /// The finisher must be there.
    #[inline(always)]
    pub(super) unsafe fn finish(self, block: u32, done: &mut u32) -> Option<u64> {
        let index = (block & self.mask) as usize;
        // SAFETY: by the caller; there are as many slots as a power of two, of which the mask is one
        // less.
        let slot = unsafe { self.slots.add(index).as_ref() };
        let number = slot.number_and_opcode.load(Ordering::Relaxed) as u32;
        if number.wrapping_sub(*done) > self.mask {
            return None;
        }
        *done = number.wrapping_add(1);
        Some(slot.wr_id.load(Ordering::Relaxed))
    }
}

/// The receives of a queue of one queue pair, which are used in the order they were posted.
#[derive(Debug)]
pub(super) struct Receives {
    wr_ids: Box<[AtomicU64]>,
    /// How many receives are done, all in all.
    done: AtomicU32,
    resets: AtomicU32,
    pub(super) memory: QueueMemory,
}

impl Receives {
    pub(super) fn new(memory: QueueMemory) -> Self {
        Self {
            wr_ids: (0..memory.count()).map(|_| AtomicU64::new(0)).collect(),
            done: AtomicU32::new(0),
            resets: AtomicU32::new(0),
            memory,
        }
    }

    #[inline(always)]
    pub(super) fn note(&self, counter: u32, wr_id: u64) {
        // SAFETY: there is a place for each element.
        let slot = unsafe { self.wr_ids.get_unchecked(self.memory.index(counter)) };
        slot.store(wr_id, Ordering::Relaxed);
    }

    /// Takes note that a receive is done, and returns its number.
    #[inline(always)]
    pub(super) fn finish(&self, counter: u32) -> u64 {
        let slot = &self.wr_ids[self.memory.index(counter) & (self.wr_ids.len() - 1)];
        let wr_id = slot.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        // Release: as for requests. Only one completion queue finishes receives of a queue pair.
        self.done.store(done.wrapping_add(1), Ordering::Release);
        wr_id
    }

    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    fn reset(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.resets.fetch_add(1, Ordering::Release);
    }
}

/// The receives of a shared queue, which become free in any order.
#[derive(Debug)]
pub(super) struct SharedReceives {
    wr_ids: Box<[AtomicU64]>,
    /// The places whose receive is done and that are in the list of free ones no more or not yet.
    pub(super) free: Bits,
    pub(super) memory: QueueMemory,
}

impl SharedReceives {
    pub(super) fn new(memory: QueueMemory) -> Self {
        Self {
            wr_ids: (0..memory.count()).map(|_| AtomicU64::new(0)).collect(),
            free: Bits::new(memory.count()),
            memory,
        }
    }

    pub(super) fn note(&self, place: u32, wr_id: u64) {
        self.wr_ids[self.memory.index(place)].store(wr_id, Ordering::Relaxed);
    }

    /// The number of the receive at a place. `None` when there is no such place.
    #[inline]
    pub(super) fn wr_id(&self, place: u32) -> Option<u64> {
        let slot = self.wr_ids.get(place as usize)?;
        Some(slot.load(Ordering::Relaxed))
    }

    /// Gives a place back. Nothing that is read of it may be read later.
    #[inline]
    pub(super) fn give_back(&self, place: u32) {
        self.free.set(place);
    }
}

/// Where messages for a queue pair go.
#[derive(Debug, Clone)]
pub(super) enum Incoming {
    None,
    Own(Arc<Receives>),
    Shared(Arc<SharedReceives>),
}

/// A queue pair, as completion queues know it.
#[derive(Debug)]
pub(super) struct QueuePair {
    /// What completions name it by.
    pub(super) key: u32,
    /// The device's number.
    pub(super) number: u32,
    pub(super) sends: Option<Arc<Sends>>,
    pub(super) incoming: Incoming,
}

impl QueuePair {
    /// Forgets all that is posted.
    pub(super) fn reset(&self) {
        if let Some(sends) = &self.sends {
            sends.reset();
        }
        if let Incoming::Own(receives) = &self.incoming {
            receives.reset();
        }
    }
}
