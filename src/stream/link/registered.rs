//! Writing out of memory that the program registered: without the send buffer.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::super::ending;
use super::super::protocol::Message;
use super::{LONGEST, Link, Payload};
use crate::error::{Error, Result};
use crate::fastpath::RemoteAddress;
use crate::verbs::{Registered, RegisteredBuffer};

/// Registered memory that requests under way read. It stays until they are done, whatever the program
/// does.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// With the numbers of the requests, which run on.
    shares: VecDeque<(u64, Arc<Registered>)>,
    /// The number of the last request.
    last: u64,
    /// The memory that was asked for last, by its address.
    asked: usize,
    /// Memory whose owner was told to come again.
    awaited: Vec<usize>,
    /// What of that is read no more, which its owner has yet to be told.
    sent: Vec<usize>,
    /// Whether some ended without being carried out.
    has_lost: bool,
}

impl Held {
    /// Takes a share for a request, and numbers that.
    fn add(&mut self, share: Arc<Registered>) -> u64 {
        self.last += 1;
        self.shares.push_back((self.last, share));
        self.last
    }

    /// A request is done, and with it those before. Whether there were any.
    pub(super) fn release(&mut self, number: u64) -> bool {
        let is_done = |(first, _): &(u64, Arc<Registered>)| *first <= number;
        let mut any = false;
        while self.shares.front().is_some_and(is_done)
            && let Some((_, share)) = self.shares.pop_front()
        {
            any = true;
            self.let_go_of(share);
        }
        any
    }

    /// One request less reads this memory. Where it was the last, the owner is to be told, if it is still
    /// there: memory that was dropped nobody waits for.
    fn let_go_of(&mut self, share: Arc<Registered>) {
        let memory = address(&share);
        let Some(place) = self.awaited.iter().position(|awaited| *awaited == memory) else {
            return;
        };
        if self
            .shares
            .iter()
            .any(|(_, other)| address(other) == memory)
        {
            return;
        }
        self.awaited.swap_remove(place);
        if Arc::strong_count(&share) > 1 {
            self.sent.push(memory);
        }
    }

    /// The owner of the memory that was asked for last was told to come again.
    fn await_asked(&mut self) {
        if !self.awaited.contains(&self.asked) {
            self.awaited.push(self.asked);
        }
    }

    /// The owner of the memory that was asked for last was told that it is read no more.
    fn tell_asked(&mut self) {
        let asked = self.asked;
        self.awaited.retain(|memory| *memory != asked);
        self.sent.retain(|memory| *memory != asked);
    }

    /// A request is not carried out.
    pub(super) fn flush(&mut self, number: u64) {
        self.has_lost |= self.release(number);
    }

    fn has(&self, buffer: &RegisteredBuffer) -> bool {
        let mut shares = self.shares.iter();
        shares.any(|(_, share)| buffer.is_held_by(share))
    }
}

/// What memory is known by while there is a share of it.
fn address(share: &Arc<Registered>) -> usize {
    Arc::as_ptr(share).addr()
}

