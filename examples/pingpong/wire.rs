//! What the two sides tell each other over TCP: where their queue pairs are, as text.
//!
//! What to learn here: the text comes from a peer that may be anything. Whatever the bytes are, they
//! are an address or an error.

use rdmacm::Gid;

use crate::report::Result;

/// Bytes of a message, the zero byte at its end included.
pub const LENGTH: usize = 52;

/// A message as it is sent.
pub type Message = [u8; LENGTH];

/// What the client sends last: it is ready.
pub const DONE: [u8; 5] = *b"done\0";

/// The most that 24 bits hold: numbers of queue pairs and packets.
const MAX_24_BITS: u32 = 0xff_ffff;

/// Where a queue pair is, and which packet it begins with.
///
/// On the wire: LID, queue pair number and packet sequence number in hexadecimal, then the 32 digits
/// of the GID, with colons between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Of the port; 0 on Ethernet.
    pub lid: u16,
    /// 0 where there is no queue pair.
    pub qp_num: u32,
    pub psn: u32,
    /// All zero when the port is to be found by its LID.
    pub gid: Gid,
}

impl Address {
    /// Stands for a queue pair that is not there.
    pub const NONE: Self = Self {
        lid: 0,
        qp_num: 0,
        psn: 0,
        gid: Gid([0; 16]),
    };

    /// The message that carries it.
    pub fn encode(&self) -> Message {
        let Self {
            lid, qp_num, psn, ..
        } = self;
        let gid = u128::from_be_bytes(self.gid.0);
        let text = format!("{lid:04x}:{qp_num:06x}:{psn:06x}:{gid:032x}");
        let mut message = [0; LENGTH];
        for (byte, letter) in message.iter_mut().zip(text.bytes()) {
            *byte = letter;
        }
        message
    }

    /// Takes a message apart.
    pub fn decode(message: &Message) -> Result<Self> {
        parse(message).ok_or_else(|| {
            let text = String::from_utf8_lossy(message);
            format!("the peer sent no address but {text:?}").into()
        })
    }

    /// Whether the port is to be found by its GID. The C programs look at the lower half, too.
    pub fn has_gid(&self) -> bool {
        self.gid.0[8..].iter().any(|byte| *byte != 0)
    }
}

fn parse(message: &Message) -> Option<Address> {
    let end = message.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&message[..end]).ok()?;
    let mut fields = text.split(':');
    let address = Address {
        lid: u16::try_from(hexadecimal(fields.next()?, u16::MAX.into())?).ok()?,
        qp_num: hexadecimal(fields.next()?, MAX_24_BITS)?,
        psn: hexadecimal(fields.next()?, MAX_24_BITS)?,
        gid: gid(fields.next()?)?,
    };
    fields.next().is_none().then_some(address)
}

fn hexadecimal(field: &str, most: u32) -> Option<u32> {
    let number = u32::from_str_radix(digits(field)?, 16).ok()?;
    (number <= most).then_some(number)
}

fn gid(field: &str) -> Option<Gid> {
    let number = u128::from_str_radix(digits(field)?, 16).ok()?;
    (field.len() == 32).then_some(Gid(number.to_be_bytes()))
}

/// Digits only: the standard library would take a sign as well.
fn digits(field: &str) -> Option<&str> {
    let all = field.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then_some(field)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8; LENGTH] = b"0012:000345:00abcd:00000000000000000000ffff0a0a0001\0";

    fn message(text: &str) -> Message {
        let mut message = [0; LENGTH];
        message[..text.len()].copy_from_slice(text.as_bytes());
        message
    }

    #[test]
    fn the_text_is_that_of_the_c_programs() {
        let address = Address {
            lid: 0x12,
            qp_num: 0x345,
            psn: 0xabcd,
            gid: Gid("::ffff:10.10.0.1"
                .parse::<std::net::Ipv6Addr>()
                .unwrap()
                .octets()),
        };
        assert_eq!(&address.encode(), TEXT);
        assert_eq!(Address::decode(TEXT).unwrap(), address);
        assert!(address.has_gid());
        assert!(!Address::NONE.has_gid());
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        let gid = "0".repeat(32);
        for text in [
            String::new(),
            "done".to_owned(),
            ":::".to_owned(),
            format!("0:0:{gid}"),
            format!("0:0:0:{}", &gid[1..]),
            format!("0:0:0:0{gid}"),
            format!("0:0:0:{gid}:"),
            format!("+1:0:0:{gid}"),
            format!("-1:0:0:{gid}"),
            format!("10000:0:0:{gid}"),
            format!("0:1000000:0:{gid}"),
            format!("0:0:1000000:{gid}"),
            format!("0:0x1:0:{gid}"),
            format!(" 0:0:0:{gid}"),
            format!("0:0:0:+{}", &gid[1..]),
            format!("ä:0:0:{gid}"),
        ] {
            let error = Address::decode(&message(&text)).unwrap_err();
            assert!(error.to_string().contains("no address"), "{text}");
        }
        assert!(Address::decode(&[b'0'; LENGTH]).is_err(), "without an end");
        assert!(Address::decode(&[0xff; LENGTH]).is_err(), "not UTF-8");
    }

    proptest! {
        #[test]
        fn any_address_comes_out_as_it_went_in(
            lid: u16, qp_num in 0..=MAX_24_BITS, psn in 0..=MAX_24_BITS, gid: [u8; 16],
        ) {
            let address = Address { lid, qp_num, psn, gid: Gid(gid) };
            prop_assert_eq!(Address::decode(&address.encode()).unwrap(), address);
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), LENGTH)) {
            let _ = Address::decode(&bytes.try_into().unwrap());
        }

        #[test]
        fn a_changed_byte_is_an_address_or_an_error(at in 0..LENGTH, byte: u8) {
            let mut message = *TEXT;
            message[at] = byte;
            if let Ok(address) = Address::decode(&message) {
                prop_assert!(address.qp_num <= MAX_24_BITS && address.psn <= MAX_24_BITS);
            }
        }
    }
}
