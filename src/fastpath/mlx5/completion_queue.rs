//! The completion queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmacm_kernel_abi::mlx5::{
    CQ_ARM_DB, CQ_ARM_SERIAL_MASK, CQ_ARM_SERIAL_SHIFT, CQ_CI_MASK, CQ_DB_REQ_NOT,
    CQ_DB_REQ_NOT_SOL, CQ_SET_CI, Opcode,
};
use rdmacm_kernel_abi::uverbs::{Wc, WcOpcode};
use zerocopy::transmute;

use super::cq_ring::{CqRing, Cursor, Entry};
use super::cqe::{self, Side, Telling};
use super::directory::{Directory, Gone, Held, Members};
use super::doorbell;
use super::posted::{Finisher, QueuePair};
use super::register::ArmRegister;
use super::scatter::{KnownRegions, Regions};
use super::send_entry::{Key, Look, Word};
use crate::fastpath::completion::Completion;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: Arc<CqRing>,
    directory: Arc<Directory>,
    members: Members,
    cursor: Cursor,
    current: Current,
    number: u32,
    arm: ArmRegister,
    /// How many events of the queue were read from its channel.
    events: Arc<AtomicU32>,
    /// The memory that short messages are copied to.
    regions: KnownRegions,
}

/// The queue pair of the last completion: the next is mostly of the same.
#[derive(Debug)]
struct Current {
    /// What entries name it by, and at which offset.
    key: Key,
    place_of_key: usize,
    /// What the entries of its sends and of its writes have for a word.
    send: Word,
    write: Word,
    sends: Finisher,
    /// The completion of a send, but for the program's number.
    plain: Wc,
    pair: Option<Arc<QueuePair>>,
}

/// What an entry told the program.
enum Told {
    All,
    Nothing,
    /// It is of a queue pair that was reset or destroyed meanwhile.
    OfAnotherLife,
}

impl Current {
    fn new(directory: &Directory, pair: Option<&Arc<QueuePair>>) -> Self {
        let number = pair.map_or(0, |pair| pair.number);
        Self {
            key: Key::new(pair.map_or(0, |pair| pair.key)),
            place_of_key: directory.place_of_key(),
            send: Word::of(Opcode::SEND, number),
            write: Word::of(Opcode::RDMA_WRITE, number),
            sends: Finisher::of(pair.and_then(|pair| pair.sends.as_ref())),
            plain: Wc {
                opcode: WcOpcode::SEND.0,
                qp_num: number,
                ..Wc::default()
            },
            pair: pair.cloned(),
        }
    }

    /// Becomes the queue pair of a key.
    #[cold]
    fn look_up(&mut self, members: &Members, directory: &Directory, key: u32) {
        *self = Self::new(directory, members.find(key));
    }

    /// The opcode of the completion of a send or write of this queue pair.
    #[inline(always)]
    fn opcode(&self, word: Word) -> Option<WcOpcode> {
        if word == self.write {
            Some(WcOpcode::RDMA_WRITE)
        } else if word == self.send {
            Some(WcOpcode::SEND)
        } else {
            None
        }
    }
}

impl CompletionQueue {
    pub(super) fn new(
        ring: Arc<CqRing>,
        directory: Arc<Directory>,
        number: u32,
        arm: ArmRegister,
        events: Arc<AtomicU32>,
        regions: Arc<Regions>,
    ) -> Self {
        Self {
            cursor: Cursor::new(&ring, 0),
            current: Current::new(&directory, None),
            ring,
            directory,
            members: Members::default(),
            number,
            arm,
            events,
            regions: KnownRegions::new(regions),
        }
    }

