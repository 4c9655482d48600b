//! Connections that peers ask for, on their way to being accepted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use super::handshake::Accepting;
use super::link::Link;
use super::queues::watched;
use super::service::Served;
use super::settings::StreamSettings;
use super::turn::{Guard, Turn};
use crate::cm::{CmId, ConnectRequest, Event, EventChannel, PortSpace};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, Readiness};

/// What the handles of a listener share.
#[derive(Debug)]
pub(crate) struct Backlog {
    turn: Turn<Pending>,
    id: CmId,
}

#[derive(Debug)]
pub(super) struct Pending {
    channel: EventChannel,
    pub(super) settings: StreamSettings,
    pub(super) is_nonblocking: bool,
    accepting: Vec<(Accepting, Readiness)>,
    ready: VecDeque<Result<(Link, Readiness)>>,
    /// Why there will be no more.
    ended: Option<Error>,
}

/// How many connections wait to be accepted, where the settings do not say; as in `std::net`.
const USUAL_BACKLOG: usize = 128;

/// The number under which handshakes are watched.
const HANDSHAKES: u8 = watched::COMPLETION;

impl Backlog {
    pub(crate) fn listen(address: SocketAddr, settings: StreamSettings) -> Result<Self> {
        let os = |error| Error::from_os("listen", &error);
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        // As std::net has it: a server that starts again gets its port.
        id.set_reuse_addr(true)?;
        id.bind_addr(address)?;
        id.listen(settings.backlog)?;
        let readiness = Readiness::new().map_err(os)?;
        readiness
            .watch(channel.as_fd(), watched::EVENT)
            .map_err(os)?;
        let pending = Pending {
            channel,
            settings,
            is_nonblocking: false,
            accepting: Vec::new(),
            ready: VecDeque::new(),
            ended: None,
        };
        Ok(Self {
            turn: Turn::new(readiness, pending)?,
            id,
        })
    }

    pub(super) fn lock(&self) -> Guard<'_, Pending> {
        self.turn.lock()
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The next connection; waits for it unless the listener is non-blocking.
    pub(super) fn accept(&self, deadline: Deadline) -> Result<(Link, Readiness)> {
        let mut guard = self.lock();
        loop {
            if let Some(accepted) = self.next(&mut guard)? {
                return Ok(accepted);
            }
            if guard.content.is_nonblocking {
                return Err(Error::new(
                    "accept",
                    ErrorKind::WouldBlock,
                    "no connection waits",
                ));
            }
            if deadline.remaining() == Some(Duration::ZERO) {
                return Err(deadline.expired("accept"));
            }
            guard = self.turn.sleep("accept", guard, deadline)?.0;
        }
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        self.turn.readiness()
    }

    #[cfg(feature = "tokio")]
    pub(super) fn turn(&self) -> &Turn<Pending> {
        &self.turn
    }

    /// The next connection that is made. A forked child would take the parent's.
    fn next(&self, guard: &mut Guard<'_, Pending>) -> Result<Option<(Link, Readiness)>> {
        self.turn.check_own("accept")?;
        guard.content.advance(self.turn.readiness());
        let next = guard.content.take_next();
        let keep = guard.content.has_next();
        self.turn.keep_readable(guard, keep);
        next
    }
}

impl Served for Backlog {
    fn readiness(&self) -> &Readiness {
        self.readiness()
    }

    fn serve(&self) -> bool {
        let mut guard = self.lock();
        guard.content.advance(self.turn.readiness());
        if guard.content.has_next() {
            self.turn.keep_readable(&mut guard, true);
            self.turn.rouse(&mut guard);
        }
        guard.content.ended.is_none()
    }
}

impl Pending {
    /// Takes the next connection that is made, or why there will be none.
    pub(super) fn take_next(&mut self) -> Result<Option<(Link, Readiness)>> {
        match (self.ready.pop_front(), &self.ended) {
            (Some(accepted), _) => accepted.map(Some),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Whether [`Pending::take_next`] has something to tell.
    pub(super) fn has_next(&self) -> bool {
        !self.ready.is_empty() || self.ended.is_some()
    }

    /// How long the handshake that is to be given up next may still take.
    #[cfg(feature = "tokio")]
    pub(super) fn patience(&self) -> Option<Duration> {
        let deadlines = self.accepting.iter().map(|(one, _)| one.deadline());
        deadlines.filter_map(|deadline| deadline.remaining()).min()
    }

    /// Goes on with all handshakes as far as events allow.
    pub(super) fn advance(&mut self, readiness: &Readiness) {
        while self.ended.is_none() {
            match self.channel.try_next_event() {
                Ok(Some(Event::ConnectRequest(request))) => self.begin(request, readiness),
                Ok(Some(event @ Event::RequestLost(_))) => {
                    self.ready.push_back(Err(event.into_error("accept")));
                }
                Ok(Some(event @ Event::DeviceRemoval(_))) => {
                    self.ended = Some(event.into_error("accept"));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => self.ended = Some(error),
            }
        }
        let mut at = 0;
        while at < self.accepting.len() {
            let (accepting, _) = &self.accepting[at];
            let is_late = accepting.deadline().remaining() == Some(Duration::ZERO);
            match accepting.is_heard() {
                Ok(false) if !is_late => at += 1,
                heard => {
                    let (accepting, own) = self.accepting.swap_remove(at);
                    readiness.forget(own.as_fd());
                    // A peer that is gone before it was connected concerns nobody.
                    if let Ok(true) = heard {
                        self.ready.push_back(Ok((accepting.into_link(), own)));
                    }
                }
            }
        }
    }

    fn begin(&mut self, request: ConnectRequest, readiness: &Readiness) {
        let most = match self.settings.backlog {
            0 => USUAL_BACKLOG,
            backlog => backlog as usize,
        };
        if self.accepting.len() + self.ready.len() >= most {
            // Dropping the request rejects the peer. Each connection costs memory and descriptors.
            return;
        }
        // Not of the operation "accept", whose refusals are the peer's doing.
        let os = |error| Error::from_os("stream", &error);
        let begun = Readiness::new().map_err(os).and_then(|own| {
            let accepting = Accepting::begin(request, &self.settings, &own)?;
            readiness.watch(own.as_fd(), HANDSHAKES).map_err(os)?;
            Ok((accepting, own))
        });
        match begun {
            Ok(begun) => self.accepting.push(begun),
            // A peer that speaks something else, or is gone by now.
            Err(error) if is_of_peer(&error) => {}
            Err(error) => self.ready.push_back(Err(error)),
        }
    }
}

fn is_of_peer(error: &Error) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Protocol
        || kind == ErrorKind::Disconnected
        || error.operation() == "accept" && kind == ErrorKind::Kernel
        || error.errno() == Some(libc::EINVAL)
}
