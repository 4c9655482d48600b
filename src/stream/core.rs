//! What the handles of a stream share, and how calls wait for it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::first_word::FirstWord;
use super::handshake::Connecting;
use super::link::Link;
use super::options::{Options, Side};
use super::queues::watched;
use super::settings::StreamSettings;
use super::shared::{Blocked, Phase, Shared};
use super::stream::StreamReady;
use super::turn::{Guard, Turn};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, Readiness};
use crate::verbs::RegisteredBuffer;

/// A stream, behind its handles.
#[derive(Debug)]
pub(crate) struct Core {
    turn: Turn<Shared>,
}

impl Core {
    /// A stream that is being connected.
    pub(crate) fn connecting(peer: SocketAddr, settings: &StreamSettings) -> Result<Self> {
        let readiness = new_readiness()?;
        let connecting = Connecting::begin(peer, settings, &readiness)?;
        let phase = Phase::Connecting(Box::new(connecting));
        Self::new(phase, (None, Some(peer)), readiness, settings)
    }

    /// A stream that was accepted; its descriptors are watched by `readiness`.
    pub(super) fn accepted(
        link: Link,
        readiness: Readiness,
        settings: &StreamSettings,
    ) -> Result<Self> {
        let id = &link.queues.id;
        let addresses = (id.local_addr(), id.peer_addr());
        let phase = Phase::Open(Box::new(link));
        Self::new(phase, addresses, readiness, settings)
    }

    fn new(
        phase: Phase,
        (local, peer): (Option<SocketAddr>, Option<SocketAddr>),
        readiness: Readiness,
        settings: &StreamSettings,
    ) -> Result<Self> {
        let shared = Shared {
            phase,
            error: None,
            local,
            peer,
            options: Options::of(settings),
            blocked: Blocked::default(),
            idle_since: None,
            spins_in_vain: 0,
            first_word: FirstWord::default(),
            #[cfg(feature = "tokio")]
            keepalive: None,
        };
        let turn = Turn::new(readiness, shared)?;
        Ok(Self { turn })
    }