impl Link {
    /// Writes a part of registered memory, as much as the peer has room for. `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// Memory of another protection domain, and as for [`Link::write`].
    pub(in crate::stream) fn write_registered(
        &mut self,
        buffer: &RegisteredBuffer,
        range: Range<usize>,
    ) -> io::Result<Option<usize>> {
        self.check_writable()?;
        if !buffer.is_of(&self.queues.id.protection_domain()?) {
            return Err(of_another_device().into());
        }
        let mut at = range.start;
        while at < range.end {
            match self.write_registered_message(buffer, at..range.end) {
                Ok(0) => break,
                Ok(length) => at += length,
                Err(error) => {
                    let error = self.refused(error);
                    // What was written before is told first; the next call tells of the error.
                    if at == range.start {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        let written = at - range.start;
        Ok((written > 0 || range.is_empty()).then_some(written))
    }

    /// Posts the first message. 0: there is no room.
    fn write_registered_message(
        &mut self,
        buffer: &RegisteredBuffer,
        range: Range<usize>,
    ) -> Result<usize> {
        self.look_for_room()?;
        let each = self.each();
        let length = range.len().min(self.protocol.room()).min(LONGEST);
        if length == 0 || !self.may_speak() || !self.under_way.has_room(each) {
            return Ok(0);
        }
        let segment = buffer.segment(range.start..range.start + length)?;
        let place = self.protocol.data(length);
        let to = RemoteAddress {
            address: place.address,
            rkey: place.rkey,
        };
        self.under_way.data_of_others(each);
        // Held even if posting fails: the device may have seen a part of it.
        let number = self.held.add(buffer.hold());
        let message = Message::Data(place.length);
        let payload = Payload::Segments(&[segment]);
        self.post(Some(message), Some(to), payload, Some(number))?;
        Ok(length)
    }

    /// Whether the device has read all that was written of a registered buffer. `None`: not yet.
    ///
    /// # Errors
    ///
    /// How the connection was lost before it had.
    pub(in crate::stream) fn is_sent(
        &mut self,
        buffer: &RegisteredBuffer,
    ) -> io::Result<Option<()>> {
        if self.lost.is_some() && self.held.has(buffer) {
            self.progress();
            self.let_go()?;
        }
        self.held.asked = buffer.identity();
        match &self.lost {
            Some(error) if self.held.has_lost => Err(ending::of_lost(error)),
            _ => Ok((!self.held.has(buffer)).then_some(())),
        }
    }

    /// Has the device read no more, once the connection is lost: not every device says of each request
    /// that it is not carried out.
    fn let_go(&mut self) -> Result<()> {
        if !self.held.shares.is_empty() {
            self.queues.id.destroy_qp()?;
            self.held.flush(u64::MAX);
        }
        Ok(())
    }

    /// Notes whether who asked last whether memory was sent was told to come again.
    pub(in crate::stream) fn note_asked(&mut self, is_blocked: bool) {
        match is_blocked {
            true => self.held.await_asked(),
            false => self.held.tell_asked(),
        }
    }

    /// Whether somebody who was told to come again would hear now that memory was sent.
    pub(in crate::stream) fn has_sent(&self) -> bool {
        let is_lost = self.lost.is_some() && !self.held.awaited.is_empty();
        is_lost || !self.held.sent.is_empty()
    }
}

/// The queue pair cannot read the memory.
fn of_another_device() -> Error {
    let text = "the memory was registered by a stream on another device";
    Error::invalid("write_registered", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::twin::{Twin, TwinDevice};

    fn buffers() -> [RegisteredBuffer; 2] {
        let device = TwinDevice::rxe(0, [10, 0, 0, 1].into());
        let twin = Twin::with_devices(vec![device]);
        let context = twin.registry().context_of_index(0).unwrap();
        let pd = context.alloc_pd().unwrap();
        [10, 20].map(|length| RegisteredBuffer::new(&pd, length).unwrap())
    }

    #[test]
    fn memory_is_held_until_its_last_request_is_done() {
        let [one, other] = buffers();
        let mut held = Held::default();
        let numbers = [&one, &other, &one].map(|buffer| held.add(buffer.hold()));
        assert_eq!(numbers, [1, 2, 3]);
        held.release(0);
        assert!(held.has(&one) && held.has(&other), "another request");
        held.release(1);
        assert!(held.has(&one) && other.is_busy());
        held.flush(0);
        assert!(!held.has_lost, "it is nobody's");
        held.flush(2);
        assert!(held.has_lost && held.has(&one) && !other.is_busy());
        held.release(3);
        assert!(!one.is_busy());
    }

    /// As a call that asks for this memory and is told to come again, or not.
    fn ask(held: &mut Held, buffer: &RegisteredBuffer) {
        held.asked = buffer.identity();
        match held.has(buffer) {
            true => held.await_asked(),
            false => held.tell_asked(),
        }
    }

    #[test]
    fn memory_that_the_program_has_dropped_is_waited_for_by_nobody() {
        let [one, other] = buffers();
        let mut held = Held::default();
        for buffer in [&one, &one, &other] {
            held.add(buffer.hold());
        }
        ask(&mut held, &one);
        ask(&mut held, &other);
        drop(one);
        assert!(held.release(2));
        assert!(held.sent.is_empty());
        assert!(held.release(3) && !held.release(3));
        assert_eq!(held.sent.len(), 1);
        assert!(held.awaited.is_empty());
        ask(&mut held, &other);
        assert!(held.sent.is_empty());
    }

    #[test]
    fn each_of_several_that_wait_is_told() {
        let [one, other] = buffers();
        let mut held = Held::default();
        for buffer in [&other, &one, &one] {
            held.add(buffer.hold());
        }
        ask(&mut held, &one);
        held.release(2);
        assert!(held.sent.is_empty(), "there is one more");
        held.release(3);
        // That of the other, which nobody asked for, is no news to who waits.
        ask(&mut held, &other);
        assert_eq!(held.sent.len(), 1);
        ask(&mut held, &one);
        assert!(held.sent.is_empty());
    }
}
