//! Recordings: one JSON object a line, gzip-compressed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

/// What was recorded of one run of the C provider.
pub(super) struct Recording {
    /// The file and the line, for messages.
    pub place: String,
    pub value: Value,
}

impl Recording {
    pub(super) fn file(&self) -> &str {
        self.place.split(':').next().unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        text(&self.value["kind"])
    }
}

/// The folder of the recordings that belong to the sources.
pub(super) fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx5_vectors")
}

/// The folder that the environment names, if it names one.
pub(super) fn other_folder() -> Option<PathBuf> {
    std::env::var_os("RDMACM_MLX5_VECTORS").map(PathBuf::from)
}

/// The recordings of all files of a folder.
///
/// # Panics
///
/// When the folder cannot be read or has none, and when one is damaged.
pub(super) fn all_in(folder: &Path) -> Vec<Recording> {
    let listed = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("the recordings in {}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = listed
        .map(|entry| entry.expect("the folder is read").path())
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no recordings in {}", folder.display());
    files.iter().flat_map(|file| all_of(file)).collect()
}

/// The recordings of one file.
pub(super) fn all_of(file: &Path) -> Vec<Recording> {
    let open = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = BufReader::new(GzDecoder::new(open)).lines();
    let mut recordings: Vec<Recording> = lines
        .enumerate()
        .map(|(index, line)| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("{name}:{}", index + 1);
            let line = line.unwrap_or_else(|error| panic!("{place}: {error}"));
            let value = serde_json::from_str(&line);
            Recording {
                value: value.unwrap_or_else(|error| panic!("{place}: {error}")),
                place,
            }
        })
        .collect();
    assert!(!recordings.is_empty(), "{} is empty", file.display());
    repeat_paths(&mut recordings);
    recordings
}

/// A scenario that sends datagrams and does not say where to has the paths of the one before.
fn repeat_paths(recordings: &mut [Recording]) {
    let mut last = Value::Null;
    for Recording { value, .. } in recordings {
        if !value["ah_attrs"].is_null() {
            last.clone_from(&value["ah_attrs"]);
        } else if value["qp"]["type"] == "UD" && !last.is_null() {
            value["ah_attrs"].clone_from(&last);
        }
    }
}

/// A number: plain, or in a text in base 16 where it has more than 32 bits.
pub(super) fn number(value: &Value) -> u64 {
    match value {
        Value::Bool(bool) => u64::from(*bool),
        Value::Number(number) => match number.as_u64() {
            Some(number) => number,
            None => number.as_i64().expect("a whole number") as u64,
        },
        Value::String(text) => {
            let digits = text.strip_prefix("0x").expect("a number in base 16");
            u64::from_str_radix(digits, 16).expect("a number in base 16")
        }
        other => panic!("{other} is no number"),
    }
}

/// A number of 32 bits.
pub(super) fn word(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap_or_else(|_| panic!("{value} has more than 32 bits"))
}

/// Bytes in the order of memory.
pub(super) fn bytes(value: &Value) -> Vec<u8> {
    let digits = text(value).as_bytes();
    assert!(digits.len().is_multiple_of(2), "half a byte");
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

pub(super) fn digit(character: u8) -> u8 {
    let value = char::from(character).to_digit(16);
    value.expect("a digit of base 16") as u8
}

pub(super) fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

/// A list; one that is not there is empty.
pub(super) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Null => &[],
        Value::Array(list) => list,
        other => panic!("{other} is no list"),
    }
}
