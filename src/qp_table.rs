//! Who owns which queue pair, and the order of teardown.
//!
//! rdma_destroy_qp(3) asks for the queue pair of an id to be destroyed before the id. Here that
//! order cannot be broken: the table owns the queue pair of every id, and an id destroys its entry
//! before it releases itself, whether the program destroys it, drops it or unwinds. Program code
//! holds handles that stop working when the entry goes.
//!
//! The same goes for what the kernel wants out of the way of a queue pair: multicast groups are left,
//! and memory windows that are open through it are destroyed before it.
//!
//! An entry keeps what the kernel needs longer than the queue pair: completion queues and
//! protection domain (as parents of the kernel object), and the queue memory.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rdmacm_kernel_abi::uverbs;

use crate::device::{Context, Gid, KernelObject};
use crate::error::{Error, Result};
use crate::slot_table::{Key, SlotTable};
use crate::sys::{Mapping, NO_GENERATION};

/// The memory of a queue pair's queues, kept for as long as the kernel has the queue pair, and told
/// what becomes of it.
pub(crate) trait QueuePairMemory: Send + Sync + fmt::Debug {
    /// The queue pair was moved to RESET: what was posted is forgotten.
    fn was_reset(&self);

    /// The kernel has destroyed the queue pair.
    fn was_destroyed(&self);
}

/// Where the kernel does all that is to be done.
impl QueuePairMemory for Vec<Arc<Mapping>> {
    fn was_reset(&self) {}

    fn was_destroyed(&self) {}
}

/// A multicast group: its GID and, on InfiniBand, its LID.
type Group = (Gid, u16);

/// See the field of the name.
fn may_send(state: u8, generation: u32) -> u32 {
    match state == uverbs::QpState::RTS.0 {
        true => generation,
        false => NO_GENERATION + u32::from(state),
    }
}

/// A queue pair in the kernel.
#[derive(Debug)]
pub(crate) struct QpEntry {
    // Destroyed before the memory below is unmapped.
    object: KernelObject,
    number: u32,
    kind: uverbs::QpType,
    has_srq: bool,
    /// While the queue pair can send, the generation of the processes that may; otherwise
    /// [`NO_GENERATION`] and its state. So posting has one comparison to make.
    may_send: AtomicU32,
    /// How often it was moved to RESET. What was posted before is forgotten then.
    resets: AtomicU32,
    /// Reads that may be under way at a time, once that was set.
    initiator_depth: AtomicU8,
    /// The longest datagram in bytes, once that is known.
    max_datagram: AtomicU32,
    /// The multicast groups that the queue pair is attached to. The kernel refuses to destroy it
    /// before it is detached from all.
    groups: Mutex<Vec<Group>>,
    /// The memory windows that may be open to the peer. The kernel would wait for them for most of a
    /// minute before it destroys the queue pair, and fail.
    windows: Mutex<Vec<Weak<KernelObject>>>,
    memory: Arc<dyn QueuePairMemory>,
}

impl QpEntry {
    /// The value of [`QpEntry::state`] after the queue pair is destroyed; no state of the kernel's.
    pub(crate) const DESTROYED: u8 = u8::MAX;

    /// `state` is the kernel's number of the state the queue pair is in.
    pub(crate) fn new(
        object: KernelObject,
        number: u32,
        kind: uverbs::QpType,
        has_srq: bool,
        state: u8,
        memory: Arc<dyn QueuePairMemory>,
    ) -> Self {
        let generation = object.context().generation();
        Self {
            object,
            number,
            kind,
            has_srq,
            may_send: AtomicU32::new(may_send(state, generation)),
            resets: AtomicU32::new(0),
            initiator_depth: AtomicU8::new(u8::MAX),
            max_datagram: AtomicU32::new(u32::MAX),
            groups: Mutex::new(Vec::new()),
            windows: Mutex::new(Vec::new()),
            memory,
        }
    }

    pub(crate) fn context(&self) -> &Context {
        self.object.context()
    }

    /// Sends a command about the queue pair, which is not destroyed meanwhile.
    pub(crate) fn with_handle<T>(
        &self,
        operation: &'static str,
        command: impl FnOnce(u32) -> Result<T>,
    ) -> Result<T> {
        self.object.with_handle(operation, command)
    }

