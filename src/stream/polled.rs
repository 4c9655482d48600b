//! How tasks wait, whatever executor they run on: each function does what can be done now, or has the
//! task woken when there may be more.
//!
//! A task is woken by two things. The descriptor becomes readable, which the executor watches; and
//! whoever reads a sign of the descriptor rouses all that wait, since the sign may have been for them.
//! So a task registers under the lock under which it found nothing, and asks for a sign behind that.
//! A sign is taken from the executor before the descriptor is emptied: what comes meanwhile is a
//! further one.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::backlog::{Backlog, Pending};
use super::core::Core;
use super::ending;
use super::link::Link;
use super::mapped::MappedBuffer;
use super::queues::watched;
use super::shared::Shared;
use super::turn::{Guard, Turn};
use crate::error::{Error, Result};
use crate::executor::{Waiter, Watch};
use crate::sys::{Alarm, Deadline, Readiness};
use crate::verbs::{RegisteredBuffer, View};

/// The shortest time without news after which the peer is looked after.
const LEAST_IDLE: Duration = Duration::from_millis(10);

impl Core {
    /// Reads as much as is there, as soon as something is.
    pub(crate) fn poll_read<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, |link| link.read(bytes))
    }

    /// As [`Core::poll_read`], and leaves it there.
    pub(crate) fn poll_peek<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, |link| link.peek(bytes))
    }

    /// Writes as much as there is room for, as soon as there is some.
    pub(crate) fn poll_write<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, |link| link.write_vectored(slices))
    }

    /// Lends what is there, as soon as something is: as [`Link::lend`].
    pub(crate) fn poll_lend<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<io::Result<Option<View>>> {
        self.poll(cx, waiter, Link::lend)
    }

    /// As [`Core::poll_write`], out of registered memory.
    pub(crate) fn poll_write_registered<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        buffer: &RegisteredBuffer,
        range: Range<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, |link| {
            link.write_registered(buffer, range.clone())
        })
    }

    /// Waits until the device has read what was written of registered memory.
    pub(crate) fn poll_sent<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        buffer: &RegisteredBuffer,
    ) -> Poll<io::Result<()>> {
        self.poll(cx, waiter, |link| link.is_sent(buffer))
    }

    /// Tells the peer of memory that it may write to.
    pub(crate) fn poll_map<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        mapped: &MappedBuffer,
    ) -> Poll<io::Result<()>> {
        self.poll(cx, waiter, |link| link.map(mapped.mapping()))
    }

    /// Writes into memory that the peer has mapped.
    pub(crate) fn poll_write_mapped<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        bytes: &[u8],
        offset: u64,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, |link| link.write_mapped(bytes, offset))
    }

    /// Makes an attempt until it succeeds.
    fn poll<W: Watch, T>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        mut attempt: impl FnMut(&mut Link) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        self.poll_shared(cx, waiter, |shared| shared.attempt(&mut attempt))
    }

    /// Goes on with connecting, until the connection is made or the deadline is over, of which an
    /// alarm has to tell.
    pub(crate) fn poll_connected<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<Result<()>> {
        let connected = self.poll_shared(cx, waiter, |shared| {
            if shared.connecting_until().is_some_and(is_over) {
                shared.give_up_connecting();
            }
            Ok(shared.connected())
        });
        connected.map(|outcome| outcome.map_err(|error| Error::from_os("connect", &error))?)
    }

    /// Waits until the peer has what was written, after writing was shut down, or the deadline is over,
    /// of which an alarm has to tell.
    ///
    /// # Errors
    ///
    /// How the connection was lost before.
    pub(crate) fn poll_settled<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        deadline: Deadline,
    ) -> Poll<io::Result<()>> {
        self.poll(cx, waiter, |link| match link.lost_unsent() {
            Some(error) => Err(ending::of_lost(error)),
            None => Ok((link.is_settled() || is_over(deadline)).then_some(())),
        })
    }

    fn poll_shared<W: Watch, T>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        mut attempt: impl FnMut(&mut Shared) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        self.turn().check_own("stream")?;
        loop {
            let mut guard = self.lock();
            Turn::withdraw(&mut guard, waiter.number());
            if let Some(done) = self.attempt_now(&mut guard, &mut attempt)? {
                return Poll::Ready(Ok(done));
            }
            self.look_after_peer(&mut guard)?;
            Turn::register(&mut guard, waiter.number(), cx.waker());
            drop(guard);
            ready!(waiter.poll_sign(cx, || self.readiness().duplicate()))?;
            let mut guard = self.lock();
            // It looks for itself: what it takes is not to wake it once more.
            Turn::withdraw(&mut guard, waiter.number());
            self.take_signs(&mut guard)?;
        }
    }

    /// Makes an attempt with what is there. When it finds nothing, a sign is due.
    fn attempt_now<T>(
        &self,
        guard: &mut Guard<'_, Shared>,
        attempt: &mut impl FnMut(&mut Shared) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        if let Some(done) = attempt(&mut guard.content)? {
            return Ok(Some(done));
        }
        // The events that lead to a connection are signs themselves.
        let is_connecting = guard.content.is_connecting();
        if guard.content.drive(self.readiness())? {
            if is_connecting {
                self.turn().rouse_all(guard);
            }
            if let Some(done) = attempt(&mut guard.content)? {
                return Ok(Some(done));
            }
        }
        if guard.content.arm()? {
            // For what came before the queue was armed there is no sign.
            self.turn().rouse_all(guard);
            return attempt(&mut guard.content);
        }
        Ok(None)
    }

    /// Sees to it that a connection that should be looked after is, now and then while tasks wait.
    fn look_after_peer(&self, guard: &mut Guard<'_, Shared>) -> Result<()> {
        let shared = &mut guard.content;
        let Some(idle) = shared.options.keepalive else {
            return Ok(());
        };
        if shared.keepalive.as_ref().is_none_or(Alarm::is_over) {
            if shared.keepalive.is_some() {
                shared.keep_alive();
            }
            // Without end in less time than a task takes, it would do nothing else.
            shared.keepalive = Some(self.alarm(idle.max(LEAST_IDLE))?);
        }
        Ok(())
    }

    /// Takes all signs. The queue gives one for each time that it is armed, so that one is all.
    fn take_signs(&self, guard: &mut Guard<'_, Shared>) -> Result<()> {
        let readable = self.readiness().look("stream")?;
        if readable.has(watched::COMPLETION) || readable.has(watched::EVENT) {
            self.turn().rouse_all(guard);
            guard.content.take_signs(readable)?;
        }
        Ok(())
    }

    /// Ends both directions, as closing does. Whether the peer has all that was written, so that
    /// closing does not wait.
    pub(crate) fn say_goodbye(&self) -> bool {
        // One that is not connected has nothing to say.
        if self.shut_down(true, true).is_err() {
            return true;
        }
        self.lock().content.is_settled()
    }

    /// How long connecting may still take.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let guard = self.lock();
        guard.content.connecting_until()?.remaining()
    }

    /// Watches an alarm, as long as it exists.
    pub(crate) fn alarm(&self, time: Duration) -> Result<Alarm> {
        alarm(self.readiness(), time)
    }
}