    pub(super) fn lock(&self) -> Guard<'_, Shared> {
        self.turn.lock()
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        self.turn.readiness()
    }

    #[cfg(feature = "tokio")]
    pub(super) fn turn(&self) -> &Turn<Shared> {
        &self.turn
    }

    /// Waits until the connection is made.
    pub(super) fn wait_connected(&self) -> Result<()> {
        self.turn.check_own("connect")?;
        let mut guard = self.lock();
        loop {
            guard.content.drive(self.turn.readiness())?;
            let deadline = match &guard.content.phase {
                Phase::Open(_) => return Ok(()),
                Phase::Failed(error) => return Err(error.clone()),
                Phase::Connecting(connecting) => connecting.deadline(),
            };
            if deadline.remaining() == Some(Duration::ZERO) {
                guard.content.give_up_connecting();
                continue;
            }
            guard = self.turn.sleep("connect", guard, deadline)?.0;
        }
    }

    /// Goes on with connecting. False when that is over.
    pub(super) fn advance_connecting(&self) -> bool {
        let mut guard = self.lock();
        let is_late = |until: Deadline| until.remaining() == Some(Duration::ZERO);
        if guard.content.connecting_until().is_some_and(is_late) {
            guard.content.give_up_connecting();
        }
        // What ends the attempt is kept for the program.
        let _ = guard.content.drive(self.turn.readiness());
        if guard.content.is_connecting() {
            return true;
        }
        self.turn.keep_readable(&mut guard, true);
        self.turn.rouse(&mut guard);
        false
    }

    /// Makes an attempt until it succeeds, waiting in between as the stream's options say.
    pub(super) fn run<T>(
        &self,
        side: Side,
        mut attempt: impl FnMut(&mut Link) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let mut guard = self.lock();
        if let Some(done) = self.try_once(&mut guard, side, &mut attempt)? {
            return Ok(done);
        }
        if guard.content.options.is_nonblocking {
            return match self.look(&mut guard, side, &mut attempt)? {
                Some(done) => Ok(done),
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let options = guard.content.options;
        let timeout = options.timeout(side);
        let deadline = Deadline::after(timeout);
        let mut is_first = true;
        loop {
            let mut has_news = guard.content.drive(self.turn.readiness())?;
            if !has_news && is_first {
                has_news = guard.content.spin(options.spin);
            }
            is_first = false;
            if !has_news {
                has_news = guard.content.arm()?;
            }
            if has_news {
                guard.content.idle_since = None;
            }
            if has_news && let Some(done) = self.try_once(&mut guard, side, &mut attempt)? {
                return Ok(done);
            }
            if has_news {
                continue;
            }
            let until = guard.content.wake_up_by(deadline);
            let (woken, readable) = self.turn.sleep(side.operation(), guard, until)?;
            guard = woken;
            match readable {
                Some(readable) if readable.is_any() => guard.content.take_signs(readable)?,
                Some(_) => guard.content.keep_alive_if_due(),
                None => {}
            }
            if let Some(done) = self.try_once(&mut guard, side, &mut attempt)? {
                return Ok(done);
            }
            if deadline.remaining() == Some(Duration::ZERO) {
                let waited = timeout.unwrap_or_default();
                return Err(Error::timed_out(side.operation(), waited).into());
            }
        }
    }

    /// Makes an attempt. One that fails may have read what others wait for; after one that succeeds
    /// nothing is waited for, and an event loop is not to be told of it.
    fn try_once<T>(
        &self,
        guard: &mut Guard<'_, Shared>,
        side: Side,
        attempt: impl FnOnce(&mut Link) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        self.turn.check_own(side.operation())?;
        let outcome = guard.content.attempt(attempt);
        match &outcome {
            Ok(Some(_)) => guard.content.note_blocked(side, false),
            Ok(None) => {}
            Err(_) => self.turn.rouse_all(guard),
        }
        outcome
    }

    /// Makes an attempt, and where it finds nothing to do sees to it that the descriptor tells of the
    /// next chance.
    pub(super) fn look<T>(
        &self,
        guard: &mut Guard<'_, Shared>,
        side: Side,
        mut attempt: impl FnMut(&mut Link) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let operation = side.operation();
        self.turn.check_own(operation)?;
        let mut has_taken = false;
        loop {
            let readable = self.turn.readiness().look(operation)?;
            let has_signs = readable.has(watched::COMPLETION) || readable.has(watched::EVENT);
            if has_signs {
                guard.content.take_signs(readable)?;
            }
            let has_news = guard.content.drive(self.turn.readiness())? || guard.content.arm()?;
            has_taken |= has_signs || has_news;
            let done = self.try_once(guard, side, &mut attempt)?;
            if done.is_some() || !has_signs && !has_news {
                if done.is_none() {
                    guard.content.note_blocked(side, true);
                }
                // The signs that were taken may have been for more than this.
                let keep = guard.content.has_chance();
                self.turn.keep_readable(guard, keep);
                if has_taken {
                    // Others may have waited for the signs that were taken.
                    self.turn.rouse_all(guard);
                }
                return Ok(done);
            }
        }
    }

    /// The peer's address.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let address = self.lock().content.peer;
        address.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The local address.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.lock().content.local_addr();
        address.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// How long closing waits.
    #[cfg(feature = "tokio")]
    pub(crate) fn linger(&self) -> Duration {
        self.lock().content.options.linger
    }

    pub(crate) fn set_linger(&self, time: Duration) {
        self.lock().content.options.linger = time;
    }

    /// Whether calls wait. An event loop that begins with the descriptor is told to look: what came before
    /// gives no sign.
    pub(super) fn set_nonblocking(&self, is_nonblocking: bool) {
        let mut guard = self.lock();
        guard.content.options.is_nonblocking = is_nonblocking;
        self.turn.keep_readable(&mut guard, is_nonblocking);
    }

    /// Ends reading, writing or both.
    pub(crate) fn shut_down(&self, read: bool, write: bool) -> io::Result<()> {
        self.turn.check_own("shutdown")?;
        let mut guard = self.lock();
        let Phase::Open(link) = &mut guard.content.phase else {
            return Err(not_connected());
        };
        if !link.shut_down(read, write) {
            // A task that asks again is not to wake itself.
            return Ok(());
        }
        self.turn.rouse_all(&mut guard);
        // For event loops.
        let keep = guard.content.has_chance();
        self.turn.keep_readable(&mut guard, keep);
        Ok(())
    }

    /// Takes bytes that are lent as read.
    pub(super) fn consume_lent(&self, count: usize) {
        if self.turn.is_inherited() {
            return;
        }
        if let Phase::Open(link) = &mut self.lock().content.phase {
            link.consume(count);
        }
    }

    /// Takes back what was lent: others can read.
    pub(super) fn take_back(&self) {
        if self.turn.is_inherited() {
            return;
        }
        let mut guard = self.lock();
        if let Phase::Open(link) = &mut guard.content.phase {
            link.take_back();
        }
        self.turn.rouse_all(&mut guard);
        if guard.content.blocked.read {
            // For event loops, which were told that there is nothing to read.
            let keep = guard.content.has_chance();
            self.turn.keep_readable(&mut guard, keep);
        }
    }

    /// Registers memory that the stream can send out of.
    pub(crate) fn register(&self, length: usize) -> io::Result<RegisteredBuffer> {
        let pd = self.with_link(|link| Ok(link.queues.id.protection_domain()?))?;
        Ok(RegisteredBuffer::new(&pd, length)?)
    }

    /// Does something with the connection that there is never anything to wait for.
    pub(super) fn with_link<T>(
        &self,
        act: impl FnOnce(&mut Link) -> io::Result<T>,
    ) -> io::Result<T> {
        self.turn.check_own("stream")?;
        match &mut self.lock().content.phase {
            Phase::Open(link) => act(link),
            Phase::Connecting(_) => Err(not_connected()),
            Phase::Failed(error) => Err(error.clone().into()),
        }
    }

    /// What a call could do now, without waiting.
    pub(super) fn ready(&self) -> StreamReady {
        let mut guard = self.lock();
        // Looks as both directions would, so that the descriptor tells of the next chance of either.
        let _ = self.look(&mut guard, Side::Read, |link| {
            Ok(link.can_read().then_some(()))
        });
        let _ = self.look(&mut guard, Side::Write, |link| {
            Ok(link.can_write().then_some(()))
        });
        let (readable, writable) = match &guard.content.phase {
            Phase::Open(link) => (link.can_read(), link.can_write()),
            Phase::Connecting(_) => (false, false),
            Phase::Failed(_) => (true, true),
        };
        // Under the same lock: connecting may fail in between.
        StreamReady {
            readable,
            writable,
            has_failed: guard.content.has_error(),
        }
    }

    /// Why the connection was not made or was lost, once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        let mut guard = self.lock();
        // An error here is one of the connection, and noted as that.
        let _ = self.look(&mut guard, Side::Read, |link| {
            Ok(link.can_read().then_some(()))
        });
        guard.content.error.take()
    }
}

