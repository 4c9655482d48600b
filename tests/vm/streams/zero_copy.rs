//! Reading where the peer wrote, and writing out of registered memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{Lent, RdmaStream, RegisteredBuffer, StreamSettings};

use super::basics::{carry, pair, pair_with, pattern};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        registered_memory_goes_around_both_rings: 60 s,
        registered_and_copied_bytes_keep_their_order,
        what_is_lent_stays_while_the_peer_sends_more,
        what_is_not_consumed_is_lent_again,
        nobody_else_reads_what_is_lent,
        an_event_loop_hears_of_what_was_lent,
        the_end_lends_nothing,
        the_kernel_writes_what_is_lent_to_a_file,
        memory_that_is_sent_cannot_be_changed,
        memory_that_is_dropped_is_sent,
        an_event_loop_hears_that_memory_was_sent,
        an_event_loop_with_two_buffers_hears_of_both,
        memory_that_was_dropped_keeps_no_event_loop_busy,
        memory_of_one_stream_goes_out_by_another,
        ranges_beyond_the_memory_are_refused,
    ]
}

/// A small ring, so that it is gone around often.
fn small() -> StreamSettings {
    StreamSettings::new().receive_buffer(10_000)
}

/// A copy of what is lent. The peer is this process.
fn copied(lent: &Lent<'_>) -> Vec<u8> {
    let mut bytes = vec![0; lent.len() + 7];
    let count = lent.copy_to(&mut bytes);
    assert_eq!(count, lent.len());
    bytes.truncate(count);
    // SAFETY: the peer's end of the stream is this library's, which keeps to the protocol.
    let slice = unsafe { lent.as_slice() };
    assert!(slice == bytes, "the slice and the copy differ");
    bytes
}

/// Reads a pattern without copies, in steps of at most so many bytes.
fn receive_lent(from: &RdmaStream, length: usize, step: usize) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let mut lent = from.lend()?;
        assert!(!lent.is_empty(), "the end after {at} bytes");
        while !lent.is_empty() {
            let bytes = copied(&lent);
            assert!(bytes == pattern(at, bytes.len()), "from byte {at} on");
            let count = step.min(bytes.len());
            lent.consume(step);
            assert_eq!(lent.len(), bytes.len() - count);
            at += count;
        }
    }
    assert_eq!(at, length);
    Ok(())
}

fn registered_memory_goes_around_both_rings() -> TestResult {
    const LENGTH: usize = 300_001;
    for (settings, step) in [(small(), 1777), (StreamSettings::new(), 1 << 20)] {
        let (active, passive) = pair_with(&settings)?;
        for (from, to) in [(&active, &passive), (&passive, &active)] {
            thread::scope(|scope| {
                let writer = scope.spawn(move || {
                    let mut buffer = from.register(LENGTH)?;
                    assert!(buffer.iter().all(|byte| *byte == 0), "zeroed at first");
                    buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
                    from.write_all_registered(&buffer, ..100_000)?;
                    from.write_all_registered(&buffer, 100_000..100_001)?;
                    from.write_all_registered(&buffer, 100_001..)?;
                    assert!(!buffer.is_busy());
                    io::Result::Ok(())
                });
                receive_lent(to, LENGTH, step)?;
                writer.join().expect("no panic")
            })?;
        }
        // What follows is as usual.
        carry(&active, &passive, 50_000, 3_000)?;
    }
    Ok(Outcome::Pass)
}

fn registered_and_copied_bytes_keep_their_order() -> TestResult {
    const LENGTH: usize = 200_000;
    let (active, passive) = pair_with(&small())?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut buffer = active.register(LENGTH)?;
            buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
            let mut at = 0;
            // Inline, copied, and neither.
            for (turn, size) in [10, 3000, 5000].into_iter().cycle().enumerate() {
                let end = LENGTH.min(at + size);
                match turn % 3 {
                    2 => active.write_all_registered(&buffer, at..end)?,
                    _ => (&active).write_all(&buffer[at..end])?,
                }
                at = end;
                if at == LENGTH {
                    return io::Result::Ok(());
                }
            }
            Ok(())
        });
        let (mut bytes, mut at) = (vec![0; 4096], 0);
        while at < LENGTH {
            let count = (&passive).read(&mut bytes)?;
            assert!(bytes[..count] == pattern(at, count), "from byte {at} on");
            at += count;
        }
        writer.join().expect("no panic")
    })?;
    Ok(Outcome::Pass)
}

