//! Several threads that wait for the same descriptor: one of them sleeps on it, on behalf of all.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::queues::watched;
use super::released::{Fate, Released};
use crate::error::{Error, Result};
use crate::sys::{Deadline, Readable, Readiness, Wake, fork_generation, is_inherited};

/// Something that several threads use, and that makes progress when a descriptor is readable.
///
/// A thread that waits drops the lock and sleeps on the descriptor. Others that wait meanwhile sleep
/// until it has looked. So no sign is read by one thread that another waits for.
#[derive(Debug)]
pub(super) struct Turn<T> {
    state: Mutex<State<T>>,
    readiness: Readiness,
    /// Ends the sleep of the one that sleeps on the descriptor.
    wake: Wake,
    looked: Condvar,
    /// Which process made it.
    generation: u32,
}

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) content: T,
    /// Whether a thread sleeps on the descriptor.
    is_watched: bool,
    /// How many sleep until it has looked.
    sleepers: usize,
    /// Tasks that wait, each with the number of what it waits through.
    wakers: Vec<(u64, Waker)>,
    /// Whether the descriptor is kept readable: there is something to do that no sign is to come of.
    is_raised: bool,
}

/// The lock, held. What is released with it is so after the lock is: fields are dropped in their order.
#[derive(Debug)]
pub(super) struct Guard<'a, T> {
    state: MutexGuard<'a, State<T>>,
    released: Released,
}

impl<T> Deref for Guard<'_, T> {
    type Target = State<T>;

    fn deref(&self) -> &State<T> {
        &self.state
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut State<T> {
        &mut self.state
    }
}

impl<T> Turn<T> {
    pub(super) fn new(readiness: Readiness, content: T) -> Result<Self> {
        let os = |error| Error::from_os("stream", &error);
        let wake = Wake::new().map_err(os)?;
        readiness.watch(wake.as_fd(), watched::WAKE).map_err(os)?;
        Ok(Self {
            state: Mutex::new(State {
                content,
                is_watched: false,
                sleepers: 0,
                wakers: Vec::new(),
                is_raised: false,
            }),
            readiness,
            wake,
            looked: Condvar::new(),
            generation: fork_generation(),
        })
    }

    /// Refuses a forked child, which would take the parent's signs.
    pub(super) fn check_own(&self, operation: &'static str) -> Result<()> {
        match self.is_inherited() {
            false => Ok(()),
            true => Err(Error::from_errno(operation, libc::EACCES)),
        }
    }

    /// Whether this process is a forked child of the one that made it.
    pub(super) fn is_inherited(&self) -> bool {
        is_inherited(self.generation)
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        Guard {
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            released: Released::default(),
        }
    }

