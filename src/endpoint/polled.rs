//! How tasks make connections and wait for what happens on them, whatever executor they run on.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::connection::{Connection, Wanted};
use super::connector::left;
use super::ending::{closed_or, destroyed, ended_of_itself};
use super::lateness::{ACKNOWLEDGED_LATE, TOLD_LATE};
use super::{Connector, Incoming, Listener, Prepared};
use crate::cm::{Event, EventChannel};
use crate::error::{Error, Result};
use crate::executor::{Waiter, Watch};
use crate::fastpath::{Completion, PostError};
use crate::sys::{Alarm, Deadline, Readiness};
use crate::verbs::Batch;

/// Under which numbers the descriptors of a connection are watched.
mod watched {
    pub(super) const EVENT: u8 = 0;
    /// The channel was closed, or the queue pair destroyed.
    pub(super) const WAKE: u8 = 1;
    pub(super) const COMPLETION: u8 = 2;
    pub(super) const ALARM: u8 = 3;
}

/// A connection whose completions a task waits for.
#[derive(Debug)]
pub(crate) struct Awaited<W> {
    pub(crate) connection: Connection,
    readiness: Readiness,
    waiter: Waiter<W>,
    /// Until when the event may come that tells why a request was flushed.
    telling: Option<Alarm>,
    /// Until when completions may come that an event would end.
    grace: Option<Alarm>,
}

impl<W: Watch> Awaited<W> {
    pub(crate) fn new(mut connection: Connection) -> Result<Self> {
        // Others have work to do meanwhile.
        connection.spin = Duration::ZERO;
        let readiness = Readiness::new().map_err(of_wait)?;
        let kernel = connection.protection_domain().context().kernel();
        let completions = connection.cq.require_channel()?.as_fd();
        let channel = connection.channel();
        kernel
            .set_nonblocking(completions)
            .and_then(|()| readiness.watch(completions, watched::COMPLETION))
            .and_then(|()| readiness.watch(channel.as_fd(), watched::EVENT))
            .and_then(|()| readiness.watch(channel.wake().as_fd(), watched::WAKE))
            .map_err(of_wait)?;
        Ok(Self {
            connection,
            readiness,
            waiter: Waiter::new(),
            telling: None,
            grace: None,
        })
    }

    /// Waits for the next message.
    pub(crate) async fn received(&mut self) -> Result<Completion> {
        self.wanted(Wanted::Receive, "recv").await
    }

    /// Waits for the next completion of a batch's requests.
    pub(crate) async fn requested(&mut self) -> Result<Completion> {
        self.wanted(Wanted::Request, "send").await
    }

    /// Posts a message and waits until the peer has it.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.connection.begin_send(message)?;
        self.own("send").await
    }

    /// Posts a request and waits until it is carried out.
    pub(crate) async fn carry_out(
        &mut self,
        operation: &'static str,
        build: impl FnOnce(&mut Batch<'_>, u64) -> Result<(), PostError>,
    ) -> Result<()> {
        self.connection.submit(build)?;
        self.own(operation).await
    }

    async fn own(&mut self, operation: &'static str) -> Result<()> {
        let own = Wanted::Own(self.connection.own_number());
        self.wanted(own, operation).await.map(drop)
    }

    async fn wanted(&mut self, wanted: Wanted, operation: &'static str) -> Result<Completion> {
        poll_fn(|cx| self.poll_wanted(cx, wanted, operation)).await
    }

    fn poll_wanted(
        &mut self,
        cx: &mut Context<'_>,
        wanted: Wanted,
        operation: &'static str,
    ) -> Poll<Result<Completion>> {
        loop {
            if let Some(done) = self.find(wanted, operation)? {
                return Poll::Ready(Ok(done));
            }
            let readable = self.readiness.look(operation)?;
            if readable.has(watched::COMPLETION) {
                self.connection.cq.take_event()?;
                continue;
            }
            if readable.has(watched::EVENT) && self.may_take_events(wanted)? {
                self.take_events(operation)?;
                continue;
            }
            if readable.has(watched::WAKE) {
                self.take_events(operation)?;
            }
            let readiness = &self.readiness;
            ready!(self.waiter.poll_sign(cx, || readiness.duplicate())).map_err(of_wait)?;
        }
    }

    /// What is wanted, if it is there.
    ///
    /// # Errors
    ///
    /// The end of the connection.
    fn find(&mut self, wanted: Wanted, operation: &'static str) -> Result<Option<Completion>> {
        if self.telling.is_some() {
            return self.hear_of_end(operation).map(|()| None);
        }
        if let Some(completion) = self.connection.find(wanted)? {
            let Err(failure) = completion.result() else {
                return Ok(Some(completion));
            };
            let (is_flush, reason) = (failure.is_flush(), Error::from(failure));
            self.take_events(operation)?;
            if is_flush && self.connection.ended.is_none() {
                self.telling = Some(self.alarm(TOLD_LATE)?);
                return Ok(None);
            }
            let ended = self.connection.ended.get_or_insert(reason);
            return Err(ended.clone().in_operation(operation));
        }
        match &self.connection.ended {
            Some(ended) => Err(ended.clone()),
            None if self.connection.recv.is_destroyed() => Err(destroyed(operation)),
            None => Ok(None),
        }
    }

    /// Waits a moment for the event that tells why the queue pair has ended.
    fn hear_of_end(&mut self, operation: &'static str) -> Result<()> {
        self.take_events(operation)?;
        let is_over = self.telling.as_ref().is_none_or(Alarm::is_over);
        if self.connection.ended.is_none() && !is_over {
            return Ok(());
        }
        self.telling = None;
        let ended = self.connection.ended.get_or_insert_with(ended_of_itself);
        Err(ended.clone().in_operation(operation))
    }

    /// Events may end the connection, and with it what is under way: completions come first, for a
    /// while.
    fn may_take_events(&mut self, wanted: Wanted) -> Result<bool> {
        if wanted == Wanted::Receive {
            return Ok(true);
        }
        match &self.grace {
            Some(grace) => Ok(grace.is_over()),
            None => {
                self.grace = Some(self.alarm(ACKNOWLEDGED_LATE)?);
                Ok(false)
            }
        }
    }

    fn take_events(&mut self, operation: &'static str) -> Result<()> {
        self.grace = None;
        let taken = self.connection.take_events();
        taken.map_err(|error| closed_or(operation, error))
    }

    fn alarm(&self, time: Duration) -> Result<Alarm> {
        let alarm = Alarm::after(time).map_err(of_wait)?;
        self.readiness
            .watch(alarm.as_fd(), watched::ALARM)
            .map_err(of_wait)?;
        Ok(alarm)
    }
}