/// The peer sends for as long as there is room: nothing of it lands in what is lent.
fn what_is_lent_stays_while_the_peer_sends_more() -> TestResult {
    const MOST: usize = 100_000;
    let (active, passive) = pair_with(&small())?;
    active.set_nonblocking(true)?;
    let fill = |mut at: usize| -> io::Result<usize> {
        let mut misses = 0;
        while at < MOST && misses < 20 {
            let end = MOST.min(at + 700);
            match (&active).write(&pattern(at, end - at)) {
                Ok(count) => {
                    at += count;
                    misses = 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    misses += 1;
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    };
    let (mut sent, mut read) = (fill(0)?, 0);
    assert!((4_000..40_000).contains(&sent), "{sent} bytes found room");
    let mut rounds = 0;
    while read < MOST {
        let mut lent = passive.lend()?;
        let before = copied(&lent);
        assert!(before == pattern(read, before.len()), "from byte {read} on");
        sent = fill(sent)?;
        thread::sleep(Duration::from_millis(20));
        assert!(copied(&lent) == before, "the peer wrote over what is lent");
        // A part of it is still lent when the peer gets room for the rest.
        let half = lent.len() / 2;
        lent.consume(half);
        read += half;
        sent = fill(sent)?;
        assert!(copied(&lent) == before[half..], "the rest is another");
        read += lent.len();
        lent.consume(usize::MAX);
        assert!(lent.is_empty());
        drop(lent);
        sent = fill(sent)?;
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds} rounds");
    Ok(Outcome::Pass)
}

fn what_is_not_consumed_is_lent_again() -> TestResult {
    let (active, passive) = pair()?;
    (&active).write_all(b"hello")?;
    let mut lent = passive.lend()?;
    assert_eq!(copied(&lent), b"hello");
    lent.consume(1);
    assert_eq!(copied(&lent), b"ello");
    drop(lent);
    let lent = passive.lend()?;
    assert_eq!(copied(&lent), b"ello");
    drop(lent);
    let mut bytes = [0; 4];
    assert_eq!((&passive).read(&mut bytes)?, 4);
    assert_eq!(&bytes, b"ello");
    Ok(Outcome::Pass)
}

/// Another handle waits until all is back, whether it reads, peeks or borrows itself.
fn nobody_else_reads_what_is_lent() -> TestResult {
    type Read = fn(&RdmaStream) -> io::Result<Vec<u8>>;
    let reads: [Read; 3] = [
        |mut stream| {
            let mut bytes = vec![0; 100];
            let count = stream.read(&mut bytes)?;
            bytes.truncate(count);
            Ok(bytes)
        },
        |stream| {
            let mut bytes = vec![0; 100];
            let count = stream.peek(&mut bytes)?;
            bytes.truncate(count);
            Ok(bytes)
        },
        |stream| Ok(copied(&stream.lend()?)),
    ];
    for read in reads {
        let (active, passive) = pair()?;
        (&active).write_all(b"first")?;
        let mut lent = passive.lend()?;
        assert_eq!(lent.len(), 5);
        (&active).write_all(b"second")?;
        let other = passive.try_clone()?;
        let (done, is_done) = mpsc::channel();
        let reader = thread::spawn(move || done.send(read(&other)));
        let early = is_done.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "it read {early:?}");
        passive.set_nonblocking(true)?;
        let error = read(&passive).expect_err("it is lent");
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        assert!(!passive.ready()?.readable);
        passive.set_nonblocking(false)?;
        assert_eq!(copied(&lent), b"first");
        lent.consume(3);
        drop(lent);
        let bytes = is_done.recv_timeout(Duration::from_secs(5))??;
        assert!(
            b"stsecond".starts_with(&bytes) && bytes.len() > 1,
            "{bytes:?}"
        );
        reader.join().expect("no panic")?;
    }
    // One that ends reading ends the waiting.
    let (active, passive) = pair()?;
    (&active).write_all(b"first")?;
    let lent = passive.lend()?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| (&passive).read(&mut [0; 10]));
        thread::sleep(Duration::from_millis(50));
        passive.shutdown(Shutdown::Read)?;
        assert_eq!(reader.join().expect("no panic")?, 0);
        io::Result::Ok(())
    })?;
    assert_eq!(copied(&lent), b"first");
    Ok(Outcome::Pass)
}

