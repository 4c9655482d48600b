//! What comes in: which bytes of the receive buffer are there to be read, what the peer may still
//! write, and when to tell it of more room.

use std::collections::VecDeque;

use super::Violation;

/// The receiving side of a stream.
///
/// The receive buffer is a ring of two halves. The peer is told of one half at a time and fills each
/// to its end, so what it writes lies one behind the other, and a message never lies in two halves.
#[derive(Debug)]
pub(crate) struct Receiving {
    half: u32,
    /// How many messages the peer may send before it hears of more.
    credits: u16,
    /// Where in the ring the reader is.
    at: u32,
    /// Bytes to be read.
    unread: u32,
    /// The lengths of the messages that they came in; of the first what is left.
    messages: VecDeque<u32>,
    /// What the peer has not filled of the half that it is in.
    open: u32,
    /// Halves that the peer was told of and has not begun.
    granted: u32,
    /// Bytes that were read, or never used, and that the peer does not know of.
    free: u32,
    /// Messages that came, and those that are done with. They run on.
    received: u16,
    consumed: u16,
    /// What `consumed` was when the peer was told last.
    told: u16,
    /// The half that the peer is told of next, and the slot of the peer's that says so.
    next_half: u32,
    next_slot: u32,
    slots: u32,
}

/// What to tell the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// The number of the first message that the peer may not send.
    pub limit: u16,
    /// A half of the buffer that the peer may write to, by its offset, and the slot that says so.
    pub grant: Option<Grant>,
}

/// A half of the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub offset: u32,
    pub slot: u32,
}

impl Receiving {
    /// With two halves of `half` bytes, the first of which the peer knows; room for `credits`
    /// messages; and so many slots at the peer.
    pub(crate) fn new(half: u32, credits: u16, slots: u32) -> Self {
        Self {
            half,
            credits,
            at: 0,
            unread: 0,
            messages: VecDeque::with_capacity(credits.into()),
            open: half,
            granted: 0,
            free: half,
            received: 0,
            consumed: 0,
            told: 0,
            next_half: half,
            next_slot: 1 % slots,
            slots,
        }
    }

    /// Takes note of a message of data.
    ///
    /// # Errors
    ///
    /// More data, or more messages, than the peer was told that there is room for.
    pub(crate) fn data(&mut self, length: u32) -> Result<(), Violation> {
        self.count()?;
        if self.open == 0 && self.granted > 0 {
            self.granted -= 1;
            self.open = self.half;
        }
        if length == 0 || length > self.open {
            return Err(Violation::Data {
                length,
                room: self.open,
            });
        }
        self.open -= length;
        self.unread += length;
        self.messages.push_back(length);
        Ok(())
    }

    /// Takes note of a message that is done with at once. C's receiver does not count it as that,
    /// and so its sender loses a credit for ever; the limit is absolute, so we may.
    ///
    /// # Errors
    ///
    /// More messages than the peer was told that there is room for.
    pub(crate) fn mapping(&mut self) -> Result<(), Violation> {
        self.count()?;
        self.consumed = self.consumed.wrapping_add(1);
        Ok(())
    }

    fn count(&mut self) -> Result<(), Violation> {
        if self.received.wrapping_sub(self.told) >= self.credits {
            return Err(Violation::Credit);
        }
        self.received = self.received.wrapping_add(1);
        Ok(())
    }

    /// Bytes to be read.
    pub(crate) fn unread(&self) -> usize {
        self.unread as usize
    }

    /// The first bytes to be read: offset and length. The rest begins at the ring's beginning.
    pub(crate) fn first(&self) -> (usize, usize) {
        let to_the_end = 2 * self.half - self.at;
        (self.at as usize, self.unread.min(to_the_end) as usize)
    }

