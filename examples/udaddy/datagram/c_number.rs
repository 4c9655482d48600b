//! Numbers in a command line.

/// A number as C programs take it: decimal, with `0x` hexadecimal, with `0` octal.
pub fn c_number(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') && text.len() > 1 => (&text[1..], 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(c_number("0x111"), Ok(0x111));
        assert_eq!(c_number("010"), Ok(8));
        assert_eq!(c_number("0"), Ok(0));
        assert_eq!(c_number("273"), Ok(0x111));
        for wrong in ["", "0x", "-1", "09", "0x1ffffffff", "ten"] {
            assert!(c_number(wrong).is_err(), "{wrong}");
        }
    }
}
