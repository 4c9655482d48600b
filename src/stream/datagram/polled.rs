//! How tasks wait for a socket, whatever executor they run on, as `polled.rs` of streams says.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use super::super::options::Side;
use super::super::turn::Turn;
use super::core::{Core, Shared};
use super::exchange::Exchange;
use crate::executor::{Waiter, Watch};
use crate::sys::Readiness;

impl Core {
    /// The next datagram, which stays for the next call or does not.
    pub(crate) fn poll_receive<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        bytes: &mut [u8],
        stays: bool,
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.poll(cx, waiter, Side::Read, |exchange, readiness| {
            exchange.receive(bytes, stays, readiness)
        })
    }

    /// Sends a datagram, as soon as there is room.
    pub(crate) fn poll_send<W: Watch>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, waiter, Side::Write, |exchange, readiness| {
            exchange.send(to, bytes, readiness)
        })
    }

    /// A task waits no more.
    pub(crate) fn withdraw<W: Watch>(&self, waiter: &Waiter<W>) {
        Turn::<Shared>::withdraw(&mut self.lock(), waiter.number());
    }

    fn poll<W: Watch, T>(
        &self,
        cx: &mut Context<'_>,
        waiter: &mut Waiter<W>,
        side: Side,
        mut attempt: impl FnMut(&mut Exchange, &Readiness) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        self.turn().check_own(side.operation())?;
        let mut has_looked = false;
        loop {
            let mut guard = self.lock();
            Turn::withdraw(&mut guard, waiter.number());
            let outcome = self.attempt(&mut guard, side, &mut attempt);
            if has_looked {
                let keep = guard.content.exchange.has_chance();
                self.turn().keep_readable(&mut guard, keep);
            }
            // Before this task registers: it has just looked.
            self.settle(&mut guard, side);
            if let Some(done) = outcome? {
                return Poll::Ready(Ok(done));
            }
            Turn::register(&mut guard, waiter.number(), cx.waker());
            drop(guard);
            ready!(waiter.poll_sign(cx, || self.readiness().duplicate()))?;
            self.take_signs(&mut self.lock(), side)?;
            has_looked = true;
        }
    }
}
