//! The golden vectors of mlx5, which were recorded from the C provider: see
//! `tests/mlx5_vectors/README.md`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde_json::Value as Json;

/// The lines of the vector file of this name.
pub(crate) fn lines(name: &str) -> Vec<Json> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx5_vectors");
    read(&folder.join(format!("{name}.jsonl.gz")))
}

fn read(path: &Path) -> Vec<Json> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    let parsed = lines.map(|line| serde_json::from_str(&line.expect("text")).expect("JSON"));
    parsed.collect()
}

/// The lines of all vector files, each by itself: of those here, then of those in the folder that the
/// environment names, if there is one.
pub(crate) fn files() -> &'static [Vec<Json>] {
    static FILES: LazyLock<Vec<Vec<Json>>> = LazyLock::new(|| {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx5_vectors");
        let other = std::env::var_os("RDMACM_MLX5_VECTORS").map(PathBuf::from);
        let folders = [Some(own), other].into_iter().flatten();
        folders.flat_map(|folder| files_of(&folder)).collect()
    });
    &FILES
}

fn files_of(folder: &Path) -> Vec<Vec<Json>> {
    let listed = fs::read_dir(folder);
    let listed = listed.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = listed
        .map(|entry| entry.expect("the folder is read").path())
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no recordings in {}", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

/// A text of hexadecimal digits; nothing where there is none.
pub(crate) fn bytes(hex: &Json) -> Vec<u8> {
    let digits = hex.as_str().unwrap_or("").as_bytes();
    let pairs = digits.chunks_exact(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    pairs.map(byte).collect()
}

/// A number; the recordings write those beyond 32 bits as text.
pub(crate) fn number(value: &Json) -> u64 {
    match value.as_str() {
        Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number"),
        None => value.as_u64().expect("a number"),
    }
}

/// The commands of a line.
pub(crate) fn commands(line: &Json) -> Vec<Json> {
    line["cmds"].as_array().expect("commands").clone()
}