    pub(super) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Sleeps until the descriptor is readable, or another thread that slept on it has looked. Says
    /// what is readable in the first case. The lock is free meanwhile.
    pub(super) fn sleep<'a>(
        &'a self,
        operation: &'static str,
        mut guard: Guard<'a, T>,
        deadline: Deadline,
    ) -> Result<(Guard<'a, T>, Option<Readable>)> {
        if guard.is_watched {
            return Ok((self.sleep_until_looked(guard, deadline), None));
        }
        guard.is_watched = true;
        drop(guard);
        let readable = self.readiness.wait(operation, deadline);
        let mut guard = self.lock();
        guard.is_watched = false;
        // They look again once this thread has, and one of them takes its place if it leaves.
        self.rouse(&mut guard);
        let readable = readable?;
        if readable.has(watched::WAKE) {
            guard.is_raised = false;
            self.wake.calm();
        }
        Ok((guard, Some(readable)))
    }

    fn sleep_until_looked<'a>(&'a self, guard: Guard<'a, T>, deadline: Deadline) -> Guard<'a, T> {
        let Guard {
            mut state,
            released,
        } = guard;
        if !released.is_empty() {
            // Who is woken may have looked before this thread has the lock again.
            drop(state);
            drop(released);
            return self.lock();
        }
        state.sleepers += 1;
        // Without a limit: a long one.
        let rest = deadline.remaining().unwrap_or(Duration::from_secs(3600));
        let woken = self.looked.wait_timeout(state, rest);
        let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        Guard { state, released }
    }

    /// Has those that sleep until somebody has looked look for themselves.
    pub(super) fn rouse(&self, guard: &mut Guard<'_, T>) {
        if guard.sleepers > 0 {
            self.looked.notify_all();
        }
        for (_, waker) in guard.state.wakers.drain(..) {
            guard.released.push(Fate::Wake(waker));
        }
    }

    /// As [`Turn::rouse`], from one that did not sleep on the descriptor: whoever does is woken as well.
    /// A sign that is taken without that may have been the one that it was waiting for.
    pub(super) fn rouse_all(&self, guard: &mut Guard<'_, T>) {
        if guard.is_watched {
            guard.is_raised = true;
            self.wake.raise();
        }
        self.rouse(guard);
    }

    /// Keeps the descriptor readable, or no longer: for an event loop, where there is something to do
    /// that no sign is to come of. It changes only when that does, or an edge-triggered loop would
    /// never rest.
    pub(super) fn keep_readable(&self, guard: &mut Guard<'_, T>, keep: bool) {
        // The one that sleeps on it may have been woken by it, and sees to it then.
        let is_needed = !keep && guard.is_watched;
        if guard.is_raised != keep && !is_needed {
            guard.is_raised = keep;
            match keep {
                true => self.wake.raise(),
                false => self.wake.calm(),
            }
        }
    }

    /// Has a task woken when somebody has looked. It waits through something that has a number, which
    /// one task at a time does.
    #[cfg(feature = "tokio")]
    pub(super) fn register(guard: &mut Guard<'_, T>, number: u64, waker: &Waker) {
        Self::withdraw(guard, number);
        guard.wakers.push((number, waker.clone()));
    }

    /// Takes back what [`Turn::register`] did: the task looks for itself, or waits no more.
    #[cfg(feature = "tokio")]
    pub(super) fn withdraw(guard: &mut Guard<'_, T>, number: u64) {
        let registered = guard.wakers.iter().position(|(known, _)| *known == number);
        if let Some(place) = registered {
            let (_, waker) = guard.wakers.swap_remove(place);
            guard.released.push(Fate::Drop(waker));
        }
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn now(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn tasks_are_woken_once_for_each_time_that_they_register() {
        let turn = Turn::new(Readiness::new().unwrap(), ()).unwrap();
        let mut guard = turn.lock();
        let (one, other) = (Arc::<Count>::default(), Arc::<Count>::default());
        let wakers = [
            Waker::from(Arc::clone(&one)),
            Waker::from(Arc::clone(&other)),
        ];
        Turn::register(&mut guard, 1, &wakers[0]);
        Turn::register(&mut guard, 2, &wakers[1]);
        Turn::register(&mut guard, 2, &wakers[1]);
        drop(guard);
        assert_eq!((one.now(), other.now()), (0, 0), "nobody has looked");
        turn.rouse(&mut turn.lock());
        assert_eq!((one.now(), other.now()), (1, 1));
        turn.rouse(&mut turn.lock());
        assert_eq!((one.now(), other.now()), (1, 1), "nobody waits any more");
    }

    #[test]
    fn one_that_looks_for_itself_is_not_woken_and_keeps_nobody_from_it() {
        let turn = Turn::new(Readiness::new().unwrap(), ()).unwrap();
        let mut guard = turn.lock();
        let task = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&task));
        // One task that waits for both directions.
        Turn::register(&mut guard, 1, &waker);
        Turn::register(&mut guard, 2, &waker);
        Turn::withdraw(&mut guard, 1);
        turn.rouse(&mut guard);
        drop(guard);
        assert_eq!(task.now(), 1, "for the other direction");
        let mut guard = turn.lock();
        Turn::register(&mut guard, 1, &waker);
        Turn::withdraw(&mut guard, 1);
        turn.rouse(&mut guard);
        drop(guard);
        assert_eq!(task.now(), 1);
    }

    #[test]
    fn the_last_task_that_registers_is_the_one() {
        let turn = Turn::new(Readiness::new().unwrap(), ()).unwrap();
        let mut guard = turn.lock();
        let (one, other) = (Arc::<Count>::default(), Arc::<Count>::default());
        Turn::register(&mut guard, 1, &Waker::from(Arc::clone(&one)));
        Turn::register(&mut guard, 1, &Waker::from(Arc::clone(&other)));
        turn.rouse_all(&mut guard);
        drop(guard);
        assert_eq!((one.now(), other.now()), (0, 1));
    }

    /// What an executor may run in a waker: a task that looks again, or is dropped.
    struct Looks {
        turn: Arc<Turn<()>>,
        looked: Arc<Count>,
    }

    impl Looks {
        fn look(&self) {
            let is_free = self.turn.state.try_lock().is_ok();
            assert!(is_free, "the lock is held");
            self.looked.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl std::task::Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.look();
        }
    }

    impl Drop for Looks {
        fn drop(&mut self) {
            self.look();
        }
    }

    #[test]
    fn the_lock_is_free_when_a_task_is_woken_or_dropped() {
        let turn = Arc::new(Turn::new(Readiness::new().unwrap(), ()).unwrap());
        let looked = Arc::<Count>::default();
        let register = |guard: &mut Guard<'_, ()>, numbers: std::ops::Range<u64>| {
            for number in numbers {
                let (turn, looked) = (Arc::clone(&turn), Arc::clone(&looked));
                let waker = Waker::from(Arc::new(Looks { turn, looked }));
                Turn::register(guard, number, &waker);
            }
        };
        let mut guard = turn.lock();
        register(&mut guard, 0..5);
        turn.rouse(&mut guard);
        drop(guard);
        assert_eq!(looked.now(), 2 * 5, "woken, then dropped");

        register(&mut turn.lock(), 0..5);
        register(&mut turn.lock(), 0..5);
        assert_eq!(looked.now(), 2 * 5 + 5, "replaced");
        let mut guard = turn.lock();
        Turn::withdraw(&mut guard, 0);
        turn.rouse(&mut guard);
        // Another thread sleeps on the descriptor: this one would until it has looked.
        guard.is_watched = true;
        let deadline = Deadline::after(Some(Duration::from_secs(60)));
        let (mut guard, _) = turn.sleep("read", guard, deadline).unwrap();
        assert_eq!(looked.now(), 2 * 5 + 5 + 1 + 2 * 4);
        guard.is_watched = false;
    }
}
