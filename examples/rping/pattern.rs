//! The data of a ping: a readable text that is different each time.

use std::ops::RangeInclusive;

/// The sizes that a ping can have, the zero byte at the end included.
pub const SIZES: RangeInclusive<i64> = 23..=LONGEST as i64;

/// The longest ping.
pub const LONGEST: usize = 65535;

/// The letters, and the few signs between them, that fill a ping.
const FILLING: RangeInclusive<u8> = b'A'..=b'z';

/// The text of ping number `ping`: its name, then letters up to `size`, then a zero byte. The
/// first letter moves on by one from ping to ping.
pub fn text(ping: u32, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{ping}: ").into_bytes();
    let first = ping as usize % FILLING.len();
    let room = size.saturating_sub(text.len());
    text.extend(FILLING.cycle().skip(first).take(room));
    text.truncate(size.saturating_sub(1));
    text.push(0);
    text
}

/// What comes before the zero byte; `None` when there is no such byte.
pub fn before_zero(data: &[u8]) -> Option<&[u8]> {
    let end = data.iter().position(|&byte| byte == 0)?;
    Some(&data[..end])
}

/// The text of a ping as it is printed. Whatever the peer sent, it is valid UTF-8.
pub fn printable(data: &[u8]) -> impl std::fmt::Display {
    String::from_utf8_lossy(before_zero(data).unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ping_is_that_of_the_c_program() {
        let text = text(0, 64);
        assert_eq!(text.len(), 64);
        assert_eq!(
            printable(&text).to_string(),
            "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"
        );
    }

    #[test]
    fn the_first_letter_moves_on_and_comes_back() {
        let letter = |ping| char::from(text(ping, 64)["rdma-ping-: ".len() + digits(ping)]);
        assert_eq!(
            [letter(0), letter(1), letter(57), letter(58)],
            ['A', 'B', 'z', 'A']
        );
    }

    fn digits(ping: u32) -> usize {
        ping.to_string().len()
    }

    #[test]
    fn every_size_ends_with_the_only_zero_byte() {
        for size in [23, 24, 64, 4096, LONGEST] {
            for ping in [0, 9, i32::MAX as u32] {
                let text = text(ping, size);
                assert_eq!(text.len(), size);
                assert_eq!(before_zero(&text).map(<[u8]>::len), Some(size - 1));
            }
        }
    }

    #[test]
    fn text_without_an_end_is_noticed() {
        assert_eq!(before_zero(b"abc"), None);
        assert_eq!(before_zero(b"ab\0c"), Some(&b"ab"[..]));
    }
}
