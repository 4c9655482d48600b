//! What goes out: how much may be written to the peer, and where.

use super::wire::Place;

/// The sending side of a stream.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Messages that were sent and need credit; runs on.
    sent: u16,
    /// The number of the first message that may not be sent.
    limit: u16,
    /// Where to write next.
    target: Place,
    /// The slot that says where to write after that.
    next_slot: u32,
    slots: u32,
    /// Whether the peer may have filled a slot since the next one was seen empty.
    is_slot_news: bool,
}

impl Sending {
    /// With what the peer said when the connection was made, and so many slots on this side.
    pub(crate) fn new(credits: u16, target: Place, slots: u32) -> Self {
        Self {
            sent: 0,
            limit: credits,
            target,
            next_slot: 1 % slots,
            slots,
            is_slot_news: false,
        }
    }

    /// Takes note that messages may be sent up to a number, and that a slot may have been filled.
    pub(crate) fn credit(&mut self, limit: u16) {
        self.limit = limit;
        self.is_slot_news = true;
    }

    /// The slot to look at for where to write: the present place is full, and the peer has perhaps
    /// filled that slot.
    pub(crate) fn wanted_slot(&self) -> Option<u32> {
        (self.target.length == 0 && self.is_slot_news).then_some(self.next_slot)
    }

    /// Takes the place that was found in the slot that was wanted. One of no length means that the
    /// peer has not filled it.
    pub(crate) fn take_slot(&mut self, place: Place) {
        self.is_slot_news = place.length > 0;
        if place.length > 0 {
            self.target = place;
            self.next_slot = (self.next_slot + 1) % self.slots;
        }
    }

    /// Whether there is credit for a message.
    pub(crate) fn has_credit(&self) -> bool {
        self.sent != self.limit
    }

    /// The longest message of data that can be sent now.
    pub(crate) fn room(&self) -> u32 {
        match self.has_credit() {
            true => self.target.length,
            false => 0,
        }
    }

    /// Takes a message of data into account, and says where to write it.
    pub(crate) fn data(&mut self, length: u32) -> Place {
        debug_assert!(length > 0 && length <= self.room());
        let place = Place {
            length,
            ..self.target
        };
        self.sent = self.sent.wrapping_add(1);
        self.target.length -= length;
        // The peer's address space is its own business.
        self.target.address = self.target.address.wrapping_add(length.into());
        place
    }

    /// Takes a message into account that needs credit and no room.
    pub(crate) fn mapping(&mut self) {
        debug_assert!(self.has_credit());
        self.sent = self.sent.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: u64, length: u32) -> Place {
        Place {
            address,
            rkey: 7,
            length,
        }
    }

    #[test]
    fn data_goes_where_the_peer_said_until_that_is_full() {
        let mut sending = Sending::new(10, place(1000, 100), 2);
        assert_eq!(sending.room(), 100);
        assert_eq!(sending.data(60), place(1000, 60));
        assert_eq!(sending.data(40), place(1060, 40));
        assert_eq!((sending.room(), sending.wanted_slot()), (0, None));
        sending.credit(20);
        assert_eq!(sending.wanted_slot(), Some(1));
        sending.take_slot(place(0, 0));
        assert_eq!(sending.wanted_slot(), None, "not before the next message");
        sending.credit(20);
        sending.take_slot(place(2000, 50));
        assert_eq!(sending.data(50), place(2000, 50));
        assert_eq!(sending.wanted_slot(), Some(0));
    }

    #[test]
    fn messages_end_at_the_limit_and_the_limit_is_a_number() {
        let mut sending = Sending::new(2, place(0, 100), 2);
        sending.data(1);
        sending.mapping();
        assert!(!sending.has_credit());
        assert_eq!(sending.room(), 0);
        sending.credit(3);
        assert_eq!(sending.room(), 98 + 1);
        sending.data(1);
        assert_eq!(sending.room(), 0);
    }
}
