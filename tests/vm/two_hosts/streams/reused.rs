//! Memory that is changed as soon as a stream says that it was sent. Where the device, or TCP below it,
//! still reads it then, the other host gets what comes later in the place of what came first.

use std::error::Error;
use std::io::{Read, Write};
use std::time::Instant;

use rdmacm::{RdmaStream, StreamSettings};

use super::{Wire, connect};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::siw;
use crate::streams::basics::{pattern, read_pattern, write_pattern};
use crate::two_hosts::host::Host;
use crate::two_hosts::link::Link;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        registered_memory_between_hosts: 600 s,
        registered_memory_over_loss: 1200 s,
        a_small_send_buffer_between_hosts: 600 s,
        a_small_send_buffer_over_loss: 1200 s,
        mapped_memory_between_hosts: 600 s,
        mapped_memory_over_loss: 1200 s,
    ]
}

/// The peer takes much before the sender has to wait for it.
const ROOM: u32 = 1 << 20;

/// What is written out of the same memory again and again.
const PIECE: usize = 20_000;

/// Sends and receives a pattern of this length.
type Way = fn(&RdmaStream, usize) -> Result<(), Box<dyn Error>>;

/// B sends to A, over each of the wires.
fn send(test: &str, wires: &[Wire], send_buffer: u32, [send, receive]: [Way; 2]) -> TestResult {
    // rxe is slow where two hosts share a busy machine, and TCP is what may read late.
    let length = match (environment::is_full_run(), siw::is_under_test()) {
        (true, true) => 100 << 20,
        (false, false) => 1 << 20,
        _ => 8 << 20,
    };
    let settings = StreamSettings::new()
        .receive_buffer(ROOM)
        .send_buffer(send_buffer)
        .mappings(1);
    let mut link = Link::open(test)?;
    for wire in wires {
        let loss = wire.prepare()?;
        let stream = connect(&mut link, settings.clone())?;
        let start = Instant::now();
        match Host::own() {
            Host::A => receive(&stream, length)?,
            Host::B => send(&stream, length)?,
        }
        println!("{test}, {wire:?}: {length} bytes in {:?}", start.elapsed());
        link.meet("all has come")?;
        drop(stream);
        link.meet("closed")?;
        drop(loss);
    }
    Ok(Outcome::Pass)
}

const LOSSES: [Wire; 2] = [Wire::Losing(2), Wire::Losing(5)];

fn registered_memory_between_hosts() -> TestResult {
    registered_memory(&[Wire::Good])
}

fn registered_memory_over_loss() -> TestResult {
    registered_memory(&LOSSES)
}

fn registered_memory(wires: &[Wire]) -> TestResult {
    send("registered memory", wires, ROOM, [send_registered, receive])
}

fn send_registered(stream: &RdmaStream, length: usize) -> Result<(), Box<dyn Error>> {
    let mut buffer = stream.register(PIECE)?;
    for at in (0..length).step_by(PIECE) {
        let bytes = pattern(at, PIECE.min(length - at));
        buffer.as_mut_slice()?[..bytes.len()].copy_from_slice(&bytes);
        stream.write_all_registered(&buffer, ..bytes.len())?;
    }
    Ok(())
}

fn receive(stream: &RdmaStream, length: usize) -> Result<(), Box<dyn Error>> {
    Ok(read_pattern(stream, length)?)
}

fn a_small_send_buffer_between_hosts() -> TestResult {
    small_send_buffer(&[Wire::Good])
}

fn a_small_send_buffer_over_loss() -> TestResult {
    small_send_buffer(&LOSSES)
}

fn small_send_buffer(wires: &[Wire]) -> TestResult {
    let send_all: Way = |stream, length| Ok(write_pattern(stream, length, PIECE)?);
    send(
        "small send buffer",
        wires,
        PIECE as u32,
        [send_all, receive],
    )
}

fn mapped_memory_between_hosts() -> TestResult {
    mapped_memory(&[Wire::Good])
}

fn mapped_memory_over_loss() -> TestResult {
    mapped_memory(&LOSSES)
}

fn mapped_memory(wires: &[Wire]) -> TestResult {
    send("mapped memory", wires, 2 * PIECE as u32, [fill, look])
}

/// Fills memory of the peer's, each time that it is ready, and says so.
fn fill(mut stream: &RdmaStream, length: usize) -> Result<(), Box<dyn Error>> {
    for round in 0..length / ROOM as usize {
        stream.read_exact(&mut [0])?;
        let bytes = pattern(round, ROOM as usize);
        let mut written = 0;
        while written < bytes.len() {
            // So little that not each piece asks for a completion of its own accord.
            let piece = &bytes[written..bytes.len().min(written + PIECE / 4)];
            written += stream.write_mapped(piece, written as u64)?;
        }
        stream.write_all(b"f")?;
    }
    Ok(())
}

fn look(mut stream: &RdmaStream, length: usize) -> Result<(), Box<dyn Error>> {
    let memory = stream.map(ROOM, 0)?;
    let mut bytes = vec![0; ROOM as usize];
    for round in 0..length / ROOM as usize {
        stream.write_all(b"r")?;
        stream.read_exact(&mut [0])?;
        memory.read(0, &mut bytes)?;
        let expected = pattern(round, bytes.len());
        let wrong = bytes.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!(wrong, 0, "bytes that are wrong in round {round}");
    }
    Ok(())
}
