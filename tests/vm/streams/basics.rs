//! Streams between threads of one process.

use std::error::Error;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{RdmaListener, RdmaStream, StreamSettings};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_message_and_its_answer,
        a_megabyte_each_way_at_once,
        small_buffers_and_queues_carry_everything,
        slices_are_one_after_the_other,
        what_is_peeked_is_still_there,
        one_thread_connects_to_itself,
        a_descriptor_tells_of_what_can_be_done,
        an_event_loop_rests_after_a_write_that_had_to_wait,
        a_read_that_takes_too_long_ends,
    ]
}

/// A listener on a free port.
pub fn listen(settings: &StreamSettings) -> io::Result<(RdmaListener, SocketAddr)> {
    let listener = RdmaListener::bind_with((environment::addr(), 0), settings)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Two ends of a stream, the connecting one first.
pub fn pair_with(settings: &StreamSettings) -> io::Result<(RdmaStream, RdmaStream)> {
    let (listener, address) = listen(settings)?;
    let active = RdmaStream::connect_with(address, settings)?;
    let (passive, peer) = listener.accept_timeout(Duration::from_secs(10))?;
    assert_eq!(peer.ip(), environment::addr());
    assert_eq!(active.peer_addr()?, address);
    Ok((active, passive))
}

pub fn pair() -> io::Result<(RdmaStream, RdmaStream)> {
    pair_with(&StreamSettings::new())
}

/// Bytes that tell where they belong: they repeat after a prime number of bytes, so that no buffer that
/// comes twice or not at all goes unnoticed.
pub fn pattern(from: usize, length: usize) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        (0..PERIOD as u64).map(byte).collect()
    });
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let rest = &BYTES[(from + bytes.len()) % PERIOD..];
        bytes.extend_from_slice(&rest[..rest.len().min(length - bytes.len())]);
    }
    bytes
}

/// Writes a pattern and reads it at the other end.
pub fn carry(from: &RdmaStream, to: &RdmaStream, length: usize, piece: usize) -> io::Result<()> {
    thread::scope(|scope| {
        let writer = scope.spawn(move || write_pattern(from, length, piece));
        read_pattern(to, length)?;
        writer.join().expect("the writer does not panic")
    })
}

/// Writes a pattern, so many bytes at a time.
pub fn write_pattern(mut to: &RdmaStream, length: usize, piece: usize) -> io::Result<()> {
    for at in (0..length).step_by(piece) {
        to.write_all(&pattern(at, piece.min(length - at)))?;
    }
    Ok(())
}

/// Reads a pattern and compares it.
pub fn read_pattern(mut from: &RdmaStream, length: usize) -> io::Result<()> {
    let mut bytes = vec![0; 10_000];
    let mut at = 0;
    while at < length {
        let most = bytes.len().min(length - at);
        let count = from.read(&mut bytes[..most])?;
        assert!(count > 0, "the end after {at} bytes");
        assert_eq!(bytes[..count], pattern(at, count)[..], "from byte {at} on");
        at += count;
    }
    Ok(())
}

fn a_message_and_its_answer() -> TestResult {
    let (mut active, mut passive) = pair()?;
    for round in 0..100u8 {
        active.write_all(&[round; 64])?;
        let mut bytes = [0; 64];
        passive.read_exact(&mut bytes)?;
        assert_eq!(bytes, [round; 64]);
        passive.write_all(&[!round; 200])?;
        let mut bytes = [0; 200];
        active.read_exact(&mut bytes)?;
        assert_eq!(bytes, [!round; 200]);
    }
    Ok(Outcome::Pass)
}

fn a_megabyte_each_way_at_once() -> TestResult {
    let (active, passive) = pair()?;
    thread::scope(|scope| {
        let there = scope.spawn(|| carry(&active, &passive, 1 << 20, 70_000));
        let back = scope.spawn(|| carry(&passive, &active, 1 << 20, 3_000));
        there.join().expect("no panic")?;
        back.join().expect("no panic")
    })?;
    Ok(Outcome::Pass)
}

fn small_buffers_and_queues_carry_everything() -> TestResult {
    let small = StreamSettings::new()
        .receive_buffer(1000)
        .send_buffer(0)
        .send_depth(0)
        .receive_depth(0)
        .max_inline(0);
    let (active, passive) = pair_with(&small)?;
    carry(&active, &passive, 100_000, 7)?;
    carry(&passive, &active, 300_000, 50_000)?;
    Ok(Outcome::Pass)
}

