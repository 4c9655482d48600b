//! Waiting for what comes next: one certain event, or completions and events together.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{Event, EventChannel};
use crate::error::Result;
use crate::fastpath::Completion;
use crate::sys::Deadline;
use crate::verbs::Cq;

/// What ended a wait for completions and events.
#[derive(Debug)]
pub enum Wake<'e> {
    /// Completions, taken out of the queue.
    Completions(&'e [Completion]),
    /// An event waits on the channel.
    Event,
}

impl EventChannel {
    /// Waits for one event, and makes any other that matters an error of `operation`, as blocking
    /// calls want it. Events that do not end the step (a changed address, the end of a timewait)
    /// are skipped. With `None` it waits for ever.
    ///
    /// ```no_run
    /// # fn example(channel: &rdmacm::EventChannel, id: &rdmacm::CmId) -> rdmacm::Result<()> {
    /// use std::time::Duration;
    /// use rdmacm::Event;
    ///
    /// id.resolve_route(Duration::from_secs(2))?;
    /// channel.expect("resolve_route", None, |event| matches!(event, Event::RouteResolved(_)))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The event that came instead, as an error;
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time.
    pub fn expect(
        &self,
        operation: &'static str,
        timeout: Option<Duration>,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        self.expect_by(operation, Deadline::after(timeout), wanted)
    }

    /// As [`EventChannel::expect`], for one of several waits with a common deadline.
    pub(crate) fn expect_by(
        &self,
        operation: &'static str,
        deadline: Deadline,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        let event = self.next_news(operation, deadline)?;
        if wanted(&event) {
            Ok(event)
        } else {
            Err(event.into_error(operation))
        }
    }

    /// The next event that can end a step.
    pub(crate) fn next_news(&self, operation: &'static str, deadline: Deadline) -> Result<Event> {
        loop {
            let event = self
                .next_event(deadline.remaining())
                .map_err(|error| deadline.as_a_whole(operation, error))?;
            if !matches!(event, Event::AddressChange(_) | Event::TimewaitExit(_)) {
                return Ok(event);
            }
        }
    }

    /// Waits until `cq` has completions or the channel an event, for ever with `None`. Completions
    /// come first: what a peer sent before it disconnected is not lost.
    ///
    /// A connected program has to wait for both. A peer that goes away causes an event, and no
    /// completion. The queue needs a completion channel of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when nothing came in time,
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`EventChannel::close`],
    /// [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) for a queue without a channel,
    /// and for one whose channel has other queues too.
    pub fn wait_with<'e>(
        &self,
        cq: &mut Cq,
        entries: &'e mut [Completion],
        timeout: Option<Duration>,
    ) -> Result<Wake<'e>> {
        let deadline = Deadline::after(timeout);
        if entries.is_empty() {
            return Ok(Wake::Completions(entries));
        }
        cq.require_channel()?;
        loop {
            let taken = cq.poll_or_arm(entries)?;
            if taken > 0 {
                return Ok(Wake::Completions(&entries[..taken]));
            }
            let completions = cq.require_channel()?.as_fd();
            let ready = self.wait("wait", Some(completions), deadline)?;
            if ready.beside {
                cq.take_event()?;
            } else if ready.event {
                return Ok(Wake::Event);
            }
        }
    }
}