    /// The number that peers address.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it takes its receives from a shared queue.
    pub(crate) fn has_srq(&self) -> bool {
        self.has_srq
    }

    /// The kernel's number of its type.
    pub(crate) fn kind(&self) -> uverbs::QpType {
        self.kind
    }

    /// Whether a forked child holds a copy of the parent's queue pair. Both share the queues of rxe
    /// and siw, and the registers of mlx5.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.object.context().is_inherited()
    }

    /// The kernel's number of the state that this process last moved the queue pair to. Relaxed:
    /// it guards no data, and a race with the kernel exists anyway.
    #[inline]
    pub(crate) fn state(&self) -> u8 {
        match self.may_send.load(Ordering::Relaxed) {
            other if other >= NO_GENERATION => (other - NO_GENERATION) as u8,
            _ => uverbs::QpState::RTS.0,
        }
    }

    /// Whether requests may be posted, by a process of the generation `now`, which is that of this
    /// process. Says all that [`QpEntry::state`] and [`QpEntry::is_inherited`] have to say of it.
    #[inline(always)]
    pub(crate) fn may_send(&self, now: u32) -> bool {
        self.may_send.load(Ordering::Relaxed) == now
    }

    /// Whether the queue pair is destroyed.
    #[inline(always)]
    pub(crate) fn is_destroyed(&self) -> bool {
        self.may_send.load(Ordering::Relaxed) == NO_GENERATION + Self::DESTROYED as u32
    }

    /// Notes a transition, unless the queue pair is destroyed.
    pub(crate) fn set_state(&self, state: u8) {
        if state == uverbs::QpState::RESET.0 {
            self.memory.was_reset();
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        let (state, destroyed) = (self.in_state(state), self.in_state(Self::DESTROYED));
        let _ = self
            .may_send
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                (old != destroyed).then_some(state)
            });
    }

    fn in_state(&self, state: u8) -> u32 {
        may_send(state, self.context().generation())
    }

    /// How often it was moved to RESET.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Whether reads and atomics may be posted. Where the two sides agreed on none, the kernel would
    /// take one and never carry it out.
    #[inline]
    pub(crate) fn can_read(&self) -> bool {
        self.initiator_depth.load(Ordering::Relaxed) > 0
    }

    /// Notes how many reads and atomics may be under way at a time.
    pub(crate) fn set_initiator_depth(&self, depth: u8) {
        self.initiator_depth.store(depth, Ordering::Relaxed);
    }

    /// The longest datagram in bytes.
    #[inline]
    pub(crate) fn max_datagram(&self) -> u32 {
        self.max_datagram.load(Ordering::Relaxed)
    }

    /// Notes how long a datagram may be.
    pub(crate) fn set_max_datagram(&self, bytes: u32) {
        self.max_datagram.store(bytes, Ordering::Relaxed);
    }

    /// Attaches the queue pair to a multicast group. Nothing happens where it is attached already.
    pub(crate) fn attach(&self, gid: Gid, lid: u16) -> Result<()> {
        let mut groups = self.groups();
        if groups.contains(&(gid, lid)) {
            return Ok(());
        }
        self.with_handle("attach_mcast", |qp_handle| {
            let request = uverbs::AttachMcast {
                gid: gid.0,
                qp_handle,
                mlid: lid,
                reserved: 0,
            };
            self.context()
                .command_without_answer(uverbs::Command::ATTACH_MCAST, &request)
                .map_err(|error| Error::from_os("attach_mcast", &error))
        })?;
        groups.push((gid, lid));
        Ok(())
    }

    /// Detaches the queue pair from a multicast group. False when it is not attached to it.
    pub(crate) fn detach(&self, gid: Gid, lid: u16) -> Result<bool> {
        let mut groups = self.groups();
        let Some(at) = groups.iter().position(|group| *group == (gid, lid)) else {
            return Ok(false);
        };
        self.detach_from((gid, lid))?;
        groups.swap_remove(at);
        Ok(true)
    }

    fn detach_from(&self, (gid, lid): Group) -> Result<()> {
        self.with_handle("detach_mcast", |qp_handle| {
            let request = uverbs::DetachMcast {
                gid: gid.0,
                qp_handle,
                mlid: lid,
                reserved: 0,
            };
            self.context()
                .command_without_answer(uverbs::Command::DETACH_MCAST, &request)
                .map_err(|error| Error::from_os("detach_mcast", &error))
        })
    }

    fn detach_from_all(&self, groups: &mut Vec<Group>) {
        // The groups of a forked child's copy are the parent's.
        if !self.is_inherited() {
            groups.retain(|group| self.detach_from(*group).is_err());
        }
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a memory window that is about to be bound through the queue pair, and goes with it.
    pub(crate) fn add_window(&self, window: &Arc<KernelObject>) {
        let mut windows = self.windows();
        if windows.len() == windows.capacity() {
            windows.retain(|window| window.strong_count() > 0);
        }
        windows.push(Arc::downgrade(window));
    }

    /// Forgets a memory window that is not open through the queue pair any more.
    pub(crate) fn remove_window(&self, window: &Arc<KernelObject>) {
        self.windows()
            .retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(window)));
    }

    fn destroy_windows(&self, windows: &mut Vec<Weak<KernelObject>>) -> Result<()> {
        while let Some(window) = windows.last() {
            if let Some(window) = window.upgrade() {
                window.destroy()?;
            }
            windows.pop();
        }
        Ok(())
    }

    fn windows(&self) -> MutexGuard<'_, Vec<Weak<KernelObject>>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys the queue pair, detached from its groups first and after the memory windows that were
    /// bound through it. False when that was done before; after an error it is there still, and
    /// perhaps detached from some groups.
    pub(crate) fn destroy(&self) -> Result<bool> {
        // Held to the end, so that no group and no window is added meanwhile.
        let (mut groups, mut windows) = (self.groups(), self.windows());
        self.detach_from_all(&mut groups);
        self.destroy_windows(&mut windows)?;
        let destroyed = self.object.destroy().map_err(|error| match groups.len() {
            0 => error,
            count => error.because(format!(
                "the kernel does not let the queue pair leave {count} multicast group(s); try again"
            )),
        })?;
        groups.clear();
        let destroyed_state = self.in_state(Self::DESTROYED);
        self.may_send.store(destroyed_state, Ordering::Relaxed);
        if destroyed {
            self.memory.was_destroyed();
        }
        Ok(destroyed)
    }
}

