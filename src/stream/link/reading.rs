//! Reading out of the receive buffer.

use std::io::{self, IoSliceMut};

use super::super::ending;
use super::Link;
use super::slices::one_after_the_other;
use crate::verbs::View;

impl Link {
    /// Reads what is there, as much as fits. `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// How the connection was lost.
    pub(in crate::stream) fn read(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(length) = self.peek(bytes)? else {
            return Ok(None);
        };
        self.consume(length);
        Ok(Some(length))
    }

    /// Takes so many bytes as read; there must be so many.
    pub(in crate::stream) fn consume(&mut self, length: usize) {
        if length > 0 {
            self.protocol.consume(length);
            if self.protocol.has_news() {
                self.progress();
            }
        }
    }

    /// Lends what can be read in one piece, and nothing else is read until it is taken back; at the end
    /// it lends `Some(None)`.
    pub(in crate::stream) fn lend(&mut self) -> io::Result<Option<Option<View>>> {
        if self.protocol.has_closed_reading() {
            return Ok(Some(None));
        }
        if self.is_lent {
            return Ok(None);
        }
        if self.protocol.unread() == 0 {
            return Ok(self.end_of_reading()?.map(|_| None));
        }
        let (at, length) = self.protocol.first();
        let view = self.queues.inbox.view(at, length)?;
        self.is_lent = true;
        Ok(Some(Some(view)))
    }

    /// What was lent can be read by others again.
    pub(in crate::stream) fn take_back(&mut self) {
        self.is_lent = false;
    }

    /// As [`Link::read`], into one slice after the other.
    pub(in crate::stream) fn read_vectored(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<usize>> {
        let slices = slices.iter_mut().filter(|bytes| !bytes.is_empty());
        one_after_the_other(slices, |bytes| (bytes.len(), self.read(bytes)))
    }

    /// As [`Link::read`], and leaves it there.
    pub(in crate::stream) fn peek(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        if self.protocol.has_closed_reading() || bytes.is_empty() {
            return Ok(Some(0));
        }
        if self.is_lent {
            return Ok(None);
        }
        if self.protocol.unread() == 0 {
            return self.end_of_reading();
        }
        let (at, length) = self.protocol.first();
        let first = length.min(bytes.len());
        let (head, tail) = bytes.split_at_mut(first);
        self.queues.inbox.read(at, head)?;
        let around = tail.len().min(self.protocol.unread() - first);
        if around > 0 && first == length {
            self.queues.inbox.read(0, &mut tail[..around])?;
            return Ok(Some(first + around));
        }
        Ok(Some(first))
    }

    fn end_of_reading(&self) -> io::Result<Option<usize>> {
        if self.protocol.is_at_end() {
            return Ok(Some(0));
        }
        match &self.lost {
            Some(error) => Err(ending::of_lost(error)),
            None => Ok(None),
        }
    }

    /// Whether a read would find something, an end among it.
    pub(in crate::stream) fn can_read(&self) -> bool {
        let is_there =
            self.protocol.unread() > 0 || self.protocol.is_at_end() || self.lost.is_some();
        self.protocol.has_closed_reading() || is_there && !self.is_lent
    }
}
