//! What is posted: what a completion queue has to know of the requests of a queue pair, since a
//! completion says little more than where in its queue a request stood.
//!
//! A send or receive queue writes here what it posts, and the completion queue reads it when the
//! completion comes, perhaps in another thread. Between the two is the device: it sees a request
//! only after all that was stored before, and its completion is seen only after that. So the values
//! need no order of their own.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::bits::Bits;
use super::queue_memory::QueueMemory;

/// How far a queue has come: what the thread that posts, the one that polls, and one that resets the
/// queue pair tell one another.
#[derive(Debug)]
pub(super) struct Progress {
    /// Numbers from here on must not be used without a closer look. There may be no room for them, or
    /// the queue pair was reset; the thread that posts may have a reason of its own. So it has one
    /// comparison to make.
    limit: AtomicU64,
    /// How often the queue pair was reset: what was posted before is forgotten.
    resets: AtomicU32,
    done: Done,
}

/// The number behind the last request or receive that is done. Only the poller changes it; in a cache
/// line of its own, so that it does not take the limit away from the thread that posts.
#[derive(Debug)]
#[repr(align(64))]
struct Done(AtomicU64);

impl Progress {
    fn new() -> Self {
        Self {
            limit: AtomicU64::new(FIRST),
            resets: AtomicU32::new(0),
            done: Done(AtomicU64::new(FIRST)),
        }
    }

    /// The first number that is not to be used without a closer look.
    #[inline(always)]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Moves the limit, for who has seen so many resets: none is missed that comes meanwhile.
    pub(super) fn set_limit(&self, limit: u64, resets: u32) {
        // Sequentially consistent, as in `reset`: either this sees the reset, or the reset comes after
        // this limit and takes it back.
        self.limit.store(limit, Ordering::SeqCst);
        if self.resets.load(Ordering::SeqCst) != resets {
            self.limit.store(0, Ordering::SeqCst);
        }
    }

    fn reset(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
        self.limit.store(0, Ordering::SeqCst);
    }

    /// How often the queue pair was reset.
    pub(super) fn resets(&self) -> u32 {
        self.resets.load(Ordering::SeqCst)
    }

    /// The number behind the last that is done. One of a life before a reset, where none of this one
    /// is.
    pub(super) fn done(&self) -> u64 {
        // Acquire pairs with the store in `finish`.
        self.done.0.load(Ordering::Acquire)
    }

    /// The same for the poller, who has set it.
    #[inline(always)]
    fn known_done(&self) -> u64 {
        self.done.0.load(Ordering::Relaxed)
    }

    /// Takes note that a request or receive is done, and all before it.
    #[inline(always)]
    pub(super) fn finish(&self, number: u64) {
        // Release: what was read of it was read before its place is used again.
        self.done.0.store(number + 1, Ordering::Release);
    }
}

/// The requests of a send queue, by the block that each begins at.
///
/// They are numbered, and the numbers run on when the queue pair is reset: a poller that is in the
/// middle of a completion then does no harm by what it says is done.
#[derive(Debug)]
pub(super) struct Sends {
    slots: Box<[SendSlot]>,
    pub(super) progress: Progress,
    /// The queue, of which an answer within its completion wants to know the segments.
    pub(super) memory: QueueMemory,
    /// Whether answers within completions can come: a service of its own.
    pub(super) is_reliable: bool,
}

/// Of a size by which places are found with a shift.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct SendSlot {
    wr_id: AtomicU64,
    number: AtomicU64,
    /// The opcode of the completion where the device's does not tell it.
    opcode: AtomicU32,
}

/// The number of the first request or receive of a queue. A multiple of 2^16, so that the device's
/// counter, and the place in the queue, are the lower bits of the number of a receive.
pub(super) const FIRST: u64 = 1 << 16;

/// In place of a number, where there is no request.
const NONE: u64 = 0;

impl SendSlot {
    /// Notes a request whose opcode the device tells.
    #[inline(always)]
    pub(super) fn note(&self, number: u64, wr_id: u64) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
    }

    const fn unused() -> Self {
        Self {
            wr_id: AtomicU64::new(0),
            number: AtomicU64::new(NONE),
            opcode: AtomicU32::new(0),
        }
    }
}

/// What was noted of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    pub wr_id: u64,
    pub number: u64,
    pub opcode: u32,
}

