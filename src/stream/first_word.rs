//! Over iWARP: a peer that has not said anything yet is asked for it.
//!
//! The side that accepts says nothing before it has heard something. What the side that connects says
//! first may come between siw's answer to the connection request and the moment from which siw reads
//! what comes: siw leaves it unread until more comes. When nothing more does, both sides wait for ever.
//!
//! It is asked while somebody waits: a call, a task, or an event loop that looks when the descriptor is
//! readable.

use std::os::fd::AsFd;
use std::time::Duration;

use super::queues::watched;
use crate::sys::{Alarm, Readiness};

/// How long the first word may take before the peer is asked for it; then twice as long.
const PATIENCE: Duration = Duration::from_millis(10);

/// How often the time is doubled.
const DOUBLINGS: u32 = 10;

/// When the peer is asked next.
#[derive(Debug, Default)]
pub(super) struct FirstWord {
    alarm: Option<Alarm>,
    asked: u32,
}

impl FirstWord {
    /// Asks the peer when it is time, and sees to it that whoever waits comes here in time. `ask` gives
    /// the peer's siw more to read, and says whether the word is still to come. False when it is not,
    /// because asking found the connection lost.
    pub(super) fn look(
        &mut self,
        is_awaited: bool,
        readiness: &Readiness,
        ask: impl FnOnce() -> bool,
    ) -> bool {
        let is_due = self.alarm.as_ref().is_some_and(Alarm::is_over);
        if is_due || !is_awaited {
            self.silence(readiness);
        }
        if !is_awaited || self.alarm.is_some() {
            return true;
        }
        if is_due {
            self.asked += 1;
            if !ask() {
                return false;
            }
        }
        let time = PATIENCE * 2u32.pow(self.asked.min(DOUBLINGS));
        // Without an alarm nobody is asked: the connection does not have to fail for that.
        self.alarm = Alarm::after(time).ok().filter(|alarm| {
            let watched = readiness.watch(alarm.as_fd(), watched::FIRST_WORD);
            watched.is_ok()
        });
        true
    }

    fn silence(&mut self, readiness: &Readiness) {
        if let Some(alarm) = self.alarm.take() {
            // A forked child may still have it.
            readiness.forget(alarm.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Deadline;

    fn wait(readiness: &Readiness) -> bool {
        let deadline = Deadline::after(Some(Duration::from_secs(10)));
        readiness
            .wait("test", deadline)
            .unwrap()
            .has(watched::FIRST_WORD)
    }

    /// The time to ask has come.
    fn overdue() -> (Readiness, FirstWord) {
        let readiness = Readiness::new().unwrap();
        let mut first_word = FirstWord::default();
        first_word.look(true, &readiness, || panic!("too early"));
        assert!(wait(&readiness));
        (readiness, first_word)
    }

    fn is_readable(readiness: &Readiness) -> bool {
        readiness.look("test").unwrap().is_any()
    }

    #[test]
    fn a_silent_peer_is_asked_each_time_that_the_alarm_is_over() {
        let readiness = Readiness::new().unwrap();
        let mut first_word = FirstWord::default();
        assert!(first_word.look(true, &readiness, || panic!("too early")));
        for asked in 1..4 {
            assert!(wait(&readiness));
            let mut was_asked = false;
            assert!(first_word.look(true, &readiness, || {
                was_asked = true;
                true
            }));
            assert!(was_asked);
            assert_eq!(first_word.asked, asked);
            assert!(!is_readable(&readiness), "the next time is twice as long");
        }
    }

    #[test]
    fn a_word_that_comes_ends_it() {
        let (readiness, mut first_word) = overdue();
        assert!(first_word.look(false, &readiness, || panic!("it came")));
        assert!(!is_readable(&readiness));
        assert!(first_word.alarm.is_none());
    }

    #[test]
    fn nobody_waits_for_a_connection_that_is_lost() {
        let (readiness, mut first_word) = overdue();
        assert!(!first_word.look(true, &readiness, || false));
        assert!(first_word.alarm.is_none());
        assert!(!is_readable(&readiness));
    }
}
