//! The completion queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmacm_kernel_abi::mlx5::{CQ_ARM_DB, CQ_DB_REQ_NOT, CQ_DB_REQ_NOT_SOL, CQ_SET_CI};
use rdmacm_kernel_abi::uverbs::Wc;

use super::cq_ring::{CqRing, Entry};
use super::cqe::{self, Side};
use super::directory::{Directory, Gone, Held, Members};
use super::doorbell;
use super::posted::QueuePair;
use super::register::ArmRegister;
use super::scatter::{KnownRegions, Regions};
use crate::fastpath::completion::Completion;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: Arc<CqRing>,
    directory: Arc<Directory>,
    members: Members,
    /// The queue pair of the last completion: the next is mostly of the same.
    current: Option<Arc<QueuePair>>,
    next: u32,
    number: u32,
    arm: ArmRegister,
    /// How many events of the queue were read from its channel.
    events: Arc<AtomicU32>,
    /// The memory that short messages are copied to.
    regions: KnownRegions,
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
            ring,
            directory,
            members: Members::default(),
            current: None,
            next: 0,
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
        self.ring.end(self.next).wrapping_sub(self.next)
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
        match self.ring.get(self.next) {
            None => &[],
            Some(_) => self.poll_some(entries),
        }
    }

    /// As `poll`, where there is something.
    #[inline(never)]
    fn poll_some<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        let mut taken = 0;
        while let Some(entry) = entries.get_mut(taken) {
            match self.take(&mut entry.0) {
                true => taken += 1,
                false => break,
            }
        }
        if taken > 0 {
            self.give_back();
        }
        &entries[..taken]
    }

    /// Where completions end at the latest: each entry is looked at once.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.next.wrapping_add(self.ring.count())
    }

    /// Takes the next completion before `end`. Its entry is the device's again after `give_back`.
    #[inline]
    pub(crate) fn next_before(&mut self, end: u32) -> Option<Completion> {
        let mut completion = Completion::default();
        (self.next != end && self.take(&mut completion.0)).then_some(completion)
    }

    /// Tells the device which entries it may write again.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        // The entries were read before.
        doorbell::order_memory();
        self.directory
            .record()
            .set(CQ_SET_CI, self.next & 0x00ff_ffff);
    }

    /// Takes the next completion, if there is one.
    #[inline(always)]
    fn take(&mut self, wc: &mut Wc) -> bool {
        loop {
            let entry = self.ring.get(self.next);
            // After the look at the entry: the queue pair of a completion was added before it came.
            if !self.members.is_current(&self.directory) {
                self.catch_up();
                continue;
            }
            let Some(entry) = entry else { return false };
            self.next = self.next.wrapping_add(1);
            if self.translate(entry, wc) {
                return true;
            }
        }
    }

    /// Puts an entry into the form that all providers share. False for one that tells the program
    /// nothing.
    #[inline(always)]
    fn translate(&mut self, entry: Entry, wc: &mut Wc) -> bool {
        let Some(side) = cqe::side(entry.kind()) else {
            // The queue was resized, which its owner knows.
            return cqe::is_unknown(entry, wc);
        };
        let key = self.directory.key_of(entry);
        let is_current = matches!(&self.current, Some(pair) if pair.key == key);
        if !is_current {
            self.look_up(key);
        }
        match (&self.current, side) {
            (Some(pair), Side::Requester) => cqe::requester(entry, pair, &mut self.regions, wc),
            (Some(pair), Side::Responder) => cqe::responder(entry, pair, &mut self.regions, wc),
            (Some(pair), Side::FailedRequester | Side::FailedResponder) => {
                cqe::failure(entry, pair, side, wc);
            }
            (None, _) => cqe::of_nobody(entry, wc),
        }
        true
    }

    #[cold]
    fn look_up(&mut self, key: u32) {
        self.current = self.members.find(key).cloned();
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
        let gone = self.members.catch_up(&self.directory, held);
        self.current = None;
        let before = self.next;
        for gone in &gone {
            self.take_out(gone);
        }
        if self.next != before {
            self.give_back();
        }
    }

    /// Takes out completions from the end on backwards: what stays moves up behind them.
    fn take_out(&mut self, gone: &Gone) {
        let mut taken = 0;
        let mut counter = self.ring.end(self.next);
        let end = gone.end_from(self.next);
        while counter != self.next {
            counter = counter.wrapping_sub(1);
            let Some(entry) = self.ring.get(counter) else {
                continue;
            };
            let is_before_end = end.wrapping_sub(counter) as i32 > 0;
            if is_before_end && self.directory.key_of(entry) == gone.key() {
                cqe::forget(entry, gone.shared());
                taken += 1;
            } else if taken > 0 {
                // SAFETY: both entries are the program's, and this is the only thread that reads
                // them: others do under the directory's lock, which is held here.
                unsafe { self.ring.copy_within(counter, counter.wrapping_add(taken)) };
            }
        }
        self.next = self.next.wrapping_add(taken);
    }

    /// Asks for an event at the next completion, or at the next that is solicited or has failed.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let command = match solicited_only {
            true => CQ_DB_REQ_NOT_SOL,
            false => CQ_DB_REQ_NOT,
        };
        // The device takes a number that it has seen for one that it has answered.
        let serial = self.events.load(Ordering::Relaxed) & 3;
        let word = serial << 28 | command | self.next & 0x00ff_ffff;
        self.directory.record().set(CQ_ARM_DB, word);
        self.arm.arm(u64::from(word) << 32 | u64::from(self.number));
    }

    /// Takes over the completions of the queue that this one replaces, after the kernel has made the
    /// change. False when the mark is missing that the device leaves at their end.
    ///
    /// The directory has been held since before: a queue pair that went meanwhile would look for its
    /// completions in the memory that the device has left.
    pub(super) fn move_to(&mut self, ring: Arc<CqRing>, mut held: Held<'_>) -> bool {
        let mut from = self.next;
        let mut to = from.wrapping_add(1);
        let found = loop {
            let is_lap = from.wrapping_sub(self.next) >= self.ring.count();
            let Some(entry) = self.ring.get(from).filter(|_| !is_lap) else {
                break false;
            };
            if cqe::is_end_of_old_queue(entry) {
                break true;
            }
            // SAFETY: the device goes on behind these entries in the new memory: they are as many as
            // it has left room for, one further than in the old, for the mark.
            unsafe { ring.copy_from(&self.ring, from, to) };
            from = from.wrapping_add(1);
            to = to.wrapping_add(1);
        };
        self.next = self.next.wrapping_add(1);
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
