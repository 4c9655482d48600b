//! A connection in one of its phases, with what calls note of it.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::first_word::FirstWord;
use super::handshake::Connecting;
use super::link::Link;
use super::options::{Options, Side};
use super::queues::watched;
use crate::error::{Error, Result};
#[cfg(feature = "tokio")]
use crate::sys::Alarm;
use crate::sys::{Deadline, Readable, Readiness};

/// What changes of a stream, under its lock.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) phase: Phase,
    /// Why the connection was not made or was lost, until the program has asked for it.
    pub(super) error: Option<Error>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) options: Options,
    /// Calls that were told to come again, since there was nothing to do.
    pub(super) blocked: Blocked,
    /// Since when nothing came, as far as calls waited for it.
    pub(super) idle_since: Option<Instant>,
    /// How often polling before a sleep has not helped, since it last did.
    pub(super) spins_in_vain: u32,
    pub(super) first_word: FirstWord,
    /// When tasks that wait look whether the peer's device still answers.
    #[cfg(feature = "tokio")]
    pub(super) keepalive: Option<Alarm>,
}

#[derive(Debug)]
pub(super) enum Phase {
    Connecting(Box<Connecting>),
    Open(Box<Link>),
    /// Connecting failed.
    Failed(Error),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Blocked {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Shared {
    /// Notes whether a call was told to come again.
    pub(super) fn note_blocked(&mut self, side: Side, is_blocked: bool) {
        match side {
            Side::Read => self.blocked.read = is_blocked,
            Side::Write => self.blocked.write = is_blocked,
            Side::Sent => {
                if let Phase::Open(link) = &mut self.phase {
                    link.note_asked(is_blocked);
                }
            }
        }
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.id().local_addr(),
            _ => self.local,
        }
    }

    /// Whether the connection was not made or was lost.
    pub(super) fn has_error(&self) -> bool {
        match &self.phase {
            Phase::Open(link) => link.lost().is_some(),
            Phase::Connecting(_) => false,
            Phase::Failed(_) => true,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// How connecting ended. `None` before that.
    #[cfg(feature = "tokio")]
    pub(super) fn connected(&self) -> Option<Result<()>> {
        match &self.phase {
            Phase::Open(_) => Some(Ok(())),
            Phase::Failed(error) => Some(Err(error.clone())),
            Phase::Connecting(_) => None,
        }
    }

    /// Whether nothing is left to be told to the peer.
    #[cfg(feature = "tokio")]
    pub(super) fn is_settled(&self) -> bool {
        match &self.phase {
            Phase::Open(link) => link.is_settled(),
            _ => true,
        }
    }

    /// `None` also while the connection is being made.
    pub(super) fn attempt<T>(
        &mut self,
        attempt: impl FnOnce(&mut Link) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        match &mut self.phase {
            Phase::Open(link) => {
                let outcome = attempt(link);
                if outcome.is_err() {
                    self.error = self.error.take().or_else(|| link.lost().cloned());
                }
                outcome
            }
            Phase::Connecting(_) => Ok(None),
            Phase::Failed(error) => Err(error.clone().into()),
        }
    }

    /// Does what can be done without waiting. Whether there is news.
    pub(super) fn drive(&mut self, readiness: &Readiness) -> Result<bool> {
        let outcome = match &mut self.phase {
            Phase::Open(link) => {
                let has_news = link.progress();
                let is_kept = look_for_first_word(&mut self.first_word, link, readiness);
                return Ok(has_news || !is_kept);
            }
            Phase::Failed(_) => return Ok(false),
            Phase::Connecting(connecting) => connecting.advance(readiness),
        };
        match outcome {
            Ok(None) => Ok(false),
            Ok(Some(mut link)) => {
                self.local = link.queues.id.local_addr();
                look_for_first_word(&mut self.first_word, &mut link, readiness);
                self.phase = Phase::Open(Box::new(link));
                Ok(true)
            }
            Err(error) => {
                self.fail(error);
                Ok(true)
            }
        }
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.error = Some(error.clone());
        self.phase = Phase::Failed(error);
    }

    /// Ends an attempt to connect that took too long.
    pub(super) fn give_up_connecting(&mut self) {
        if let Phase::Connecting(connecting) = &self.phase {
            let error = connecting.timed_out();
            self.fail(error);
        }
    }

    /// When an attempt to connect is to be given up.
    pub(super) fn connecting_until(&self) -> Option<Deadline> {
        match &self.phase {
            Phase::Connecting(connecting) => Some(connecting.deadline()),
            _ => None,
        }
    }

    pub(super) fn arm(&mut self) -> Result<bool> {
        match &mut self.phase {
            Phase::Open(link) => link.arm(),
            _ => Ok(false),
        }
    }

    /// Polls for a while: what is on its way costs less so than by a wake-up. Where that has not helped
    /// for some time, as on a machine with one processor, it is tried now and then only.
    pub(super) fn spin(&mut self, time: Duration) -> bool {
        let Phase::Open(link) = &mut self.phase else {
            return false;
        };
        let is_worth_it = self.spins_in_vain < 4 || self.spins_in_vain.is_multiple_of(64);
        self.spins_in_vain = self.spins_in_vain.wrapping_add(1);
        if time.is_zero() || !is_worth_it {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
            if link.progress() {
                self.spins_in_vain = 0;
                return true;
            }
        }
        false
    }

    /// When a sleep is to end: by the deadline, or when the peer is to be looked after.
    pub(super) fn wake_up_by(&mut self, deadline: Deadline) -> Deadline {
        if self.options.keepalive.is_none() {
            return deadline;
        }
        // Of several sleeps without news in between, the first counts.
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        self.options.wake_up_by(deadline, since)
    }

    /// Looks after the peer once nothing came for so long.
    pub(super) fn keep_alive_if_due(&mut self) {
        let idle = self.options.keepalive;
        if idle.is_some_and(|idle| self.idle_since.is_some_and(|since| since.elapsed() >= idle)) {
            self.idle_since = None;
            self.keep_alive();
        }
    }

    /// Looks whether the peer's device still answers, where that is wanted.
    pub(super) fn keep_alive(&mut self) {
        if let Phase::Open(link) = &mut self.phase
            && self.options.keepalive.is_some()
        {
            link.keep_alive();
        }
    }

    /// Reads the signs that there are.
    pub(super) fn take_signs(&mut self, readable: Readable) -> Result<()> {
        #[cfg(feature = "tokio")]
        if readable.has(watched::ALARM) && self.keepalive.take().is_some() {
            // A task's that does not wait any more. It would be readable for ever.
            self.keep_alive();
        }
        if let Phase::Open(link) = &mut self.phase {
            if readable.has(watched::COMPLETION) {
                link.take_sign()?;
                link.progress();
            }
            if readable.has(watched::EVENT) {
                link.take_events()?;
            }
        }
        Ok(())
    }

    /// Whether a call that no sign is to come for could do something: data is there to be read, or
    /// room for who wanted some.
    pub(super) fn has_chance(&self) -> bool {
        match &self.phase {
            Phase::Open(link) => {
                link.can_read() || self.blocked.write && link.can_write() || link.has_sent()
            }
            _ => false,
        }
    }
}

/// False when that found the connection lost.
fn look_for_first_word(first_word: &mut FirstWord, link: &mut Link, readiness: &Readiness) -> bool {
    first_word.look(link.awaits_first_word(), readiness, || {
        // With nothing in it for the peer.
        link.keep_alive();
        link.awaits_first_word()
    })
}
