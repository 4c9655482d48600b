//! Fuzz target: a peer of a stream that says anything.

pub use super::datagram::fuzzing::datagram_headers;
use super::protocol::{
    HELLO_LENGTH, Hello, MAPPING_LENGTH, Mapping, Message, Own, Place, Protocol, SLOT_LENGTH, SLOTS,
};

/// What this side has in all runs.
const OWN: Own = Own {
    half: 64,
    credits: 8,
    mappings: 4,
};

/// Takes connection data, then messages and what is in the memory that the peer may write to, in any
/// order with reads and writes of the program. What the peer is taken to have written lies in the
/// receive buffer, comes in order and is no more than it was allowed; what is written to the peer goes
/// nowhere but where it said.
pub fn stream_messages(input: &[u8]) {
    let Some((hello, mut rest)) = input.split_at_checked(HELLO_LENGTH) else {
        assert!(Hello::from_bytes(input).is_err());
        return;
    };
    let Ok(hello) = Hello::from_bytes(hello) else {
        return;
    };
    assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
    let mut protocol = Protocol::new(OWN, &hello);
    let mut allowed = Allowed::new();
    while let Some((step, behind)) = rest.split_first() {
        rest = behind;
        match step & 7 {
            0..=2 => {
                let message = Message::from_bits(match step >> 3 & 3 {
                    // Shapes that lead far.
                    0 => u32::from(byte(&mut rest)),
                    1 => u32::from(byte(&mut rest)) | 0x8000_0000,
                    2 => u32::from(byte(&mut rest)) & 3 | 0xe000_0000,
                    _ => word(&mut rest),
                });
                let before = protocol.unread();
                if protocol.receive(message).is_err() {
                    return;
                }
                allowed.take(message, protocol.unread() - before);
            }
            3 => {
                let (at, length) = protocol.first();
                assert!(at + length <= 2 * OWN.half as usize);
                assert_eq!(at, allowed.read_at, "in order");
                let length = length.min(byte(&mut rest).into());
                protocol.consume(length);
                allowed.read(length);
            }
            4 => {
                if let Some(update) = protocol.update() {
                    allowed.tell(update.grant.map(|grant| {
                        assert!(grant.slot < hello.slots.length);
                        assert!(grant.offset == 0 || grant.offset == OWN.half);
                    }));
                }
                protocol.farewell();
            }
            5 => {
                if let Some(slot) = protocol.wanted_slot() {
                    assert!(slot < SLOTS);
                    let mut bytes = [0; SLOT_LENGTH];
                    fill(&mut bytes, &mut rest);
                    protocol.take_slot(Place::from_slot(bytes));
                }
            }
            6 => {
                let room = protocol.room();
                let length = room.min(1 + usize::from(byte(&mut rest)));
                if length > 0 {
                    let place = protocol.data(length);
                    assert_eq!(place.length as usize, length);
                    assert!(protocol.room() <= room);
                }
                protocol.map();
            }
            _ => {
                let mut bytes = [0; MAPPING_LENGTH];
                fill(&mut bytes, &mut rest);
                let mapping = Mapping::from_entry(bytes);
                let offset = mapping.offset.wrapping_add(byte(&mut rest).into());
                if let Some(place) = mapping.at(offset) {
                    assert!((1..=mapping.place.length).contains(&place.length));
                }
                if step >> 3 & 7 == 7 {
                    protocol.shut_down(step & 0x40 != 0, step & 0x80 != 0);
                }
            }
        }
    }
}

/// What the peer may have written, counted another way.
struct Allowed {
    bytes: usize,
    messages: usize,
    read_at: usize,
    /// Bytes that were read or never used, and that the peer was not told of.
    free: usize,
}

impl Allowed {
    fn new() -> Self {
        Self {
            bytes: OWN.half as usize,
            messages: OWN.credits.into(),
            read_at: 0,
            free: OWN.half as usize,
        }
    }

    fn take(&mut self, message: Message, length: usize) {
        self.bytes = self
            .bytes
            .checked_sub(length)
            .expect("no more than allowed");
        if matches!(message, Message::Data(_) | Message::Mapping(_)) {
            self.messages = self.messages.checked_sub(1).expect("no more than allowed");
        }
    }

    fn read(&mut self, length: usize) {
        self.read_at = (self.read_at + length) % (2 * OWN.half as usize);
        self.free += length;
    }

    fn tell(&mut self, grant: Option<()>) {
        if grant.is_some() {
            self.free = self
                .free
                .checked_sub(OWN.half as usize)
                .expect("it is free");
            self.bytes += OWN.half as usize;
        }
        // At most as many as there are receives.
        self.messages = OWN.credits.into();
    }
}

fn byte(rest: &mut &[u8]) -> u8 {
    let Some((first, behind)) = rest.split_first() else {
        return 0;
    };
    *rest = behind;
    *first
}

fn word(rest: &mut &[u8]) -> u32 {
    u32::from_be_bytes([byte(rest), byte(rest), byte(rest), byte(rest)])
}

fn fill(bytes: &mut [u8], rest: &mut &[u8]) {
    bytes.fill_with(|| byte(rest));
}