    /// Takes note that so many bytes were read; there must be so many.
    pub(crate) fn consume(&mut self, length: usize) {
        let length = length as u32;
        debug_assert!(length <= self.unread);
        self.unread -= length;
        self.free += length;
        self.at = (self.at + length) % (2 * self.half);
        let mut left = length;
        while let Some(first) = self.messages.front_mut() {
            if *first > left {
                *first -= left;
                return;
            }
            left -= *first;
            self.messages.pop_front();
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// Whether the peer is to be told of more room.
    pub(crate) fn is_update_due(&self) -> bool {
        self.free >= self.half || self.consumed.wrapping_sub(self.told) >= self.credits.div_ceil(2)
    }

    /// What to tell the peer, if that is due. It counts as told.
    pub(crate) fn update(&mut self) -> Option<Update> {
        if !self.is_update_due() {
            return None;
        }
        let grant = (self.free >= self.half).then(|| self.grant());
        self.told = self.consumed;
        Some(Update {
            limit: self.consumed.wrapping_add(self.credits),
            grant,
        })
    }

    fn grant(&mut self) -> Grant {
        let grant = Grant {
            offset: self.next_half,
            slot: self.next_slot,
        };
        self.free -= self.half;
        self.granted += 1;
        self.next_half = self.half - self.next_half;
        self.next_slot = (self.next_slot + 1) % self.slots;
        grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Receiving {
        let mut receiving = Receiving::new(100, 4, 2);
        let first = receiving.update().unwrap();
        assert_eq!(
            first,
            Update {
                limit: 4,
                grant: Some(Grant {
                    offset: 100,
                    slot: 1
                })
            },
            "the second half is free from the beginning"
        );
        assert_eq!(receiving.update(), None);
        receiving
    }

    #[test]
    fn data_is_read_in_order_around_the_end() {
        let mut receiving = fresh();
        for length in [100, 60] {
            receiving.data(length).unwrap();
        }
        assert_eq!(receiving.first(), (0, 160));
        receiving.consume(150);
        assert_eq!(receiving.first(), (150, 10));
        let update = receiving.update().unwrap();
        assert_eq!(update.limit, 5, "one message is read to its end");
        assert_eq!(update.grant, Some(Grant { offset: 0, slot: 0 }));
        receiving.data(40).unwrap();
        receiving.data(30).unwrap();
        assert_eq!(receiving.first(), (150, 50));
        receiving.consume(50);
        assert_eq!(receiving.first(), (0, 30));
    }

    #[test]
    fn no_message_is_longer_than_what_is_left_of_a_half() {
        let mut receiving = fresh();
        receiving.data(99).unwrap();
        let refused = receiving.data(2);
        assert_eq!(refused, Err(Violation::Data { length: 2, room: 1 }));
        let mut receiving = fresh();
        receiving.data(100).unwrap();
        receiving.data(100).unwrap();
        let refused = receiving.data(1);
        assert_eq!(refused, Err(Violation::Data { length: 1, room: 0 }));
        assert!(fresh().data(0).is_err());
        assert!(fresh().data(u32::MAX).is_err());
    }

    /// What is lent is unread, and is a part of the ring that the peer must not get.
    #[test]
    fn no_room_is_given_where_bytes_are_unread() {
        let mut receiving = fresh();
        let (mut room, mut credits, mut grants) = (200u32, 4u32, 0);
        let mut dice = 1u64;
        for _ in 0..20_000 {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let roll = (dice >> 33) as u32;
            // A message ends with the half that it is in.
            let in_half = if room > 100 { room - 100 } else { room };
            if roll.is_multiple_of(2) && in_half > 0 && credits > 0 {
                let length = 1 + roll / 2 % in_half;
                receiving.data(length).unwrap();
                (room, credits) = (room - length, credits - 1);
            } else if receiving.unread() > 0 {
                receiving.consume(1 + roll as usize / 2 % receiving.unread());
            }
            let before = receiving.told;
            let Some(update) = receiving.update() else {
                continue;
            };
            credits += u32::from(update.limit.wrapping_sub(before.wrapping_add(4)));
            let Some(grant) = update.grant else { continue };
            (room, grants) = (room + 100, grants + 1);
            let (at, length) = receiving.first();
            let around = receiving.unread() - length;
            let given = grant.offset as usize..grant.offset as usize + 100;
            let is_apart = at + length <= given.start || at >= given.end;
            assert!(is_apart || length == 0, "{at} {length} {given:?}");
            assert!(around <= given.start, "{around} {given:?}");
        }
        assert!(grants > 500, "{grants} grants");
    }

    #[test]
    fn no_more_messages_come_than_there_is_credit_for() {
        let mut receiving = fresh();
        for _ in 0..4 {
            receiving.data(1).unwrap();
        }
        assert_eq!(receiving.data(1), Err(Violation::Credit));
        receiving.consume(1);
        assert_eq!(receiving.data(1), Err(Violation::Credit), "nobody was told");
        receiving.consume(1);
        let update = receiving.update().unwrap();
        assert_eq!((update.limit, update.grant), (6, None));
        receiving.data(1).unwrap();
        receiving.mapping().unwrap();
        assert_eq!(receiving.mapping(), Err(Violation::Credit));
    }

    #[test]
    fn numbers_run_on_beyond_their_end() {
        let mut receiving = fresh();
        let mut limit = 4u16;
        let mut sent = 0u16;
        for _ in 0..100_000 {
            receiving.data(1).unwrap();
            sent = sent.wrapping_add(1);
            receiving.consume(1);
            if let Some(update) = receiving.update() {
                limit = update.limit;
            }
            assert_ne!(sent, limit, "the peer can always send");
        }
    }
}