impl Drop for Core {
    /// Says goodbye and waits a while for what was written to reach the peer.
    fn drop(&mut self) {
        if self.turn.is_inherited() {
            return;
        }
        let mut guard = self.turn.lock();
        let deadline = Deadline::after(Some(guard.content.options.linger));
        let Phase::Open(link) = &mut guard.content.phase else {
            return;
        };
        link.shut_down(true, true);
        loop {
            // What fails is no concern of anybody's any more.
            let _ = guard.content.drive(self.turn.readiness());
            let Phase::Open(link) = &mut guard.content.phase else {
                return;
            };
            if link.is_settled() || !matches!(link.arm(), Ok(false)) && link.is_settled() {
                return;
            }
            match self.turn.sleep("close", guard, deadline) {
                Ok((woken, Some(readable))) => {
                    guard = woken;
                    if guard.content.take_signs(readable).is_err() {
                        return;
                    }
                }
                // Nobody else has the stream.
                Ok((_, None)) | Err(_) => return,
            }
            if deadline.remaining() == Some(Duration::ZERO) {
                return;
            }
        }
    }
}

fn new_readiness() -> Result<Readiness> {
    Readiness::new().map_err(|error| Error::from_os("stream", &error))
}

fn not_connected() -> io::Error {
    let error = Error::new(
        "stream",
        ErrorKind::InvalidState,
        "the stream is not connected",
    );
    io::Error::new(io::ErrorKind::NotConnected, error)
}
