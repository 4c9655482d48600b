//! What the two sides of a stream tell each other, in bytes.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Violation;

/// The one version of the protocol that there is.
const VERSION: u8 = 1;

/// Places for what the peer says about this side's room: the next one to write to, and the one after.
pub(crate) const SLOTS: u32 = 2;

/// Bytes of a slot.
pub(crate) const SLOT_LENGTH: usize = 16;

/// Bytes of an entry of the table of mapped memory.
pub(crate) const MAPPING_LENGTH: usize = 24;

/// Bytes of the private data that a connection begins with.
pub(crate) const HELLO_LENGTH: usize = size_of::<RawHello>();

/// Memory that the peer may write to, or this side may write to at the peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub address: u64,
    pub rkey: u32,
    /// In bytes, or in slots.
    pub length: u32,
}

/// What each side says when the connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Whether what is written into this side's slots has to be big-endian.
    pub is_big_endian: bool,
    /// How many messages the peer may send at first.
    pub credits: u16,
    /// Places in the table of mapped memory, behind the slots.
    pub mappings: u16,
    /// Where the peer says where this side may write; the length is in slots.
    pub slots: Place,
    /// The first memory to write to.
    pub buffer: Place,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    version: u8,
    flags: u8,
    credits: U16,
    reserved: [u8; 3],
    mappings: u8,
    slots: RawPlace,
    buffer: RawPlace,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPlace {
    address: U64,
    rkey: U32,
    length: U32,
}

const _: () = {
    assert!(size_of::<RawHello>() == 40);
    assert!(offset_of!(RawHello, credits) == 2);
    assert!(offset_of!(RawHello, mappings) == 7);
    assert!(offset_of!(RawHello, slots) == 8);
    assert!(offset_of!(RawHello, buffer) == 24);
    assert!(size_of::<RawPlace>() == 16);
};

/// Flags of [`RawHello`].
mod flag {
    pub(super) const BIG_ENDIAN: u8 = 1;
    pub(super) const MAPPINGS: u8 = 2;
}

impl Hello {
    pub(crate) fn to_bytes(self) -> [u8; HELLO_LENGTH] {
        let raw = RawHello {
            version: VERSION,
            flags: flag::MAPPINGS
                | if self.is_big_endian {
                    flag::BIG_ENDIAN
                } else {
                    0
                },
            credits: self.credits.into(),
            reserved: [0; 3],
            mappings: encode_count(self.mappings),
            slots: RawPlace::new(self.slots),
            buffer: RawPlace::new(self.buffer),
        };
        zerocopy::transmute!(raw)
    }

    /// # Errors
    ///
    /// Too few bytes, another version, and what would let this side never send or write anywhere.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Violation> {
        let (raw, _) = RawHello::ref_from_prefix(bytes).map_err(|_| Violation::ShortHello)?;
        if raw.version != VERSION {
            return Err(Violation::Version(raw.version));
        }
        let hello = Self {
            is_big_endian: raw.flags & flag::BIG_ENDIAN != 0,
            credits: raw.credits.get(),
            mappings: match raw.flags & flag::MAPPINGS {
                0 => 0,
                _ => decode_count(raw.mappings),
            },
            slots: raw.slots.get(),
            buffer: raw.buffer.get(),
        };
        match hello.credits > 0 && hello.slots.length > 0 && hello.buffer.length > 0 {
            true => Ok(hello),
            false => Err(Violation::NoRoom),
        }
    }
}

impl RawPlace {
    fn new(place: Place) -> Self {
        Self {
            address: place.address.into(),
            rkey: place.rkey.into(),
            length: place.length.into(),
        }
    }

    fn get(&self) -> Place {
        Place {
            address: self.address.get(),
            rkey: self.rkey.get(),
            length: self.length.get(),
        }
    }
}

/// Memory that a side has mapped for the other to write to, at an offset that the two have agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub offset: u64,
    pub place: Place,
}

/// Numbers in the order of the machine that they are written to.
struct Order {
    is_big_endian: bool,
}

impl Order {
    fn long(&self, number: u64) -> [u8; 8] {
        match self.is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        }
    }

    fn word(&self, number: u32) -> [u8; 4] {
        match self.is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        }
    }
}

impl Place {
    /// The bytes of a slot, in the order of the machine that they are written to.
    pub(crate) fn to_slot(self, is_big_endian: bool) -> [u8; SLOT_LENGTH] {
        let order = Order { is_big_endian };
        let numbers = (
            order.long(self.address),
            order.word(self.rkey),
            order.word(self.length),
        );
        let mut bytes = [0; SLOT_LENGTH];
        bytes[..8].copy_from_slice(&numbers.0);
        bytes[8..12].copy_from_slice(&numbers.1);
        bytes[12..].copy_from_slice(&numbers.2);
        bytes
    }

