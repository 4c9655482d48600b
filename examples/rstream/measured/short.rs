//! Words and numbers in few letters.

/// A number of bytes, of small multiples of a unit with one decimal place, which is cut off.
pub fn size_text(size: u128) -> String {
    let (unit, letter) = match size {
        0x4000_0000.. => (1 << 30, "g"),
        0x10_0000.. => (1 << 20, "m"),
        0x400.. => (1 << 10, "k"),
        _ => (1, ""),
    };
    let (whole, tenths) = (size / unit, size % unit * 10 / unit);
    match tenths {
        1.. if whole < 10 => format!("{whole}.{tenths}{letter}"),
        _ => format!("{whole}{letter}"),
    }
}

/// A number of transfers, in units that are cut off.
pub fn count_text(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{}b", count / 1_000_000_000),
        1_000_000.. => format!("{}m", count / 1_000_000),
        1000.. => format!("{}k", count / 1000),
        _ => count.to_string(),
    }
}

/// Of several things the one that a text names: by its letter, or by its word, of which the case does not
/// count, nor what follows it.
pub fn named<T: Copy>(names: &[(&str, &str, T)], text: &str) -> Option<T> {
    let mut names = names.iter();
    names
        .find(|(letter, word, _)| text == *letter || has_prefix(text, word))
        .map(|(_, _, thing)| *thing)
}

/// Whether a text begins with a word, in any case.
pub fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let expected = [
            (64, "64"),
            (1000, "1000"),
            (1024, "1k"),
            (1535, "1.4k"),
            (1536, "1.5k"),
            (10 * 1024 + 1000, "10k"),
            (2_000_000, "1.9m"),
            (64 << 20, "64m"),
            (3 << 29, "1.5g"),
            (12_800_000_000, "11g"),
        ];
        for (size, text) in expected {
            assert_eq!(size_text(size), text);
        }
    }

    #[test]
    fn counts_are_cut_off() {
        let counts = [999, 1999, 10_000, 2_500_000, 2_000_000_000].map(count_text);
        assert_eq!(counts, ["999", "1k", "10k", "2m", "2b"]);
    }

    #[test]
    fn letters_and_beginnings_of_words_name_things() {
        let names = [("s", "socket", 1), ("a", "async", 2)];
        let found = ["s", "sockets", "ASYNC", "S", "sock", "", "x"].map(|text| named(&names, text));
        assert_eq!(found, [Some(1), Some(1), Some(2), None, None, None, None]);
    }
}
