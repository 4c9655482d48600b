//! What the handles of a socket for datagrams share, and how calls wait for it.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::options::{Options, Side};
use super::super::settings::StreamSettings;
use super::super::turn::{Guard, Turn};
use super::exchange::Exchange;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, Readiness};

/// After so many datagrams that were there already, the other signs are looked at.
const STREAK: u32 = 64;

/// A socket, behind its handles.
#[derive(Debug)]
pub(crate) struct Core {
    turn: Turn<Shared>,
}

/// What changes.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) exchange: Exchange,
    pub(super) options: Options,
    /// Reads that found something without looking at the signs.
    streak: u32,
}

impl Core {
    pub(crate) fn bind(address: SocketAddr, settings: &StreamSettings) -> Result<Self> {
        let readiness = Readiness::new().map_err(|error| Error::from_os("bind", &error))?;
        let shared = Shared {
            exchange: Exchange::bind(address, settings, &readiness)?,
            options: Options::of(settings),
            streak: 0,
        };
        Ok(Self {
            turn: Turn::new(readiness, shared)?,
        })
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

    /// The local address.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.lock().content.exchange.local_addr()
    }

    /// The only peer.
    ///
    /// # Errors
    ///
    /// `NotConnected` without one.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.lock().content.exchange.connected();
        peer.ok_or_else(|| {
            let error = Error::new("send", ErrorKind::InvalidState, "the socket has no peer");
            io::Error::new(io::ErrorKind::NotConnected, error)
        })
    }

    /// Has one peer only from now on.
    pub(crate) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.turn.check_own("connect")?;
        let mut guard = self.lock();
        guard.content.exchange.connect(peer, self.readiness())
    }

    /// Makes an attempt until it succeeds, waiting in between as the options say.
    pub(super) fn run<T>(
        &self,
        side: Side,
        mut attempt: impl FnMut(&mut Exchange, &Readiness) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        self.turn.check_own(side.operation())?;
        let mut guard = self.lock();
        let mut outcome = self.attempt(&mut guard, side, &mut attempt);
        if matches!(outcome, Ok(None)) {
            outcome = match guard.content.options.is_nonblocking {
                true => self.look(&mut guard, side, &mut attempt),
                false => {
                    let (woken, waited) = self.wait(guard, side, &mut attempt);
                    guard = woken;
                    waited.map(Some)
                }
            };
        }
        self.settle(&mut guard, side);
        match outcome {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        }
    }

    /// Makes an attempt, after the error that is to be told first.
    pub(super) fn attempt<T>(
        &self,
        guard: &mut Guard<'_, Shared>,
        side: Side,
        attempt: &mut impl FnMut(&mut Exchange, &Readiness) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let shared = &mut guard.content;
        shared.streak += u32::from(side == Side::Read);
        if shared.streak > STREAK {
            // Packets over UDP have their turn as well.
            self.take_signs(guard, side)?;
        }
        let exchange = &mut guard.content.exchange;
        match exchange.noted_error() {
            Some(error) => Err(error),
            None => attempt(exchange, self.readiness()),
        }
    }

    /// Reads the signs that there are. False: there are none.
    pub(super) fn take_signs(&self, guard: &mut Guard<'_, Shared>, side: Side) -> Result<bool> {
        guard.content.streak = 0;
        let readable = self.readiness().look(side.operation())?;
        let exchange = &mut guard.content.exchange;
        exchange.take_signs(readable, self.readiness());
        Ok(readable.is_any())
    }

    /// Makes an attempt after all signs were read, and where it finds nothing to do sees to it that
    /// the descriptor tells of the next chance.
    fn look<T>(
        &self,
        guard: &mut Guard<'_, Shared>,
        side: Side,
        attempt: &mut impl FnMut(&mut Exchange, &Readiness) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        self.take_signs(guard, side)?;
        let outcome = self.attempt(guard, side, attempt);
        let keep = guard.content.exchange.has_chance();
        self.turn.keep_readable(guard, keep);
        outcome
    }

    /// Makes attempts whenever there was a sign.
    fn wait<'a, T>(
        &'a self,
        mut guard: Guard<'a, Shared>,
        side: Side,
        attempt: &mut impl FnMut(&mut Exchange, &Readiness) -> io::Result<Option<T>>,
    ) -> (Guard<'a, Shared>, io::Result<T>) {
        let options = guard.content.options;
        let timeout = options.timeout(side);
        let deadline = Deadline::after(timeout);
        let mut has_waited = self.spin(&mut guard, options.spin);
        loop {
            if !has_waited {
                let slept = self.turn.sleep(side.operation(), guard, deadline);
                let (woken, readable) = match slept {
                    Ok(slept) => slept,
                    Err(error) => return (self.lock(), Err(error.into())),
                };
                guard = woken;
                if let Some(readable) = readable {
                    let exchange = &mut guard.content.exchange;
                    exchange.take_signs(readable, self.readiness());
                }
            }
            has_waited = false;
            match self.attempt(&mut guard, side, attempt) {
                Ok(Some(done)) => return (guard, Ok(done)),
                Ok(None) if deadline.remaining() == Some(Duration::ZERO) => {
                    let late = Error::timed_out(side.operation(), timeout.unwrap_or_default());
                    return (guard, Err(late.into()));
                }
                Ok(None) => {}
                Err(error) => return (guard, Err(error)),
            }
        }
    }

    /// Polls for a while: what is on its way costs less so than by a wake-up.
    fn spin(&self, guard: &mut Guard<'_, Shared>, time: Duration) -> bool {
        if time.is_zero() {
            return false;
        }
        let exchange = &mut guard.content.exchange;
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
            exchange.poll(self.readiness());
            if exchange.has_chance() {
                return true;
            }
        }
        false
    }

    /// Tells others of what this call came across.
    pub(super) fn settle(&self, guard: &mut Guard<'_, Shared>, side: Side) {
        if guard.content.exchange.take_news() {
            self.turn.rouse_all(guard);
        }
        if side == Side::Write && guard.content.exchange.has_chance() {
            self.turn.keep_readable(guard, true);
        }
    }

    /// What went wrong outside of a call, once.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let mut guard = self.lock();
        self.take_signs(&mut guard, Side::Read)?;
        let error = guard.content.exchange.take_error();
        self.settle(&mut guard, Side::Write);
        error
    }
}

impl Drop for Core {
    /// Waits a while for what was sent to leave.
    fn drop(&mut self) {
        if self.turn.is_inherited() {
            return;
        }
        let mut guard = self.turn.lock();
        let deadline = Deadline::after(Some(guard.content.options.linger));
        loop {
            guard.content.exchange.take_completions();
            let is_late = deadline.remaining() == Some(Duration::ZERO);
            if guard.content.exchange.is_idle() || is_late {
                return;
            }
            let Ok(readable) = self.turn.readiness().wait("close", deadline) else {
                return;
            };
            guard
                .content
                .exchange
                .take_signs(readable, self.turn.readiness());
        }
    }
}
