//! The direction of a stream that writes.

use std::io::{self, IoSlice};
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::AsyncWrite;
use ::tokio::task::coop::poll_proceed;

use super::RdmaStream;
use super::fairness::fairly;
use super::linger::Open;
use super::split::OwnedWriteHalf;
use super::watch::Wait;
use crate::sys::Deadline;
use crate::{MappedBuffer, RegisteredBuffer};

/// The direction of a stream that writes: see [`RdmaStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'s> {
    core: &'s Open,
    wait: &'s mut Wait,
}

impl<'s> WriteHalf<'s> {
    pub(super) fn new(core: &'s Open, wait: &'s mut Wait) -> Self {
        Self { core, wait }
    }

    fn writer(&mut self) -> WriteHalf<'_> {
        WriteHalf::new(self.core, self.wait)
    }

    fn poll(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let fair = ready!(poll_proceed(cx));
        let length = ready!(self.core.poll_write(cx, self.wait, slices))?;
        fair.made_progress();
        Poll::Ready(Ok(length))
    }

    /// Ends writing, and waits until the peer has what was written.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.core.shut_down(false, true)?;
        let forever = Deadline::after(None);
        self.core.poll_settled(cx, self.wait, forever)
    }

    async fn send(&mut self, buffer: &RegisteredBuffer, range: Range<usize>) -> io::Result<usize> {
        let (core, wait) = (self.core, &mut *self.wait);
        fairly(|cx| core.poll_write_registered(cx, wait, buffer, range.clone())).await
    }

    async fn send_all(mut self, buffer: &RegisteredBuffer, range: Range<usize>) -> io::Result<()> {
        let mut range = range;
        while !range.is_empty() {
            range.start += self.send(buffer, range.clone()).await?;
        }
        self.sent(buffer).await
    }

    async fn sent(self, buffer: &RegisteredBuffer) -> io::Result<()> {
        fairly(|cx| self.core.poll_sent(cx, self.wait, buffer)).await
    }

    async fn mapped(self, length: u32, offset: u64) -> io::Result<MappedBuffer> {
        let mapped = MappedBuffer::new(self.core.as_arc(), length, offset)?;
        fairly(|cx| self.core.poll_map(cx, self.wait, &mapped)).await?;
        Ok(mapped)
    }

    async fn written_mapped(self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (core, wait) = (self.core, self.wait);
        fairly(|cx| core.poll_write_mapped(cx, wait, bytes, offset)).await
    }
}

/// What all have that write.
macro_rules! writes {
    ($type:ty) => {
        impl $type {
            /// Registers memory that can be written to streams without a copy: see
            /// [`rdmacm::RdmaStream::register`](crate::RdmaStream::register).
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::register`](crate::RdmaStream::register).
            pub fn register(&self, length: usize) -> io::Result<RegisteredBuffer> {
                self.core.register(length)
            }

            /// Writes out of registered memory, without a copy, as much as the peer has room for; waits
            /// until it has some. The device reads what was written after this has returned: until it
            /// has (`wait_sent`), the memory cannot be changed. It can be dropped, and so can this
            /// future: nothing was written then.
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::write_registered`](crate::RdmaStream::write_registered).
            pub async fn write_registered(
                &mut self,
                buffer: &RegisteredBuffer,
                range: impl RangeBounds<usize>,
            ) -> io::Result<usize> {
                let range = buffer.range(range)?;
                self.writer().send(buffer, range).await
            }

            /// Writes all of a range of registered memory, and waits until the device has read it.
            /// When this future is dropped, a part was written, and is sent; the memory can be changed
            /// once that was (`wait_sent`).
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::write_registered`](crate::RdmaStream::write_registered).
            pub async fn write_all_registered(
                &mut self,
                buffer: &RegisteredBuffer,
                range: impl RangeBounds<usize>,
            ) -> io::Result<()> {
                let range = buffer.range(range)?;
                self.writer().send_all(buffer, range).await
            }

            /// Waits until the device has read all that was written of registered memory to this
            /// stream.
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::wait_sent`](crate::RdmaStream::wait_sent).
            pub async fn wait_sent(&mut self, buffer: &RegisteredBuffer) -> io::Result<()> {
                self.writer().sent(buffer).await
            }

            /// Gives the peer memory to write to: see
            /// [`rdmacm::RdmaStream::map`](crate::RdmaStream::map).
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::map`](crate::RdmaStream::map).
            #[doc(alias("riomap", "riounmap"))]
            pub async fn map(&mut self, length: u32, offset: u64) -> io::Result<MappedBuffer> {
                self.writer().mapped(length, offset).await
            }

            /// Writes into memory that the peer has given: see
            /// [`rdmacm::RdmaStream::write_mapped`](crate::RdmaStream::write_mapped).
            ///
            /// # Errors
            ///
            /// As [`rdmacm::RdmaStream::write_mapped`](crate::RdmaStream::write_mapped).
            #[doc(alias = "riowrite")]
            pub async fn write_mapped(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
                self.writer().written_mapped(bytes, offset).await
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().writer().poll(cx, &[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().writer().poll(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            /// Does nothing: what is written is on its way at once.
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().writer().poll_end(cx)
            }
        }
    };
}

writes!(RdmaStream);
writes!(WriteHalf<'_>);
writes!(OwnedWriteHalf);