    /// How many completions fit: one place is kept free.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.count() - 1
    }

    /// How many completions there are.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring
            .end(self.cursor.counter)
            .wrapping_sub(self.cursor.counter)
    }

    /// What a queue pair that completes here is added to.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Counted up by each event of the queue that is read.
    pub(crate) fn events(&self) -> &Arc<AtomicU32> {
        &self.events
    }

    /// Takes out as many completions as there are, up to the length of `entries`, and returns them.
    #[inline(always)]
    pub(crate) fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        // SAFETY: the ring is there.
        let look = unsafe { self.cursor.look() };
        if look.is_send() {
            if let [entry] = &mut *entries
                && self.take_send(look, &mut entry.0)
            {
                self.give_back();
                return entries;
            }
        } else if look.is_of_other_lap() {
            return &[];
        } else {
            rare();
            if look.is_never_written() {
                return &[];
            }
        }
        self.poll_some(entries)
    }

    /// As `poll`, where there may be something.
    #[inline(never)]
    fn poll_some<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        let mut taken = self.take_sends(entries);
        while let Some(entry) = entries.get_mut(taken) {
            // SAFETY: the ring is there.
            let look = unsafe { self.cursor.look() };
            // Perhaps of another kind than the one before.
            let is_taken = look.is_send() && self.take_send(look, &mut entry.0);
            if !is_taken && !self.take(&mut entry.0) {
                break;
            }
            taken += 1;
            taken += self.take_sends(&mut entries[taken..]);
        }
        if taken > 0 {
            self.give_back();
        }
        &entries[..taken]
    }

    /// Where completions end at the latest: each entry is looked at once.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.cursor.counter.wrapping_add(self.ring.count())
    }

    /// Takes the next completion before `end`. Its entry is the device's again after `give_back`.
    #[inline]
    pub(crate) fn next_before(&mut self, end: u32) -> Option<Completion> {
        let mut completion = Completion::default();
        let is_before = end.wrapping_sub(self.cursor.counter) as i32 > 0;
        (is_before && self.take(&mut completion.0)).then_some(completion)
    }

    /// Tells the device which entries it may write again.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        doorbell::order_reads_before();
        self.directory
            .record()
            .set(CQ_SET_CI, self.cursor.counter & CQ_CI_MASK);
    }

    /// Takes the next completion, whose entry is the program's and of a request that succeeded, as a
    /// look at it said, if it is one of a send or write of the queue pair of the last completion. These are
    /// most of what there is, and their entries say little: `take` and [`translate`] are for the others.
    #[inline(always)]
    fn take_send(&mut self, look: Look, wc: &mut Wc) -> bool {
        // SAFETY: the ring is there, and the entry the program's.
        let word = unsafe { self.cursor.place().word() };
        let current = &self.current;
        let Some(opcode) = current.opcode(word) else {
            return false;
        };
        // SAFETY: as above, and the offset is that of a word.
        if !unsafe {
            self.cursor
                .place()
                .has_key(current.key, current.place_of_key)
        } {
            return false;
        }
        let mut done = current.sends.done();
        // SAFETY: the requests are those of `current`.
        let finished = unsafe { current.sends.places().finish(look.block(), &mut done) };
        let Some(wr_id) = finished else {
            return false;
        };
        // After the look at the entry and at the request, as in `take`.
        if !self.members.is_current(&self.directory) {
            return false;
        }
        current.sends.commit(done);
        *wc = current.plain;
        (wc.wr_id, wc.opcode) = (wr_id, opcode.0);
        self.cursor.advance(&self.ring);
        true
    }

    /// The same for as many as there are in a row, of the same kind, up to the end of the memory.
    #[inline(never)]
    fn take_sends(&mut self, entries: &mut [Completion]) -> usize {
        // All that the loop needs is in local variables: the compiler cannot know that what it writes
        // into `entries` leaves the queue as it is.
        let owner = self.cursor.owner();
        let current = &self.current;
        let (sends, places, mut plain) = (&current.sends, current.sends.places(), current.plain);
        let mut done = sends.done();
        let mut taken = 0;
        // SAFETY: the ring is there; the word is used where the entry is the program's.
        let word = unsafe { self.cursor.place().word() };
        let Some(opcode) = current.opcode(word) else {
            return 0;
        };
        plain.opcode = opcode.0;
        let [_, plain @ ..]: [u64; 6] = transmute!(plain);
        let (key, place_of_key) = (current.key, current.place_of_key);
        for (wc, place) in entries.iter_mut().zip(self.cursor.places()) {
            // SAFETY: the ring is there.
            let look = unsafe { place.look(owner) };
            // SAFETY: as above, and the entry is the program's.
            if !look.is_send() || unsafe { place.word() } != word {
                break;
            }
            // SAFETY: as above, and the offset is that of a word.
            if !unsafe { place.has_key(key, place_of_key) } {
                break;
            }
            // SAFETY: the requests are those of `current`.
            let Some(wr_id) = (unsafe { places.finish(look.block(), &mut done) }) else {
                break;
            };
            let [one, two, three, four, five] = plain;
            wc.0 = transmute!([wr_id, one, two, three, four, five]);
            taken += 1;
        }
        // After the look at the entries, as in `take`. Where the list was not as it is now, nothing was
        // taken: `take` begins anew.
        if taken == 0 || !self.members.is_current(&self.directory) {
            return 0;
        }
        sends.commit(done);
        self.cursor.skip(&self.ring, taken as u32);
        taken
    }

    /// Takes the next completion, if there is one.
    #[inline(always)]
    fn take(&mut self, wc: &mut Wc) -> bool {
        loop {
            let entry = self.ring.get(self.cursor.counter);
            // After the look at the entry: the queue pair of a completion was added before it came.
            if !self.members.is_current(&self.directory) {
                self.catch_up();
                continue;
            }
            let Some(entry) = entry else { return false };
            let told = match cqe::carries_data(entry) {
                false => {
                    let lists = (&self.members, &*self.directory);
                    translate(entry, lists, &mut self.current, &mut self.regions, wc)
                }
                true => self.translate_with_data(entry, wc),
            };
            match told {
                Told::All => {
                    self.cursor.advance(&self.ring);
                    return true;
                }
                Told::Nothing => self.cursor.advance(&self.ring),
                // It is taken out.
                Told::OfAnotherLife => {}
            }
        }
    }

    /// As [`translate`], of an entry that carries data, which are copied to where the request says. No
    /// queue pair is reset meanwhile, or they might be copied to where a request says that was posted
    /// since. Nobody else has the lock but who makes, resets or destroys a queue pair.
    #[inline(never)]
    fn translate_with_data(&mut self, entry: Entry, wc: &mut Wc) -> Told {
        let _held = self.directory.hold();
        let lists = (&self.members, &*self.directory);
        translate(entry, lists, &mut self.current, &mut self.regions, wc)
    }

    /// Takes the list of queue pairs as it is now, and takes out what those left that went.
    #[cold]
    pub(super) fn catch_up(&mut self) {
        let directory = Arc::clone(&self.directory);
        self.catch_up_with(&mut directory.hold());
    }

    /// The same, with the directory held to the end: who adds to what is to be taken out reads the
    /// entries that are moved here.
    pub(crate) fn catch_up_with(&mut self, held: &mut Held<'_>) {
        let mut next = self.cursor.counter;
        for gone in self.members.catch_up(&self.directory, held) {
            next = take_out(&self.ring, &self.directory, next, &gone);
        }
        self.current = Current::new(&self.directory, None);
        if next != self.cursor.counter {
            self.cursor = Cursor::new(&self.ring, next);
            self.give_back();
        }
    }

    /// Asks for an event at the next completion, or at the next that is solicited or has failed.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let command = match solicited_only {
            true => CQ_DB_REQ_NOT_SOL,
            false => CQ_DB_REQ_NOT,
        };
        // The device takes a number that it has seen for one that it has answered.
        let serial = self.events.load(Ordering::Relaxed) & CQ_ARM_SERIAL_MASK;
        let word = serial << CQ_ARM_SERIAL_SHIFT | command | self.cursor.counter & CQ_CI_MASK;
        self.directory.record().set(CQ_ARM_DB, word);
        self.arm.arm(u64::from(word) << 32 | u64::from(self.number));
    }

    /// Takes over the completions of the queue that this one replaces, after the kernel has made the
    /// change. False when the mark is missing that the device leaves at their end.
    ///
    /// The directory has been held since before: a queue pair that went meanwhile would look for its
    /// completions in the memory that the device has left.
    pub(super) fn move_to(&mut self, ring: Arc<CqRing>, mut held: Held<'_>) -> bool {
        let begin = self.cursor.counter;
        let mut from = begin;
        let found = loop {
            let is_lap = from.wrapping_sub(begin) >= self.ring.count();
            let Some(entry) = self.ring.get(from).filter(|_| !is_lap) else {
                break false;
            };
            if cqe::is_end_of_old_queue(entry) {
                break true;
            }
            // SAFETY: the device goes on behind these entries in the new memory: they are as many as
            // it has left room for, one further than in the old, for the mark.
            unsafe { ring.copy_from(&self.ring, from, from.wrapping_add(1)) };
            from = from.wrapping_add(1);
        };
        self.cursor = Cursor::new(&ring, begin.wrapping_add(1));
        held.move_to(Arc::clone(&ring));
        self.ring = ring;
        // Who looks for what a queue pair left begins where the record says: behind the mark, whose
        // place in the new memory nobody has written.
        self.give_back();
        found
    }

    /// The queue's memory.
    #[cfg(any(test, fuzzing))]
    pub(super) fn ring(&self) -> &Arc<CqRing> {
        &self.ring
    }
}

