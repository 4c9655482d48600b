//! Memory that the peer writes to beside the stream.

use std::io::{ErrorKind, Read, Write};

use rdmacm::StreamSettings;

use super::basics::{pair, pair_with};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        what_is_written_is_there_before_what_follows,
        places_are_counted_and_used_again,
        nothing_is_written_where_nothing_is_mapped,
    ]
}

fn what_is_written_is_there_before_what_follows() -> TestResult {
    let (mut owner, mut writer) = pair_with(&StreamSettings::new().mappings(4))?;
    let table = owner.map(100_000, 5000)?;
    owner.write_all(b"go")?;
    writer.read_exact(&mut [0; 2])?;
    let bytes: Vec<u8> = (0..80_000u32).map(|n| (n % 251) as u8).collect();
    let mut written = 0;
    while written < bytes.len() {
        written += writer.write_mapped(&bytes[written..], 5010 + written as u64)?;
    }
    writer.write_all(b"done")?;
    owner.read_exact(&mut [0; 4])?;
    let mut read = vec![0; bytes.len()];
    table.read(10, &mut read)?;
    assert!(read == bytes, "the bytes differ");
    let mut around = [1; 10];
    table.read(0, &mut around)?;
    assert_eq!(around, [0; 10]);
    let to_the_end = writer.write_mapped(&[1; 20], 5000 + 99_990)?;
    assert_eq!(to_the_end, 10);
    Ok(Outcome::Pass)
}

fn places_are_counted_and_used_again() -> TestResult {
    let (mut owner, mut writer) = pair_with(&StreamSettings::new().mappings(2))?;
    let _first = owner.map(10, 0)?;
    let second = owner.map(10, 100)?;
    let error = owner.map(10, 200).expect_err("there are two places");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    drop(second);
    let third = owner.map(10, 200)?;
    owner.write_all(b"go")?;
    writer.read_exact(&mut [0; 2])?;
    writer.write_mapped(b"x", 200)?;
    writer.write_all(b"y")?;
    owner.read_exact(&mut [0])?;
    let mut byte = [0];
    third.read(0, &mut byte)?;
    assert_eq!(&byte, b"x");
    Ok(Outcome::Pass)
}

fn nothing_is_written_where_nothing_is_mapped() -> TestResult {
    let (mut owner, mut writer) = pair_with(&StreamSettings::new().mappings(2))?;
    let error = writer.write_mapped(b"x", 0).expect_err("nothing is mapped");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    owner.write_all(b"still alive")?;
    writer.read_exact(&mut [0; 11])?;
    let (owner, _writer) = pair()?;
    let error = owner.map(10, 0).expect_err("the peer has no places");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    Ok(Outcome::Pass)
}
