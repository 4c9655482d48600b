//! One end of a stream that is connected: what the protocol says is posted here, and what completes
//! is told to the protocol.
//!
//! Nothing here waits. A call that can do nothing now returns `None`, and can try again when a
//! completion or an event came.

use std::collections::BTreeSet;

use self::registered::Held;
use super::ending;
use super::protocol::{Hello, Message, News, Protocol, UnderWay, Update};
use super::queues::{MESSAGE_LENGTH, Queues, RECEIVE};
use crate::cm::Event;
use crate::error::{Error, Result};
use crate::fastpath::{Completion, RemoteAddress, Segment, SendFlags, Success};

mod mapping;
mod reading;
mod registered;
mod slices;
mod writing;

/// The longest message of data. Longer ones save nothing, and the peer could read nothing of them
/// before they are there as a whole.
const LONGEST: usize = 1 << 16;

/// Less than so much room in the send buffer is waited for to become more, unless it is enough.
const SCRAP: usize = 2048;

/// The number of requests that have nothing to be told apart by. Those that send registered memory
/// count from 1.
const REQUEST: u64 = 0;

/// The number of requests whose completion tells nothing, as that of a message behind them does.
const TOLD_BEHIND: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) queues: Queues,
    protocol: Protocol,
    under_way: UnderWay,
    peer: Hello,
    /// The places of the peer's table that say something.
    mapped: BTreeSet<u16>,
    /// Why the connection is over, unless both sides said goodbye.
    lost: Option<Error>,
    /// Whether the queue pair does no more: no completion can be waited for.
    is_down: bool,
    /// Whether requests were flushed, and nobody has looked why.
    is_flushed: bool,
    /// Whether the peer broke the protocol: nothing that it says counts any more.
    is_violated: bool,
    /// Whether the peer has said anything.
    has_heard: bool,
    /// Whether the program has a view of what is unread.
    is_lent: bool,
    held: Held,
}