/// Puts an entry into the form that all providers share.
#[inline(always)]
fn translate(
    entry: Entry,
    (members, directory): (&Members, &Directory),
    current: &mut Current,
    regions: &mut KnownRegions,
    wc: &mut Wc,
) -> Told {
    let Some(side) = cqe::side(entry.kind()) else {
        // Nothing is said of a queue that was resized, which its owner knows.
        return match cqe::is_unknown(entry, wc) {
            true => Told::All,
            false => Told::Nothing,
        };
    };
    let key = directory.key_of(entry);
    let is_current = matches!(&current.pair, Some(pair) if pair.key == key);
    if !is_current {
        current.look_up(members, directory, key);
    }
    let Some(pair) = &current.pair else {
        cqe::of_nobody(entry, wc);
        return Told::All;
    };
    let telling = Telling {
        pair,
        regions,
        is_current: || members.is_current(directory),
    };
    let is_told = match side {
        Side::Requester => cqe::requester(entry, telling, wc),
        Side::Responder => cqe::responder(entry, telling, wc),
        Side::FailedRequester | Side::FailedResponder => cqe::failure(entry, telling, side, wc),
    };
    match is_told {
        true => Told::All,
        false => Told::OfAnotherLife,
    }
}

/// Keeps two comparisons apart, of which the first mostly decides.
#[cold]
#[inline(always)]
fn rare() {}

/// Takes out the completions of a queue pair that went, of those from `next` on: from their end on
/// backwards, so that what stays moves up behind them. Returns where the queue begins then. The
/// directory must be locked.
fn take_out(ring: &CqRing, directory: &Directory, next: u32, gone: &Gone) -> u32 {
    let mut taken = 0;
    let mut counter = ring.end(next);
    let end = gone.end_from(next);
    while counter != next {
        counter = counter.wrapping_sub(1);
        let Some(entry) = ring.get(counter) else {
            continue;
        };
        let is_before_end = end.wrapping_sub(counter) as i32 > 0;
        if is_before_end && directory.key_of(entry) == gone.key() {
            cqe::forget(entry, gone.shared());
            taken += 1;
        } else if taken > 0 {
            // SAFETY: both entries are the program's. Of its threads only the one that polls reads
            // them without the directory's lock, and that is this one.
            unsafe { ring.copy_within(counter, counter.wrapping_add(taken)) };
        }
    }
    next.wrapping_add(taken)
}