fn slices_are_one_after_the_other() -> TestResult {
    let (mut active, mut passive) = pair()?;
    let slices = [
        IoSlice::new(b"one "),
        IoSlice::new(b""),
        IoSlice::new(b"two"),
    ];
    assert_eq!(active.write_vectored(&slices)?, 7);
    let (mut first, mut second) = ([0; 3], [0; 10]);
    thread::sleep(Duration::from_millis(50));
    let mut room = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(passive.read_vectored(&mut room)?, 7);
    assert_eq!((&first, &second[..4]), (b"one", &b" two"[..]));
    Ok(Outcome::Pass)
}

fn what_is_peeked_is_still_there() -> TestResult {
    let (mut active, mut passive) = pair()?;
    active.write_all(b"hello")?;
    let mut bytes = [0; 3];
    assert_eq!(passive.peek(&mut bytes)?, 3);
    assert_eq!(&bytes, b"hel");
    let mut bytes = [0; 5];
    passive.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"hello");
    Ok(Outcome::Pass)
}

fn one_thread_connects_to_itself() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(RdmaStream::connect(address)?);
    }
    for mut stream in streams {
        let (mut accepted, _) = listener.accept()?;
        stream.write_all(b"x")?;
        accepted.read_exact(&mut [0])?;
    }
    Ok(Outcome::Pass)
}

/// Waits for the descriptor of a stream. False when it takes too long.
fn is_readable(stream: &RdmaStream, patience: u16) -> nix::Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::from(patience))? > 0)
}

/// Finds nothing to read as often as the descriptor is readable, which ends soon.
fn rest(mut stream: &RdmaStream) -> Result<(), Box<dyn Error>> {
    for _ in 0..10 {
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return Err(format!("{other:?} instead of WouldBlock").into()),
        }
        if !is_readable(stream, 100)? {
            return Ok(());
        }
    }
    Err("the descriptor stays readable".into())
}

/// Writes without waiting until nothing fits any more; returns how much did.
fn fill(mut active: &RdmaStream) -> Result<usize, Box<dyn Error>> {
    let mut written = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        match active.write(&[1; 50_000]) {
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock && !is_readable(active, 300)? => {
                break;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    assert!(written > 100_000, "{written} bytes");
    Ok(written)
}

fn a_descriptor_tells_of_what_can_be_done() -> TestResult {
    let (mut active, mut passive) = pair()?;
    active.set_nonblocking(true)?;
    passive.set_nonblocking(true)?;
    rest(&passive)?;
    active.write_all(b"ab")?;
    assert!(is_readable(&passive, 5000)?);
    assert_eq!(passive.read(&mut [0])?, 1);
    assert!(is_readable(&passive, 0)?, "one byte is left");
    assert_eq!(passive.read(&mut [0; 4])?, 1);
    rest(&passive)?;
    let written = fill(&active)?;
    let mut read = 0;
    let mut bytes = vec![0; 1 << 16];
    while read < written {
        match passive.read(&mut bytes) {
            Ok(length) => read += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(
                    is_readable(&passive, 5000)?,
                    "{read} of {written} bytes came"
                );
            }
            Err(error) => return Err(error.into()),
        }
    }
    assert!(is_readable(&active, 5000)?, "there is room again");
    assert!(active.write(b"more")? > 0);
    Ok(Outcome::Pass)
}

/// The call that reads finds the room, so that the one that writes has nothing to wait for.
fn an_event_loop_rests_after_a_write_that_had_to_wait() -> TestResult {
    let (mut active, mut passive) = pair()?;
    // Over iWARP the side that accepted tells of its room only when the other has spoken.
    active.write_all(b"x")?;
    passive.read_exact(&mut [0])?;
    active.set_nonblocking(true)?;
    let written = fill(&active)?;
    passive.read_exact(&mut vec![0; written])?;
    assert!(is_readable(&active, 5000)?, "there is room again");
    let error = active.read(&mut [0]).expect_err("nothing was written");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(is_readable(&active, 0)?, "somebody waits for room");
    active.write_all(b"more")?;
    rest(&active)?;
    passive.read_exact(&mut [0; 4])?;
    Ok(Outcome::Pass)
}

fn a_read_that_takes_too_long_ends() -> TestResult {
    let (mut active, passive) = pair()?;
    active.set_read_timeout(Some(Duration::from_millis(80)))?;
    let start = Instant::now();
    let error = active.read(&mut [0]).expect_err("nothing was written");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(80) && took < Duration::from_secs(2),
        "{took:?}"
    );
    active.set_read_timeout(None)?;
    passive.shutdown(Shutdown::Write)?;
    assert_eq!(active.read(&mut [0])?, 0);
    Ok(Outcome::Pass)
}