    /// What the peer wrote into a slot of this machine's.
    pub(crate) fn from_slot(bytes: [u8; SLOT_LENGTH]) -> Self {
        let [a, b, c, d]: [[u8; 4]; 4] = zerocopy::transmute!(bytes);
        Self {
            address: u64::from_ne_bytes(zerocopy::transmute!([a, b])),
            rkey: u32::from_ne_bytes(c),
            length: u32::from_ne_bytes(d),
        }
    }
}

impl Mapping {
    /// The bytes of an entry of the table, in the order of the machine that they are written to.
    pub(crate) fn to_entry(self, is_big_endian: bool) -> [u8; MAPPING_LENGTH] {
        let mut bytes = [0; MAPPING_LENGTH];
        bytes[..8].copy_from_slice(&Order { is_big_endian }.long(self.offset));
        bytes[8..].copy_from_slice(&self.place.to_slot(is_big_endian));
        bytes
    }

    /// What the peer wrote into an entry of this machine's.
    pub(crate) fn from_entry(bytes: [u8; MAPPING_LENGTH]) -> Self {
        let [a, b, c, d, e, f]: [[u8; 4]; 6] = zerocopy::transmute!(bytes);
        Self {
            offset: u64::from_ne_bytes(zerocopy::transmute!([a, b])),
            place: Place::from_slot(zerocopy::transmute!([c, d, e, f])),
        }
    }

    /// Where an offset leads, and how many bytes there are from there on. None where it is not of this
    /// mapping, or the mapping makes no sense.
    pub(crate) fn at(&self, offset: u64) -> Option<Place> {
        let within = offset.checked_sub(self.offset)?;
        let rest = u64::from(self.place.length).checked_sub(within)?;
        (rest > 0).then(|| Place {
            address: self.place.address.wrapping_add(within),
            length: rest as u32,
            ..self.place
        })
    }
}

/// The scale of a count of mappings that has one byte: 0 to 128, then in steps of 256.
pub(crate) fn encode_count(count: u16) -> u8 {
    match count {
        0..=128 => count as u8,
        _ => 128 | (count >> 8).min(127) as u8,
    }
}

/// The count that a byte stands for.
pub(crate) fn decode_count(byte: u8) -> u16 {
    match byte {
        0..=128 => byte.into(),
        _ => u16::from(byte & 127) << 8,
    }
}

/// The nearest count, downwards, that the peer can be told.
pub(crate) fn scaled(count: u16) -> u16 {
    decode_count(encode_count(count))
}

/// One message, 32 bits long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// So many bytes were written where this side may write next.
    Data(u32),
    /// The peer may send messages up to this number, and has perhaps filled a slot. Of the 29 bits
    /// 16 count.
    Credit(u16),
    /// An entry of the table of mapped memory was written.
    Mapping(u32),
    /// The peer writes no more, and has read all it wants.
    Disconnect,
    /// The peer writes no more.
    Shutdown,
    /// Anything else.
    Unknown(u32),
}

/// What a message is: its upper three bits.
mod operation {
    pub(super) const DATA: u32 = 0;
    pub(super) const SLOT: u32 = 4;
    pub(super) const MAPPING: u32 = 6;
    pub(super) const CONTROL: u32 = 7;
}

/// The other bits of a control message.
mod control {
    pub(super) const DISCONNECT: u32 = 0;
    pub(super) const SHUTDOWN: u32 = 2;
}

const DATA_BITS: u32 = 29;

/// The longest message of data: what 29 bits can say.
#[cfg(test)]
pub(crate) const LONGEST: u32 = (1 << DATA_BITS) - 1;