fn is_readable(stream: &RdmaStream, timeout: u16) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::from(timeout))? > 0)
}

fn an_event_loop_hears_of_what_was_lent() -> TestResult {
    let (active, passive) = pair()?;
    let other = passive.try_clone()?;
    (&active).write_all(b"hello")?;
    let lent = passive.lend()?;
    other.set_nonblocking(true)?;
    for _ in 0..2 {
        let error = (&other).read(&mut [0; 10]).expect_err("it is lent");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    assert!(!is_readable(&other, 50)?, "there is nothing to do");
    drop(lent);
    assert!(is_readable(&other, 5000)?);
    assert_eq!((&other).read(&mut [0; 10])?, 5);
    Ok(Outcome::Pass)
}

fn the_end_lends_nothing() -> TestResult {
    let (active, passive) = pair()?;
    (&active).write_all(b"last")?;
    drop(active);
    let mut lent = passive.lend()?;
    assert_eq!(copied(&lent), b"last");
    lent.consume(4);
    drop(lent);
    for _ in 0..2 {
        let mut lent = passive.lend()?;
        assert!(lent.is_empty());
        lent.consume(1);
        assert_eq!(copied(&lent), b"");
        // The end is nobody's alone.
        assert_eq!((&passive).read(&mut [0])?, 0);
    }
    let (active, passive) = pair()?;
    passive.set_read_timeout(Some(Duration::from_millis(50)))?;
    let error = passive.lend().expect_err("nothing came");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(active);
    Ok(Outcome::Pass)
}

fn the_kernel_writes_what_is_lent_to_a_file() -> TestResult {
    const LENGTH: usize = 100_000;
    let (active, passive) = pair_with(&small())?;
    let path = std::env::temp_dir().join("lent");
    let file = File::create(&path)?;
    thread::scope(|scope| {
        scope.spawn(|| (&active).write_all(&pattern(0, LENGTH)));
        let mut at = 0;
        while at < LENGTH {
            let mut lent = passive.lend()?;
            let written = lent.write_to(&file)?;
            assert!(written > 0);
            lent.consume(written);
            at += written;
        }
        io::Result::Ok(())
    })?;
    let bytes = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    assert!(bytes == pattern(0, LENGTH), "the file is another");
    (&active).write_all(b"x")?;
    let error = passive.lend()?.write_to(File::open("/dev/null")?);
    assert_eq!(
        error.expect_err("not for writing").raw_os_error(),
        Some(nix::libc::EBADF)
    );
    Ok(Outcome::Pass)
}

fn memory_that_is_sent_cannot_be_changed() -> TestResult {
    let (active, passive) = pair()?;
    let mut buffer = active.register(50_000)?;
    buffer.as_mut_slice()?.copy_from_slice(&pattern(0, 50_000));
    active.wait_sent(&buffer)?;
    assert_eq!(active.write_registered(&buffer, ..0)?, 0);
    assert!(!buffer.is_busy(), "nothing was sent");
    let mut written = 0;
    while written < buffer.len() {
        written += active.write_registered(&buffer, written..)?;
        // Only calls of the stream find out that it was sent.
        assert!(buffer.is_busy());
        let error = buffer.as_mut_slice().expect_err("it is sent");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        assert!(buffer[..] == pattern(0, 50_000), "it can be looked at");
    }
    active.wait_sent(&buffer)?;
    buffer.as_mut_slice()?.fill(1);
    let mut bytes = vec![0; 50_000];
    (&passive).read_exact(&mut bytes)?;
    assert!(bytes == pattern(0, 50_000), "the bytes differ");
    Ok(Outcome::Pass)
}

/// Writes everything, and does not wait until it was sent.
fn write_all(stream: &RdmaStream, buffer: &RegisteredBuffer) -> io::Result<()> {
    let mut written = 0;
    while written < buffer.len() {
        written += stream.write_registered(buffer, written..)?;
    }
    Ok(())
}

/// The memory goes when the device has read it, and other memory takes its place then.
fn memory_that_is_dropped_is_sent() -> TestResult {
    const PIECE: usize = 20_000;
    let (active, passive) = pair()?;
    for round in 0..30 {
        let mut buffer = active.register(PIECE)?;
        buffer
            .as_mut_slice()?
            .copy_from_slice(&pattern(round * PIECE, PIECE));
        write_all(&active, &buffer)?;
        drop(buffer);
        let mut other = active.register(PIECE)?;
        other.as_mut_slice()?.fill(0xee);
        let mut bytes = vec![0; PIECE];
        (&passive).read_exact(&mut bytes)?;
        assert!(bytes == pattern(round * PIECE, PIECE), "round {round}");
    }
    // A stream that is closed sends it before.
    let buffer = active.register(PIECE)?;
    write_all(&active, &buffer)?;
    drop(buffer);
    drop(active);
    let mut rest = Vec::new();
    (&passive).read_to_end(&mut rest)?;
    assert!(rest == vec![0; PIECE], "{} bytes came", rest.len());
    Ok(Outcome::Pass)
}

fn an_event_loop_hears_that_memory_was_sent() -> TestResult {
    const LENGTH: usize = 100_000;
    let (active, passive) = pair_with(&small())?;
    let mut buffer = active.register(LENGTH)?;
    buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
    active.set_nonblocking(true)?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| receive_lent(&passive, LENGTH, usize::MAX));
        let (mut at, mut waits) = (0, 0);
        loop {
            let outcome = match at < LENGTH {
                true => active
                    .write_registered(&buffer, at..)
                    .map(|count| at += count),
                false => active.wait_sent(&buffer),
            };
            match outcome {
                Ok(()) if !buffer.is_busy() => break,
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    waits += 1;
                    assert!(is_readable(&active, 5000)?, "after {at} bytes");
                }
                Err(error) => return Err(error),
            }
        }
        assert_eq!(at, LENGTH);
        assert!(waits < 2000, "{waits} waits in vain");
        reader.join().expect("no panic")
    })?;
    buffer.as_mut_slice()?.fill(0);
    Ok(Outcome::Pass)
}