impl Drop for QpEntry {
    fn drop(&mut self) {
        // Before the object is dropped, which destroys it. As there, what is refused is tried once
        // more.
        let (mut groups, mut windows) = (self.groups(), self.windows());
        for _ in 0..2 {
            self.detach_from_all(&mut groups);
            let _ = self.destroy_windows(&mut windows);
        }
        for _ in 0..2 {
            if let Ok(destroyed) = self.object.destroy() {
                if destroyed {
                    self.memory.was_destroyed();
                }
                break;
            }
        }
    }
}

/// Names a queue pair that an id owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpKey(Key);

static TABLE: Mutex<SlotTable<Arc<QpEntry>>> = Mutex::new(SlotTable::new());

fn table() -> MutexGuard<'static, SlotTable<Arc<QpEntry>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a queue pair into the table's care.
pub(crate) fn insert(entry: Arc<QpEntry>) -> QpKey {
    QpKey(table().insert(entry))
}

/// The queue pair under `key`, while it is not destroyed.
pub(crate) fn get(key: QpKey) -> Option<Arc<QpEntry>> {
    find(key).filter(|entry| entry.state() != QpEntry::DESTROYED)
}

/// The queue pair under `key`, which may have been destroyed through its handle.
fn find(key: QpKey) -> Option<Arc<QpEntry>> {
    table().get(key.0).cloned()
}

/// Destroys the queue pair under `key`. False when that was done before. After an error the entry
/// is still there, and so must be the id.
pub(crate) fn destroy(key: QpKey) -> Result<bool> {
    // The command is sent outside the lock: other ids must not wait for it.
    let Some(entry) = find(key) else {
        return Ok(false);
    };
    let destroyed = entry.destroy()?;
    table().remove(key.0);
    Ok(destroyed)
}

/// Lets go of a queue pair that the kernel refuses to destroy, so that its device can close and
/// take it along. For an id that is dropped: nobody else would ever let go.
pub(crate) fn abandon(key: QpKey) {
    let entry = table().remove(key.0);
    // Its own drop tries to destroy it once more: outside the lock.
    drop(entry);
}