impl Sends {
    pub(super) fn new(memory: QueueMemory, is_reliable: bool) -> Self {
        Self {
            slots: (0..memory.count()).map(|_| SendSlot::unused()).collect(),
            progress: Progress::new(),
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
    pub(super) fn note(&self, block: u32, number: u64, wr_id: u64, opcode: u32) {
        let slot = self.slot(block);
        slot.opcode.store(opcode, Ordering::Relaxed);
        slot.note(number, wr_id);
    }

    /// The request under way that begins at a block. Its place is not used again before
    /// [`Progress::finish`].
    #[inline(always)]
    pub(super) fn find(&self, block: u32) -> Option<Noted> {
        let slot = self.slot(block);
        let number = slot.number.load(Ordering::Relaxed);
        if number < self.progress.known_done() {
            return None;
        }
        Some(Noted {
            wr_id: slot.wr_id.load(Ordering::Relaxed),
            number,
            opcode: slot.opcode.load(Ordering::Relaxed),
        })
    }

    #[inline(always)]
    fn slot(&self, block: u32) -> &SendSlot {
        &self.slots[self.memory.index(block) & (self.slots.len() - 1)]
    }

    /// Forgets the request that begins at a block.
    pub(super) fn forget_at(&self, block: u32) {
        self.slot(block).number.store(NONE, Ordering::Relaxed);
    }

    /// Forgets all requests.
    pub(super) fn forget(&self) {
        for slot in &self.slots {
            slot.number.store(NONE, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.forget();
        self.progress.reset();
    }
}

/// The slots of a send queue for finishing many requests of it: of nobody's, until there is one.
#[derive(Debug)]
pub(super) struct Finisher {
    places: Places,
    done: NonNull<AtomicU64>,
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
static NOTHING_DONE: AtomicU64 = AtomicU64::new(FIRST);

impl Finisher {
    /// Of a send queue; without one it finishes nothing.
    pub(super) fn of(sends: Option<&Arc<Sends>>) -> Self {
        let (slots, done) = match sends {
            Some(sends) => (&sends.slots[..], &sends.progress.done.0),
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

    /// The number behind the last request that is done.
    #[inline(always)]
    pub(super) fn done(&self) -> u64 {
        // SAFETY: see the fields.
        unsafe { self.done.as_ref() }.load(Ordering::Relaxed)
    }

    /// As [`Progress::finish`], for all requests before a number.
    #[inline(always)]
    pub(super) fn commit(&self, done: u64) {
        // SAFETY: see the fields. Release: what was read of the requests was read before their places
        // are used again.
        unsafe { self.done.as_ref() }.store(done, Ordering::Release);
    }
}

impl Places {
    /// As [`Sends::find`], for requests whose opcode the device tells: the program's number. What is
    /// `done` is to be given to [`Finisher::commit`].
    ///
    /// # Safety
    ///
    /// The finisher must be there.
    #[inline(always)]
    pub(super) unsafe fn finish(self, block: u32, done: &mut u64) -> Option<u64> {
        let index = (block & self.mask) as usize;
        // SAFETY: by the caller; there are as many slots as a power of two, of which the mask is one
        // less.
        let slot = unsafe { self.slots.add(index).as_ref() };
        let number = slot.number.load(Ordering::Relaxed);
        if number < *done {
            return None;
        }
        *done = number + 1;
        Some(slot.wr_id.load(Ordering::Relaxed))
    }
}

/// The receives of a queue of one queue pair, which are used in the order they were posted. Numbered as
/// requests are.
#[derive(Debug)]
pub(super) struct Receives {
    slots: Box<[RecvSlot]>,
    pub(super) progress: Progress,
    pub(super) memory: QueueMemory,
}

#[derive(Debug)]
pub(super) struct RecvSlot {
    wr_id: AtomicU64,
    number: AtomicU64,
}

impl RecvSlot {
    #[inline(always)]
    pub(super) fn note(&self, number: u64, wr_id: u64) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
    }

    fn unused() -> Self {
        Self {
            wr_id: AtomicU64::new(0),
            number: AtomicU64::new(NONE),
        }
    }
}

impl Receives {
    pub(super) fn new(memory: QueueMemory) -> Self {
        Self {
            slots: (0..memory.count()).map(|_| RecvSlot::unused()).collect(),
            progress: Progress::new(),
            memory,
        }
    }

    /// The first slot, of as many as there are places.
    pub(super) fn slots(&self) -> NonNull<RecvSlot> {
        NonNull::from(&self.slots[..]).cast()
    }

    /// Notes a receive. Its number leads to its place.
    #[inline(always)]
    pub(super) fn note(&self, number: u64, wr_id: u64) {
        self.slot(number as u32).note(number, wr_id);
    }

    /// The receive under way at a place: its number and the program's. The place is not used again
    /// before [`Progress::finish`].
    #[inline(always)]
    pub(super) fn find(&self, counter: u32) -> Option<(u64, u64)> {
        let slot = self.slot(counter);
        let number = slot.number.load(Ordering::Relaxed);
        if number < self.progress.known_done() {
            return None;
        }
        Some((number, slot.wr_id.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn slot(&self, counter: u32) -> &RecvSlot {
        &self.slots[self.memory.index(counter) & (self.slots.len() - 1)]
    }

    /// Forgets all receives.
    pub(super) fn forget(&self) {
        for slot in &self.slots {
            slot.number.store(NONE, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.forget();
        self.progress.reset();
    }
}

/// The receives of a shared queue, which become free in any order.
#[derive(Debug)]
pub(super) struct SharedReceives {
    slots: Box<[SharedSlot]>,
    /// The places whose receive is done and that are in the list of free ones no more or not yet.
    pub(super) free: Bits,
    pub(super) memory: QueueMemory,
}

#[derive(Debug, Default)]
struct SharedSlot {
    wr_id: AtomicU64,
    is_posted: AtomicBool,
}

impl SharedReceives {
    pub(super) fn new(memory: QueueMemory) -> Self {
        Self {
            slots: (0..memory.count()).map(|_| SharedSlot::default()).collect(),
            free: Bits::new(memory.count()),
            memory,
        }
    }

    /// Notes the receive at a place.
    pub(super) fn note(&self, place: u32, wr_id: u64) {
        let slot = &self.slots[self.memory.index(place)];
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.is_posted.store(true, Ordering::Release);
    }

    /// Takes the receive that is posted at a place: its number. Several pollers may try; one gets it,
    /// and gives the place back when nothing is to be read of it any more.
    #[inline]
    pub(super) fn take(&self, place: u32) -> Option<u64> {
        let slot = self.slots.get(place as usize)?;
        // Acquire pairs with `note`.
        let was_posted = slot.is_posted.swap(false, Ordering::Acquire);
        was_posted.then(|| slot.wr_id.load(Ordering::Relaxed))
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

/// A queue pair, as a completion queue knows it: what completes there.
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
    /// Forgets all that is posted: the queue pair was reset, or is destroyed.
    pub(super) fn reset(&self) {
        if let Some(sends) = &self.sends {
            sends.reset();
        }
        if let Incoming::Own(receives) = &self.incoming {
            receives.reset();
        }
    }
}
