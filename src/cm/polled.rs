//! How tasks wait for events, whatever executor they run on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use super::{Event, EventChannel};
use crate::error::{Error, Result};
use crate::executor::{Waiter, Watch};
use crate::sys::{Alarm, Readiness};

impl EventChannel {
    /// The next event, as soon as one comes or the channel is closed.
    pub(crate) fn poll_next_event<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<Result<Event>> {
        loop {
            // Without an alarm there is always an event.
            if let Some(event) = ready!(self.poll_next_event_before(cx, waiter, None))? {
                return Poll::Ready(Ok(event));
            }
        }
    }

    /// As [`EventChannel::poll_next_event`], until an alarm; it must be the same for all that is waited
    /// for through `waiter`.
    pub(crate) fn poll_next_event_before<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        alarm: Option<&Alarm>,
    ) -> Poll<Result<Option<Event>>> {
        loop {
            if let Some(event) = self.try_next_event()? {
                return Poll::Ready(Ok(Some(event)));
            }
            if alarm.is_some_and(Alarm::is_over) {
                return Poll::Ready(Ok(None));
            }
            let sign = ready!(waiter.poll_sign(cx, || self.watched(alarm)));
            sign.map_err(|error| Error::from_os("next_event", &error))?;
        }
    }

    /// A descriptor that is readable while an event waits, when the channel is closed, and after an
    /// alarm.
    fn watched(&self, alarm: Option<&Alarm>) -> io::Result<OwnedFd> {
        let readiness = Readiness::new()?;
        readiness.watch(self.as_fd(), 0)?;
        readiness.watch(self.wake().as_fd(), 1)?;
        if let Some(alarm) = alarm {
            readiness.watch(alarm.as_fd(), 2)?;
        }
        Ok(readiness.into_fd())
    }
}
