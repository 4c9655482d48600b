//! Reading without a copy.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use super::core::Core;
use super::options::Side;
use super::stream::RdmaStream;
use crate::verbs::View;

/// Unread bytes of a stream where the peer wrote them, in the receive buffer.
///
/// The bytes stay unread, and the peer gets no room for more in their place, until
/// [`Lent::consume`] says so. They are one piece of what is unread: the rest, what reaches around the
/// end of the receive buffer or came later, is lent next.
///
/// While this exists, the stream has nothing else to read: other calls that read or peek, through
/// other handles too, wait, or say `WouldBlock`. In the same thread they would wait for ever, and in
/// any after [`forget`](std::mem::forget).
#[must_use = "the stream can be read when this is dropped"]
pub struct Lent<'s> {
    core: &'s Core,
    /// `None` at the end of the stream.
    view: Option<View>,
}

impl RdmaStream {
    /// Reads without a copy: gives a view of what is unread, and waits for it as
    /// [`Read::read`](std::io::Read::read) does. At the end of the stream the view is empty.
    ///
    /// ```no_run
    /// # fn example(stream: &rdmacm::RdmaStream, file: &std::fs::File) -> std::io::Result<()> {
    /// loop {
    ///     let mut lent = stream.lend()?;
    ///     if lent.is_empty() {
    ///         return Ok(());
    ///     }
    ///     let written = lent.write_to(file)?; // the kernel takes it from where the peer wrote it
    ///     lent.consume(written);
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As reading.
    #[doc(alias("rrecv", "rread"))]
    pub fn lend(&self) -> io::Result<Lent<'_>> {
        let core: &Core = self.core();
        let view = core.run(Side::Read, |link| link.lend())?;
        Ok(Lent::new(core, view))
    }
}

impl<'s> Lent<'s> {
    /// Of what [`Link::lend`](super::link::Link::lend) returned.
    pub(crate) fn new(core: &'s Core, view: Option<View>) -> Self {
        Self { core, view }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.view.as_ref().map_or(0, View::len)
    }

    /// Whether there are none: the stream has ended, or all were consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first bytes as read, all of them if there are fewer. The view goes on behind them.
    pub fn consume(&mut self, count: usize) {
        if let Some(view) = &mut self.view {
            let count = count.min(view.len());
            view.advance(count);
            self.core.consume_lent(count);
        }
    }

    /// Copies the first bytes, and leaves them there. Returns how many.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        self.view.as_ref().map_or(0, |view| view.copy_to(bytes))
    }

    /// Has the kernel write the first bytes to a file, a pipe or a socket, as `write()` does, and
    /// leaves them there. Returns how many.
    ///
    /// # Errors
    ///
    /// Those of `write()`.
    pub fn write_to(&self, file: impl AsFd) -> io::Result<usize> {
        match &self.view {
            Some(view) => view.write_to(file.as_fd()),
            None => Ok(0),
        }
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    ///
    /// The peer's device can write to all of the receive buffer as long as the connection exists. A
    /// peer that keeps to the protocol writes only where it was given room, and these bytes it was
    /// not given back. The caller answers for the peer doing so while the slice exists: with one that
    /// is not trusted use [`Lent::copy_to`] or [`Lent::write_to`], which take the bytes as they are.
    pub unsafe fn as_slice(&self) -> &[u8] {
        match &self.view {
            // SAFETY: nothing was consumed of what is in the view, and so the peer was not given room
            // there. That it does not write there nevertheless is up to the caller.
            Some(view) => unsafe { view.as_slice() },
            None => &[],
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.view.is_some() {
            self.core.take_back();
        }
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("len", &self.len()).finish()
    }
}
