//! Which queue pairs complete into a queue: completions name them by a number.
//!
//! Queue pairs come and go while another thread polls. The poller has a list of its own, and looks
//! only whether a counter has moved; when it has, it takes the new list, under a lock. So polling
//! takes no lock while no queue pair is made or destroyed, but for completions that carry data.
//!
//! What a queue pair that is reset or destroyed leaves in the queue must not be reported: its number
//! may be another's by then. It is taken out at the poller's next look. What is to be taken out lies
//! before the end that the queue had when the queue pair went; behind it a completion of the same
//! number is another's.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cq_ring::{CqRing, Entry};
use super::posted::{Incoming, QueuePair, SharedReceives};
use super::record::Record;
use rdmacm_kernel_abi::mlx5::{CQ_CI_MASK, CQ_SET_CI, Cqe64, NUMBER_MASK};

/// What makers of queue pairs and the poller share.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Counts changes.
    version: AtomicU32,
    changes: Mutex<Changes>,
    record: Record,
    /// Whether completions name queue pairs by a number of ours.
    has_user_index: bool,
}

/// What is under the lock.
#[derive(Debug)]
pub(crate) struct Changes {
    /// By their keys.
    members: Vec<(u32, Arc<QueuePair>)>,
    gone: Vec<Gone>,
    ring: Arc<CqRing>,
}

/// The directory, while no queue pair comes or goes.
pub(crate) type Held<'d> = MutexGuard<'d, Changes>;

/// Completions that nobody is to see.
#[derive(Debug)]
pub(super) struct Gone {
    key: u32,
    /// Whose receives become free with them.
    shared: Option<Arc<SharedReceives>>,
    /// All are before this counter.
    end: u32,
}

/// The poller's list.
#[derive(Debug, Default)]
pub(super) struct Members {
    version: u32,
    list: Vec<(u32, Arc<QueuePair>)>,
}

impl Directory {
    pub(super) fn new(ring: Arc<CqRing>, record: Record, has_user_index: bool) -> Self {
        Self {
            version: AtomicU32::new(0),
            changes: Mutex::new(Changes {
                members: Vec::new(),
                gone: Vec::new(),
                ring,
            }),
            record,
            has_user_index,
        }
    }

    #[inline(always)]
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Where in a completion the word is that names its queue pair.
    pub(super) fn place_of_key(&self) -> usize {
        match self.has_user_index {
            true => std::mem::offset_of!(Cqe64, srqn_uidx),
            false => std::mem::offset_of!(Cqe64, sop_drop_qpn),
        }
    }

    /// What a completion names its queue pair by.
    #[inline(always)]
    pub(super) fn key_of(&self, entry: Entry) -> u32 {
        // SAFETY: both fields are aligned words of the entry.
        let word = unsafe {
            match self.has_user_index {
                true => entry.read(|at| (&raw const (*at).srqn_uidx).cast::<u32>()),
                false => entry.read(|at| (&raw const (*at).sop_drop_qpn).cast::<u32>()),
            }
        };
        u32::from_be(word) & NUMBER_MASK
    }

    /// Adds a queue pair.
    pub(super) fn add(&self, pair: &Arc<QueuePair>) {
        let mut changes = self.changes();
        let at = changes.members.partition_point(|(key, _)| *key < pair.key);
        changes.members.insert(at, (pair.key, Arc::clone(pair)));
        self.change();
    }

    /// Removes a queue pair that is destroyed, with its completions.
    pub(super) fn remove(&self, pair: &QueuePair) {
        let mut changes = self.changes();
        changes.members.retain(|(key, _)| *key != pair.key);
        self.forget(&mut changes, pair);
        self.change();
    }

    /// Forgets the completions of a queue pair that was reset.
    pub(super) fn clean(&self, pair: &QueuePair) {
        self.forget(&mut self.changes(), pair);
        self.change();
    }

