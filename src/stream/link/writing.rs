//! Writing into the receive buffer of the peer.

use std::io::{self, IoSlice};

use super::super::ending;
use super::super::protocol::Message;
use super::slices::one_after_the_other;
use super::{LONGEST, Link, Payload, REQUEST, SCRAP};
use crate::error::{Error, Result};
use crate::fastpath::RemoteAddress;

impl Link {
    /// Whether a write would find room, or an error.
    pub(in crate::stream) fn can_write(&self) -> bool {
        !self.protocol.is_writable() || self.lost.is_some() || self.has_room(SCRAP)
    }

    fn has_room(&self, length: usize) -> bool {
        let is_inline = length <= self.queues.max_inline;
        let has_target = self.protocol.room() > 0 || self.protocol.wanted_slot().is_some();
        let has_buffer = is_inline || self.under_way.buffer_room() >= length.min(SCRAP);
        self.may_speak() && has_target && has_buffer && self.under_way.has_room(self.each())
    }

    /// Writes as much as there is room for. `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// How the connection was lost, and `BrokenPipe` where one of the two has ended it.
    pub(in crate::stream) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.check_writable()?;
        let mut written = 0;
        while written < bytes.len() {
            match self.write_message(&bytes[written..]) {
                Ok(0) => break,
                Ok(length) => written += length,
                Err(error) => {
                    let error = self.refused(error);
                    // What was written before is told first; the next call tells of the error.
                    return if written > 0 {
                        Ok(Some(written))
                    } else {
                        Err(error)
                    };
                }
            }
        }
        Ok((written > 0 || bytes.is_empty()).then_some(written))
    }

    /// As [`Link::write`], one slice after the other.
    pub(in crate::stream) fn write_vectored(
        &mut self,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let slices = slices.iter().filter(|bytes| !bytes.is_empty());
        one_after_the_other(slices, |bytes| (bytes.len(), self.write(bytes)))
    }

    pub(super) fn check_writable(&self) -> io::Result<()> {
        match &self.lost {
            _ if !self.protocol.is_writable() => Err(ending::of_writing()),
            Some(error) => Err(ending::of_lost(error)),
            None => Ok(()),
        }
    }

    /// A refused doorbell means that the connection is just ending, which an event tells better.
    pub(super) fn refused(&mut self, error: Error) -> io::Error {
        let _ = self.take_events();
        self.lose(error);
        ending::of_lost(self.lost.as_ref().expect("it was just lost"))
    }

    /// Looks where the peer says that there is room, where that is to be known.
    pub(super) fn look_for_room(&mut self) -> Result<()> {
        if let Some(slot) = self.protocol.wanted_slot() {
            let place = self.queues.take_slot(slot)?;
            self.protocol.take_slot(place);
        }
        Ok(())
    }

    /// Posts the first message of some data. 0: there is no room.
    fn write_message(&mut self, bytes: &[u8]) -> Result<usize> {
        self.look_for_room()?;
        if !self.has_room(bytes.len()) {
            return Ok(0);
        }
        let length = bytes.len().min(self.protocol.room()).min(LONGEST);
        let is_inline = length <= self.queues.max_inline;
        let length = match is_inline {
            true => length,
            false => length.min(self.under_way.buffer_room()),
        };
        let place = self.protocol.data(length);
        let to = RemoteAddress {
            address: place.address,
            rkey: place.rkey,
        };
        let (message, bytes) = (Some(Message::Data(place.length)), &bytes[..length]);
        match is_inline {
            true => {
                let is_told = self.under_way.data(self.each());
                let number = is_told.then_some(REQUEST);
                self.post(message, Some(to), Payload::Inline(bytes), number)?;
            }
            false => self.post_copied(message, to, bytes)?,
        }
        Ok(length)
    }

    /// Posts bytes by way of the send buffer, which has room for them.
    pub(super) fn post_copied(
        &mut self,
        message: Option<Message>,
        to: RemoteAddress,
        bytes: &[u8],
    ) -> Result<()> {
        let copied = self.under_way.copy(bytes.len());
        let (first, around) = bytes.split_at(copied.length);
        let outbox = &mut self.queues.outbox;
        outbox.write(copied.offset, first)?;
        outbox.write(0, around)?;
        let first = outbox.slice(copied.offset..copied.offset + copied.length)?;
        let around = outbox.slice(..copied.around)?;
        let segments = [first, around];
        let count = if copied.around > 0 { 2 } else { 1 };
        let each = if message.is_some() { self.each() } else { 1 };
        let is_told = self.under_way.data(each);
        self.post(
            message,
            Some(to),
            Payload::Segments(&segments[..count]),
            is_told.then_some(REQUEST),
        )
    }
}