/// Whether a call was told to come again.
fn would_block<T>(outcome: io::Result<T>) -> io::Result<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// What was sent of one is told also where the other was asked for last, and a read took the sign.
fn an_event_loop_with_two_buffers_hears_of_both() -> TestResult {
    let (active, passive) = pair()?;
    active.set_nonblocking(true)?;
    let [one, other] = [active.register(100)?, active.register(100)?];
    for _ in 0..100 {
        active.write_registered(&other, ..)?;
        active.write_registered(&one, ..)?;
        while would_block(active.wait_sent(&one))? {
            would_block(active.wait_sent(&other))?;
            assert!(would_block((&active).read(&mut [0]))?);
            assert!(is_readable(&active, 5000)?, "nothing tells of it");
        }
        (&passive).read_exact(&mut [0; 200])?;
    }
    Ok(Outcome::Pass)
}

fn memory_that_was_dropped_keeps_no_event_loop_busy() -> TestResult {
    let (active, passive) = pair()?;
    active.set_nonblocking(true)?;
    for _ in 0..20 {
        let buffer = active.register(100)?;
        active.write_registered(&buffer, ..)?;
        would_block(active.wait_sent(&buffer))?;
        drop(buffer);
        (&passive).read_exact(&mut [0; 100])?;
        let start = Instant::now();
        while is_readable(&active, 50)? {
            assert!(would_block((&active).read(&mut [0]))?);
            assert!(start.elapsed() < Duration::from_secs(5), "it never rests");
        }
    }
    Ok(Outcome::Pass)
}

/// Streams of a process on a device share their protection domain.
fn memory_of_one_stream_goes_out_by_another() -> TestResult {
    let (one, one_peer) = pair()?;
    let (other, other_peer) = pair()?;
    let mut buffer = one.register(1000)?;
    buffer.as_mut_slice()?.copy_from_slice(&pattern(0, 1000));
    drop((one, one_peer));
    other.write_all_registered(&buffer, ..)?;
    receive_lent(&other_peer, 1000, 1000)?;
    buffer.as_mut_slice()?.fill(0);
    Ok(Outcome::Pass)
}

fn ranges_beyond_the_memory_are_refused() -> TestResult {
    let (active, _passive) = pair()?;
    let buffer = active.register(1000)?;
    for range in [0..1001, 1001..1001, usize::MAX - 1..usize::MAX] {
        let error = active.write_registered(&buffer, range.clone());
        let error = error.expect_err("beyond the end");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{range:?}: {error}");
    }
    let error = active.register(0).expect_err("no bytes");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    active.shutdown(Shutdown::Write)?;
    let error = active.write_registered(&buffer, ..).expect_err("it ended");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    assert!(!buffer.is_busy());
    Ok(Outcome::Pass)
}
