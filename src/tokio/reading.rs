//! The direction of a stream that reads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, ReadBuf};
use ::tokio::task::coop::poll_proceed;

use super::RdmaStream;
use super::fairness::fairly;
use super::linger::Open;
use super::split::OwnedReadHalf;
use super::watch::Wait;
use crate::Lent;

/// The direction of a stream that reads: see [`RdmaStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'s> {
    core: &'s Open,
    wait: &'s mut Wait,
}

impl<'s> ReadHalf<'s> {
    pub(super) fn new(core: &'s Open, wait: &'s mut Wait) -> Self {
        Self { core, wait }
    }

    fn reader(&mut self) -> ReadHalf<'_> {
        ReadHalf::new(self.core, self.wait)
    }

    async fn peeked(self, bytes: &mut [u8]) -> io::Result<usize> {
        fairly(|cx| self.core.poll_peek(cx, self.wait, bytes)).await
    }

    async fn lent(self) -> io::Result<Lent<'s>> {
        let core = self.core;
        let view = fairly(|cx| core.poll_lend(cx, self.wait)).await?;
        Ok(Lent::new(core, view))
    }

    /// Reads into what is free of a buffer.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let fair = ready!(poll_proceed(cx));
        let bytes = buffer.initialize_unfilled();
        let length = ready!(self.core.poll_read(cx, self.wait, bytes))?;
        buffer.advance(length);
        fair.made_progress();
        Poll::Ready(Ok(()))
    }
}

/// What all have that read.
macro_rules! reads {
    ($type:ty) => {
        impl $type {
            /// Copies what can be read and leaves it there; waits until there is something.
            ///
            /// # Errors
            ///
            /// As reading.
            #[doc(alias = "MSG_PEEK")]
            pub async fn peek(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                self.reader().peeked(bytes).await
            }

            /// Reads without a copy: see [`rdmacm::RdmaStream::lend`](crate::RdmaStream::lend).
            ///
            /// # Errors
            ///
            /// As reading.
            pub async fn lend(&mut self) -> io::Result<Lent<'_>> {
                self.reader().lent().await
            }
        }

        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.get_mut().reader().poll(cx, buffer)
            }
        }
    };
}

reads!(RdmaStream);
reads!(ReadHalf<'_>);
reads!(OwnedReadHalf);