/// What a request carries.
enum Payload<'a> {
    Nothing,
    Inline(&'a [u8]),
    Segments(&'a [Segment]),
}

impl Link {
    pub(super) fn new(queues: Queues, peer: Hello) -> Self {
        let each = if queues.sends_messages { 2 } else { 1 };
        let size = queues.outbox.len() as u32;
        let mut link = Self {
            protocol: Protocol::new(queues.own, &peer),
            under_way: UnderWay::new(queues.send_depth, each, size),
            has_heard: false,
            queues,
            peer,
            mapped: BTreeSet::new(),
            lost: None,
            is_down: false,
            is_flushed: false,
            is_violated: false,
            is_lent: false,
            held: Held::default(),
        };
        // The second half of the receive buffer is due at once, so each side has something to say.
        link.tell();
        link
    }

    /// Takes what completed, and tells the peer what is due. True when a call that could do nothing
    /// may find something to do.
    pub(super) fn progress(&mut self) -> bool {
        let mut entries = [Completion::default(); 16];
        let mut has_news = false;
        loop {
            let taken = self.queues.cq.poll(&mut entries).len();
            for completion in &entries[..taken] {
                has_news |= self.complete(completion);
            }
            if taken < entries.len() {
                break;
            }
        }
        if self.is_flushed {
            self.explain_flush();
        }
        if self.protocol.has_news() {
            self.tell();
        }
        has_news
    }

    /// Finds the reason for which requests were flushed. Over iWARP the kernel ends the queue pair first,
    /// and an event says why. Otherwise this side does it after the event, and where there was none the
    /// queue pair has failed by itself: by a write of the peer's into memory that is not for it.
    fn explain_flush(&mut self) {
        self.is_flushed = false;
        if self.lost.is_some() || self.queues.sends_messages {
            return;
        }
        let told = self.take_events();
        self.lose(told.err().unwrap_or_else(ending::of_queue_pair));
    }

    fn complete(&mut self, completion: &Completion) -> bool {
        let outcome = match completion.result() {
            Ok(success) if completion.wr_id() & RECEIVE != 0 => {
                self.take_message(completion.wr_id(), success)
            }
            Ok(_) if completion.wr_id() == TOLD_BEHIND => Ok(false),
            Ok(_) => {
                self.under_way.complete();
                self.held.release(completion.wr_id());
                Ok(true)
            }
            Err(failure) => {
                self.is_down = true;
                if completion.wr_id() & (RECEIVE | TOLD_BEHIND) == 0 {
                    self.held.flush(completion.wr_id());
                }
                match failure.is_flush() {
                    true => {
                        self.is_flushed = true;
                        Ok(true)
                    }
                    false => Err(Error::from(failure)),
                }
            }
        };
        outcome.unwrap_or_else(|error| {
            self.lose(error);
            true
        })
    }

    fn take_message(&mut self, number: u64, success: Success<'_>) -> Result<bool> {
        if self.is_violated {
            return Ok(false);
        }
        let index = (number & !RECEIVE) as u32;
        let bits = match self.queues.sends_messages {
            false => success.immediate(),
            true => {
                let bytes = self.queues.message(index)?;
                (success.byte_len() as usize == MESSAGE_LENGTH).then(|| {
                    match self.peer.is_big_endian {
                        true => u32::from_be_bytes(bytes),
                        false => u32::from_le_bytes(bytes),
                    }
                })
            }
        };
        let Some(bits) = bits else {
            self.is_violated = true;
            return Err(ending::of_violation("the peer sent what is no message"));
        };
        self.has_heard = true;
        let news = match self.protocol.receive(Message::from_bits(bits)) {
            Ok(news) => news,
            Err(violation) => {
                self.is_violated = true;
                return Err(ending::of_violation(violation));
            }
        };
        // What came before the end counts, and no more is to come.
        if !self.is_down {
            self.queues.post_receive(index)?;
        }
        Ok(news == News::Progress)
    }

    /// Takes events of the connection.
    pub(super) fn take_events(&mut self) -> Result<()> {
        while let Some(event) = self.queues.channel.try_next_event()? {
            match event {
                Event::Disconnected(_) | Event::Rejected(_) | Event::DeviceRemoval(_) => {
                    // What the peer sent before its end is there by now.
                    self.progress();
                    self.lose(event.into_error("stream"));
                }
                // Others, as a peer's new link address, do not end the connection.
                _ => {}
            }
        }
        Ok(())
    }

    /// The connection is over. The first reason is the one to tell.
    fn lose(&mut self, reason: Error) {
        if self.lost.is_none() {
            self.lost = Some(reason);
            self.is_down = true;
            // Answers the peer, or tells it. It is over whether that works or not.
            let _ = self.queues.id.disconnect();
        }
    }

    /// Tells the peer what is due, as far as there is room.
    fn tell(&mut self) {
        while self.may_speak() && self.under_way.has_room_for_control() && !self.is_down {
            let told = if let Some(update) = self.protocol.update() {
                self.tell_of_room(update)
            } else if let Some(message) = self.protocol.farewell() {
                self.under_way.control();
                self.post(Some(message), None, Payload::Nothing, Some(REQUEST))
            } else {
                return;
            };
            if let Err(error) = told {
                self.lose(error);
            }
        }
    }

    fn tell_of_room(&mut self, update: Update) -> Result<()> {
        self.under_way.control();
        let message = Message::Credit(update.limit);
        let Some(grant) = update.grant else {
            return self.post(Some(message), None, Payload::Nothing, Some(REQUEST));
        };
        let slot = self
            .queues
            .half(grant.offset)
            .to_slot(self.peer.is_big_endian);
        let slots = self.peer.slots;
        let to = RemoteAddress {
            address: slots.address,
            rkey: slots.rkey,
        };
        let to = to.at(u64::from(grant.slot) * slot.len() as u64);
        if slot.len() <= self.queues.max_inline {
            return self.post(
                Some(message),
                Some(to),
                Payload::Inline(&slot),
                Some(REQUEST),
            );
        }
        let segment = self.queues.note_slot(&slot)?;
        self.post(
            Some(message),
            Some(to),
            Payload::Segments(&[segment]),
            Some(REQUEST),
        )
    }

    /// Posts a message with the data that goes with it, or data that the peer is told nothing of. With a
    /// number it asks for a completion, which has that number.
    fn post(
        &mut self,
        message: Option<Message>,
        to: Option<RemoteAddress>,
        payload: Payload<'_>,
        number: Option<u64>,
    ) -> Result<()> {
        let nowhere = RemoteAddress {
            address: 0,
            rkey: 0,
        };
        // Of a request without a completion siw hands the memory itself to TCP, which may send from it,
        // once more even, when the completion of a request behind it has come. With one it copies.
        let silent = match self.queues.sends_messages {
            true => (TOLD_BEHIND, SendFlags::SIGNALED),
            false => (REQUEST, SendFlags::empty()),
        };
        let (number, flags) = match number {
            Some(number) => (number, SendFlags::SIGNALED),
            None => silent,
        };
        let mut batch = self.queues.send.batch();
        match message {
            None => add(
                batch.write(number, to.unwrap_or(nowhere)).flags(flags),
                payload,
            )?,
            Some(message) if !self.queues.sends_messages => {
                let to = to.unwrap_or(nowhere);
                let request = batch.write_immediate(number, to, message.to_bits());
                add(request.flags(flags), payload)?;
            }
            Some(message) => {
                if let Some(to) = to {
                    let (number, flags) = silent;
                    add(batch.write(number, to).flags(flags), payload)?;
                }
                let own_order = message.to_bits().to_ne_bytes();
                batch.send(number).flags(flags).inline(&own_order)?;
            }
        }
        Ok(batch.submit()?)
    }

    fn each(&self) -> u32 {
        if self.queues.sends_messages { 2 } else { 1 }
    }

    /// Whether this side may send: over iWARP the side that connected has to speak first.
    fn may_speak(&self) -> bool {
        self.has_heard || self.queues.is_active || !self.queues.sends_messages
    }

    /// Whether this side has to hear something before anything goes on: over iWARP, where it has spoken
    /// first.
    pub(super) fn awaits_first_word(&self) -> bool {
        let speaks_first = self.queues.is_active && self.queues.sends_messages;
        speaks_first && !self.has_heard && !self.is_down
    }

    /// Looks whether the peer's device answers, by writing nothing: its program does not notice.
    pub(super) fn keep_alive(&mut self) {
        if self.may_speak() && self.under_way.has_room_for_control() && !self.is_down {
            self.under_way.control();
            let nowhere = RemoteAddress {
                address: 0,
                rkey: 0,
            };
            if let Err(error) = self.post(None, Some(nowhere), Payload::Nothing, Some(REQUEST)) {
                self.lose(error);
            }
        }
    }

    /// Ends reading, writing or both, and tells the peer. False when that was so already.
    pub(super) fn shut_down(&mut self, read: bool, write: bool) -> bool {
        let is_news = self.protocol.shut_down(read, write);
        self.progress();
        is_news
    }

    /// Whether nothing is left to be told, and the peer has all that was written.
    pub(super) fn is_settled(&self) -> bool {
        self.is_down || !self.protocol.has_news() && self.under_way.is_idle()
    }

    /// Asks for a sign of the next completion. True where something came meanwhile.
    pub(super) fn arm(&mut self) -> Result<bool> {
        if self.queues.cq.event_due() {
            return Ok(false);
        }
        self.queues.cq.arm_for_event()?;
        Ok(self.progress())
    }

    /// Reads the sign that was asked for.
    pub(super) fn take_sign(&mut self) -> Result<()> {
        self.queues.cq.take_event()
    }

    /// Why the connection was lost, if that was before the peer had all that was written, or before both
    /// sides said goodbye.
    #[cfg(feature = "tokio")]
    pub(super) fn lost_unsent(&self) -> Option<&Error> {
        match self.under_way.is_idle() || self.protocol.is_peer_gone() {
            true => self.lost(),
            false => self.lost.as_ref(),
        }
    }

    /// Why the connection was lost, if it was.
    pub(super) fn lost(&self) -> Option<&Error> {
        self.lost.as_ref().filter(|_| !self.protocol.is_over())
    }
}

fn add(request: crate::verbs::RequestBuilder<'_, '_>, payload: Payload<'_>) -> Result<()> {
    match payload {
        Payload::Nothing => request.from(&[])?,
        Payload::Inline(bytes) => request.inline(bytes)?,
        Payload::Segments(segments) => request.from(segments)?,
    }
    Ok(())
}

impl Drop for Link {
    fn drop(&mut self) {
        // The queue pair goes first, then the id, which tells the peer.
        let _ = self.queues.id.destroy();
    }
}