impl Message {
    pub(crate) fn to_bits(self) -> u32 {
        let (operation, data) = match self {
            Self::Data(length) => (operation::DATA, length),
            Self::Credit(limit) => (operation::SLOT, limit.into()),
            Self::Mapping(index) => (operation::MAPPING, index),
            Self::Disconnect => (operation::CONTROL, control::DISCONNECT),
            Self::Shutdown => (operation::CONTROL, control::SHUTDOWN),
            Self::Unknown(bits) => return bits,
        };
        operation << DATA_BITS | data
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        let data = bits & ((1 << DATA_BITS) - 1);
        match (bits >> DATA_BITS, data) {
            (operation::DATA, length) => Self::Data(length),
            (operation::SLOT, limit) => Self::Credit(limit as u16),
            (operation::MAPPING, index) => Self::Mapping(index),
            (operation::CONTROL, control::DISCONNECT) => Self::Disconnect,
            (operation::CONTROL, control::SHUTDOWN) => Self::Shutdown,
            _ => Self::Unknown(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            is_big_endian: false,
            credits: 384,
            mappings: 0,
            slots: Place {
                address: 0x0102_0304_0506_0708,
                rkey: 0x1112_1314,
                length: 2,
            },
            buffer: Place {
                address: 0x2122_2324_2526_2728,
                rkey: 0x3132_3334,
                length: 65536,
            },
        }
    }

    #[test]
    fn a_hello_has_the_bytes_that_the_c_library_sends() {
        let expected = [
            1, 2, 0x01, 0x80, 0, 0, 0, 0, // version, flags, credits, mappings
            1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2, // slots
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0,
        ];
        assert_eq!(hello().to_bytes(), expected);
        let big = Hello {
            is_big_endian: true,
            mappings: 1000,
            ..hello()
        };
        assert_eq!(big.to_bytes()[..8], [1, 3, 0x01, 0x80, 0, 0, 0, 131]);
    }

    #[test]
    fn what_was_sent_is_read_with_padding_behind_it() {
        let mut bytes = [0; 56];
        bytes[..40].copy_from_slice(&hello().to_bytes());
        assert_eq!(Hello::from_bytes(&bytes), Ok(hello()));
        assert_eq!(Hello::from_bytes(&bytes[..39]), Err(Violation::ShortHello));
        bytes[0] = 2;
        assert_eq!(Hello::from_bytes(&bytes), Err(Violation::Version(2)));
    }

    #[test]
    fn a_hello_without_room_is_refused() {
        for (at, length) in [(2, 2), (20, 4), (36, 4)] {
            let mut bytes = hello().to_bytes();
            bytes[at..at + length].fill(0);
            assert_eq!(Hello::from_bytes(&bytes), Err(Violation::NoRoom), "{at}");
        }
    }

    #[test]
    fn counts_of_mappings_have_the_scale_of_the_c_library() {
        for (count, byte, back) in [
            (0, 0, 0),
            (128, 128, 128),
            (129, 128, 128),
            (255, 128, 128),
            (256, 129, 256),
            (1000, 131, 768),
            (32512, 255, 32512),
            (u16::MAX, 255, 32512),
        ] {
            assert_eq!(encode_count(count), byte, "{count}");
            assert_eq!(decode_count(byte), back, "{byte}");
        }
    }

    #[test]
    fn messages_have_their_numbers() {
        for (message, bits) in [
            (Message::Data(LONGEST), 0x1fff_ffff),
            (Message::Credit(0xfffe), 0x8000_fffe),
            (Message::Mapping(7), 0xc000_0007),
            (Message::Disconnect, 0xe000_0000),
            (Message::Shutdown, 0xe000_0002),
            (Message::Unknown(0x2000_0001), 0x2000_0001),
            (Message::Unknown(0xe000_0001), 0xe000_0001),
        ] {
            assert_eq!(message.to_bits(), bits);
            assert_eq!(Message::from_bits(bits), message);
        }
        assert_eq!(Message::from_bits(0x9234_5678), Message::Credit(0x5678));
    }

    #[test]
    fn a_mapping_is_found_by_its_offsets() {
        let mapping = Mapping {
            offset: 1000,
            place: hello().buffer,
        };
        let entry = mapping.to_entry(cfg!(target_endian = "big"));
        assert_eq!(Mapping::from_entry(entry), mapping);
        assert_eq!(mapping.to_entry(true)[..8], [0, 0, 0, 0, 0, 0, 0x03, 0xe8]);
        assert_eq!(mapping.at(999), None);
        assert_eq!(mapping.at(1000), Some(hello().buffer));
        let last = mapping.at(1000 + 65535).unwrap();
        assert_eq!(
            (last.address, last.length),
            (0x2122_2324_2526_2728 + 65535, 1)
        );
        assert_eq!(mapping.at(1000 + 65536), None);
        assert_eq!(Mapping::default().at(0), None, "an empty entry");
        let absurd = Mapping {
            offset: u64::MAX - 1,
            place: hello().buffer,
        };
        assert_eq!(absurd.at(u64::MAX).unwrap().length, 65535);
    }

    #[test]
    fn a_slot_is_in_the_order_of_its_owner() {
        let place = hello().buffer;
        let is_own_order = cfg!(target_endian = "big");
        assert_eq!(Place::from_slot(place.to_slot(is_own_order)), place);
        let big = [
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0,
        ];
        assert_eq!(place.to_slot(true), big);
        assert_eq!(
            place.to_slot(false)[..8],
            [0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]
        );
    }
}
