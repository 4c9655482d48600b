//! The messages: 16 bytes that tell the peer where a buffer is, and 16 bytes that say "go on".
//!
//! What to learn here: numbers that came over the wire are the peer's claims. They are taken out
//! of the message once, checked, and only then used as lengths.

use rdmacm::RemoteAddress;

use crate::Result;

/// Bytes of every message.
pub const MESSAGE_LENGTH: usize = 16;

/// A message as it is sent.
pub type Message = [u8; MESSAGE_LENGTH];

/// The server's answer. Its content is of no meaning; that it comes is all.
pub const GO_AHEAD: Message = [0; MESSAGE_LENGTH];

/// Where a buffer of the sender is, for the receiver to read from or write to.
///
/// On the wire: the address (8 bytes), the remote key (4) and the length (4), big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advertisement {
    pub place: RemoteAddress,
    pub length: u32,
}

impl Advertisement {
    /// The message that carries it.
    pub fn encode(&self) -> Message {
        let mut message = [0; MESSAGE_LENGTH];
        message[..8].copy_from_slice(&self.place.address.to_be_bytes());
        message[8..12].copy_from_slice(&self.place.rkey.to_be_bytes());
        message[12..].copy_from_slice(&self.length.to_be_bytes());
        message
    }

    /// Takes a message apart. Any 16 bytes are an advertisement; whether its length makes sense is
    /// for [`Advertisement::length_within`] to say.
    pub fn decode(message: Message) -> Self {
        let (address, rest) = message.split_first_chunk().expect("8 of 16 bytes");
        let (rkey, rest) = rest.split_first_chunk().expect("4 of 8 bytes");
        let (length, _) = rest.split_first_chunk().expect("4 of 4 bytes");
        Self {
            place: RemoteAddress {
                address: u64::from_be_bytes(*address),
                rkey: u32::from_be_bytes(*rkey),
            },
            length: u32::from_be_bytes(*length),
        }
    }

    /// The length, when it is at least `least` and at most `most`.
    pub fn length_within(&self, least: usize, most: usize) -> Result<usize> {
        match usize::try_from(self.length) {
            Ok(length) if (least..=most).contains(&length) => Ok(length),
            _ => Err(format!(
                "the peer offers a buffer of {} bytes; {least} to {most} are of use here",
                self.length
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Advertisement = Advertisement {
        place: RemoteAddress {
            address: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
        },
        length: 0x0d0e_0f10,
    };

    #[test]
    fn the_fields_are_big_endian_and_in_order() {
        let ascending: Message = std::array::from_fn(|index| index as u8 + 1);
        assert_eq!(EXAMPLE.encode(), ascending);
        assert_eq!(Advertisement::decode(ascending), EXAMPLE);
    }

    #[test]
    fn a_length_is_used_only_when_it_fits() {
        let of_length = |length| Advertisement { length, ..EXAMPLE };
        assert_eq!(of_length(64).length_within(1, 64).unwrap(), 64);
        assert_eq!(of_length(1).length_within(1, 64).unwrap(), 1);
        assert!(of_length(0).length_within(1, 64).is_err());
        assert!(of_length(65).length_within(1, 64).is_err());
        let error = of_length(u32::MAX)
            .length_within(1, 64)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("4294967295") && error.contains("1 to 64"),
            "{error}"
        );
    }
}
