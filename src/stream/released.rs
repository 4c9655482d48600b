//! Wakers that are let go of once a lock is free.

use std::task::Waker;

/// Waking a task may run it, and dropping the last waker may drop it, in this thread: an executor is
/// free to. The task may use what the lock guards, or drop it. So a guard collects the wakers, and
/// unlocks before it drops this.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// Of what has a reader and a writer, no more are released at a time.
    few: [Option<Fate>; 2],
    more: Vec<Fate>,
}

/// What becomes of a waker.
#[derive(Debug)]
pub(super) enum Fate {
    Wake(Waker),
    /// Nobody waits for it any more.
    #[cfg_attr(
        not(feature = "tokio"),
        expect(dead_code, reason = "only tasks have wakers")
    )]
    Drop(Waker),
}

impl Released {
    pub(super) fn push(&mut self, fate: Fate) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(fate),
            None => self.more.push(fate),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let few = self.few.iter_mut().filter_map(Option::take);
        for fate in few.chain(self.more.drain(..)) {
            match fate {
                Fate::Wake(waker) => waker.wake(),
                Fate::Drop(waker) => drop(waker),
            }
        }
    }
}