/// The steps of a handshake, up to a deadline.
struct Steps<'c, W> {
    channel: &'c EventChannel,
    waiter: Waiter<W>,
    deadline: Deadline,
    alarm: Alarm,
}

impl<'c, W: Watch> Steps<'c, W> {
    fn new(channel: &'c EventChannel, deadline: Deadline) -> Result<Self> {
        Ok(Self {
            channel,
            waiter: Waiter::new(),
            deadline,
            alarm: Alarm::after(left(deadline)).map_err(of_wait)?,
        })
    }

    /// As [`EventChannel::expect`].
    async fn expect(
        &mut self,
        operation: &'static str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        let (channel, waiter, alarm) = (self.channel, &mut self.waiter, &self.alarm);
        loop {
            let next = poll_fn(|cx| channel.poll_next_event_before(cx, waiter, Some(alarm)));
            match next.await? {
                None => return Err(self.deadline.expired(operation)),
                Some(event) if wanted(&event) => return Ok(event),
                Some(Event::AddressChange(_) | Event::TimewaitExit(_)) => {}
                Some(other) => return Err(other.into_error(operation)),
            }
        }
    }
}

impl Connector {
    /// As [`Connector::connect`].
    pub(crate) async fn connect_by<W: Watch>(
        &self,
        peers: impl Iterator<Item = SocketAddr>,
    ) -> Result<Connection> {
        let deadline = Deadline::after(Some(self.patience()));
        let mut outcome = Err(no_address());
        for peer in peers {
            outcome = match self.prepare_one_by::<W>(peer, deadline).await {
                Ok(prepared) => prepared.establish_by::<W>().await,
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// As [`Connector::prepare`].
    pub(crate) async fn prepare_by<W: Watch>(
        &self,
        peers: impl Iterator<Item = SocketAddr>,
    ) -> Result<Prepared> {
        let deadline = Deadline::after(Some(self.patience()));
        let mut outcome = Err(no_address());
        for peer in peers {
            outcome = self.prepare_one_by::<W>(peer, deadline).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn prepare_one_by<W: Watch>(
        &self,
        peer: SocketAddr,
        deadline: Deadline,
    ) -> Result<Prepared> {
        let (channel, id) = self.ask(peer, deadline)?;
        let mut steps = Steps::<W>::new(&channel, deadline)?;
        let resolved = |event: &Event| matches!(event, Event::AddressResolved(_));
        steps.expect("resolve_addr", resolved).await?;
        id.resolve_route(left(deadline))?;
        let resolved = |event: &Event| matches!(event, Event::RouteResolved(_));
        steps.expect("resolve_route", resolved).await?;
        drop(steps);
        self.prepared(channel, id, deadline)
    }
}

impl Prepared {
    /// As [`Prepared::establish`].
    pub(crate) async fn establish_by<W: Watch>(self) -> Result<Connection> {
        let mut steps = Steps::<W>::new(self.channel(), self.deadline())?;
        let operation = self.begin()?;
        let established = |event: &Event| matches!(event, Event::Established(_));
        let event = steps.expect(operation, established).await?;
        drop(steps);
        Ok(self.finish(&event))
    }
}

impl Listener {
    /// As [`Listener::incoming`].
    pub(crate) fn poll_incoming<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
    ) -> Poll<Result<Incoming>> {
        loop {
            let event = ready!(self.channel().poll_next_event(cx, waiter));
            if let Some(incoming) = self.take(event.map_err(|error| self.explain(error))?)? {
                return Poll::Ready(Ok(incoming));
            }
        }
    }
}

fn of_wait(error: std::io::Error) -> Error {
    Error::from_os("wait", &error)
}

fn no_address() -> Error {
    Error::invalid("connect", "the name has no address")
}
