//! Over iWARP: a peer that has not said anything yet is asked for it.
//!
//! The side that accepts says nothing before it has heard something. What the side that connects says
//! first may come between siw's answer to the connection request and the moment from which siw reads
//! what comes: siw leaves it unread until more comes. When nothing more does, both sides wait for ever.

use std::os::fd::AsFd;
use std::time::Duration;

use super::link::Link;
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
    /// Asks the peer when it is time, and sees to it that whoever waits comes here in time.
    pub(super) fn look(&mut self, link: &mut Link, readiness: &Readiness) {
        let is_due = match &self.alarm {
            Some(alarm) => alarm.is_over(),
            None => false,
        };
        let is_awaited = link.awaits_first_word();
        if is_due || !is_awaited {
            self.silence(readiness);
        }
        if !is_awaited || self.alarm.is_some() {
            return;
        }
        if is_due {
            // More for the peer's siw to read, with nothing in it for the peer.
            link.keep_alive();
            self.asked += 1;
        }
        let time = PATIENCE * 2u32.pow(self.asked.min(DOUBLINGS));
        // Without an alarm nobody is asked: the connection does not have to fail for that.
        self.alarm = Alarm::after(time).ok().filter(|alarm| {
            let watched = readiness.watch(alarm.as_fd(), watched::FIRST_WORD);
            watched.is_ok()
        });
    }

    fn silence(&mut self, readiness: &Readiness) {
        if let Some(alarm) = self.alarm.take() {
            // A forked child may still have it.
            readiness.forget(alarm.as_fd());
        }
    }
}