    /// Waits until nobody else changes it.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.changes()
    }

    /// Notes what is to be taken out, if there is anything. The device has written all of it: the
    /// kernel has been told, and has answered.
    fn forget(&self, changes: &mut Changes, pair: &QueuePair) {
        let (begin, end) = self.written(&changes.ring);
        let mut counters = (0..end.wrapping_sub(begin)).map(|number| begin.wrapping_add(number));
        let is_of = |entry: Entry| self.key_of(entry) == pair.key;
        if !counters.any(|counter| changes.ring.get(counter).is_some_and(is_of)) {
            return;
        }
        let gone = Gone {
            key: pair.key,
            shared: match &pair.incoming {
                Incoming::Shared(receives) => Some(Arc::clone(receives)),
                Incoming::None | Incoming::Own(_) => None,
            },
            end,
        };
        // Where nobody polls, a queue pair may be reset as often as one likes. What was noted of it last
        // is noted anew, at the end: the ends must ascend, since what stays in the queue moves up.
        let last = changes.gone.iter().rposition(|other| other.key == gone.key);
        if let Some(last) = last.filter(|last| changes.gone[*last].is_of_same(&gone)) {
            changes.gone.remove(last);
        }
        changes.gone.push(gone);
    }

    /// Where the entries begin that the poller has not given back, and where they end.
    fn written(&self, ring: &CqRing) -> (u32, u32) {
        // Of the counter the record has 24 bits, which name a place and a lap: no queue has more than
        // 2^22 entries.
        let mut begin = self.record.get(CQ_SET_CI);
        loop {
            let end = ring.end(begin);
            // The poller may have gone on meanwhile, and the device have written where it was. Where it
            // has not gone on, nothing was written over.
            let now = self.record.get(CQ_SET_CI);
            if now == begin {
                return (begin, end);
            }
            begin = now;
        }
    }

    fn change(&self) {
        // Release: who sees the count finds the change under the lock, and a completion that was
        // written afterwards finds its queue pair.
        self.version.fetch_add(1, Ordering::Release);
        // What is forgotten and noted later is seen with the change.
        fence(Ordering::Release);
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Whether the list is as the directory has it: then what was loaded before, of entries and of what is
    /// noted of requests, is of queue pairs as the list has them.
    #[inline(always)]
    pub(super) fn is_current(&self, directory: &Directory) -> bool {
        // Who has loaded what was stored behind the change sees the change: pairs with the fence in
        // `change`.
        fence(Ordering::Acquire);
        // Acquire: see `change`.
        self.version == directory.version.load(Ordering::Acquire)
    }

    /// Takes the list as it is now. Returns what is to be taken out of the queue first.
    pub(super) fn catch_up(&mut self, directory: &Directory, held: &mut Held<'_>) -> Vec<Gone> {
        self.version = directory.version.load(Ordering::Acquire);
        self.list.clone_from(&held.members);
        std::mem::take(&mut held.gone)
    }

    /// The queue pair of a key.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<&Arc<QueuePair>> {
        let at = self.list.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(&self.list[at].1)
    }
}

impl Changes {
    /// Another memory holds the queue from now on.
    pub(super) fn move_to(&mut self, ring: Arc<CqRing>) {
        self.ring = ring;
    }
}

impl Gone {
    /// Whether all that another is about is of the same queue pair, or of one that is known by the same.
    fn is_of_same(&self, other: &Self) -> bool {
        let shared = |gone: &Self| gone.shared.as_ref().map(Arc::as_ptr);
        self.key == other.key && shared(self) == shared(other)
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }

    pub(super) fn shared(&self) -> Option<&Arc<SharedReceives>> {
        self.shared.as_ref()
    }

    /// Where what is to be taken out ends, with the poller at a counter. The end is known by its 24
    /// lower bits.
    pub(super) fn end_from(&self, counter: u32) -> u32 {
        let ahead = self.end.wrapping_sub(counter) & CQ_CI_MASK;
        // Far ahead is behind: the poller has been there.
        match ahead < 1 << 23 {
            true => counter.wrapping_add(ahead),
            false => counter,
        }
    }
}