impl Backlog {
    /// The next connection. An alarm is kept where a handshake is to be given up at a certain time.
    pub(crate) fn poll_accept<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        end: &mut Option<Alarm>,
    ) -> Poll<Result<Core>> {
        loop {
            let mut guard = self.lock();
            Turn::withdraw(&mut guard, waiter.number());
            guard.content.advance(self.readiness());
            let next = guard.content.take_next();
            if guard.content.has_next() {
                self.turn().rouse(&mut guard);
            }
            if let Some((link, readiness)) = next? {
                let settings = &guard.content.settings;
                return Poll::Ready(Core::accepted(link, readiness, settings));
            }
            // Those that begin later end later: an alarm that is kept is never too late.
            if end.as_ref().is_none_or(Alarm::is_over) {
                let patience = guard.content.patience();
                let kept = patience.map(|patience| alarm(self.readiness(), patience));
                *end = kept.transpose()?;
            }
            Turn::register(&mut guard, waiter.number(), cx.waker());
            drop(guard);
            let sign = ready!(waiter.poll_sign(cx, || self.readiness().duplicate()));
            sign.map_err(|error| Error::from_os("accept", &error))?;
        }
    }

    /// A task waits no more.
    pub(crate) fn withdraw<W: Watch>(&self, waiter: &Waiter<W>) {
        Turn::<Pending>::withdraw(&mut self.lock(), waiter.number());
    }
}

fn is_over(deadline: Deadline) -> bool {
    deadline.remaining() == Some(Duration::ZERO)
}

fn alarm(readiness: &Readiness, time: Duration) -> Result<Alarm> {
    let os = |error| Error::from_os("stream", &error);
    let alarm = Alarm::after(time).map_err(os)?;
    readiness.watch(alarm.as_fd(), watched::ALARM).map_err(os)?;
    Ok(alarm)
}
