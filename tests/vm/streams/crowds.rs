//! Many streams, and much of everything.

use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{RdmaStream, StreamSettings};

use super::basics::{carry, listen, pair};
use crate::endurance::{go_rounds, resident_kib};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        threads_that_open_and_close: 120 s,
        many_streams_at_once: 1500 s,
        much_through_one_stream: 1500 s,
        open_and_close_again_and_again: 20000 s,
    ]
}

/// Small streams, of which many fit into a guest.
fn small() -> StreamSettings {
    StreamSettings::new()
        .receive_buffer(16 << 10)
        .send_buffer(8 << 10)
        .send_depth(16)
        .receive_depth(16)
}

/// Answers what peers send until it is told to stop; each peer has a thread of its own.
fn echo<'s>(
    scope: &'s thread::Scope<'s, '_>,
    listener: rdmacm::RdmaListener,
    stop: &'s AtomicBool,
) {
    scope.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept_timeout(Duration::from_millis(100)) else {
                continue;
            };
            scope.spawn(move || {
                let mut stream = &stream;
                let mut bytes = [0; 1000];
                while let Ok(length @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// As many threads as are allowed open streams, exchange something and close them, for a while.
fn threads_that_open_and_close() -> TestResult {
    let (listener, address) = listen(&small())?;
    let (threads, time) = match environment::is_full_run() {
        true => (64, Duration::from_secs(30)),
        false => (16, Duration::from_secs(5)),
    };
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    // What waits to be accepted when the listener goes is reset.
    let stop_listening = AtomicBool::new(false);
    thread::scope(|scope| {
        echo(scope, listener, &stop_listening);
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let settings = small().connect_timeout(Duration::from_secs(60));
                        let mut stream = RdmaStream::connect_with(address, &settings)?;
                        stream.set_keepalive(Some(Duration::from_secs(1)))?;
                        stream.write_all(&[5; 100])?;
                        let mut bytes = [0; 100];
                        stream.read_exact(&mut bytes)?;
                        assert_eq!(bytes, [5; 100]);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let ends: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop_listening.store(true, Ordering::Relaxed);
        ends.into_iter().try_for_each(|end| end.expect("no panic"))
    })?;
    let done = done.into_inner();
    println!("{done} streams");
    assert!(done >= threads, "{done} streams");
    Ok(Outcome::Pass)
}

fn many_streams_at_once() -> TestResult {
    let (count, length) = match environment::is_full_run() {
        true => (1000, 1 << 20),
        false => (40, 1 << 16),
    };
    raise_limit_of_descriptors()?;
    // All of them fit into a guest.
    let settings = small().receive_buffer(64 << 10).send_buffer(32 << 10);
    let (listener, address) = listen(&settings)?;
    let start = Instant::now();
    let mut pairs = Vec::new();
    for number in 0..count {
        let active = RdmaStream::connect_with(address, &settings).map_err(|error| {
            let accepted = listener.accept_timeout(Duration::from_secs(1)).err();
            format!("stream {number}: {error}; the other side: {accepted:?}")
        })?;
        pairs.push((active, listener.accept()?.0));
    }
    println!("{count} streams are open after {:?}", start.elapsed());
    let before = resident_kib()?;
    for (number, (active, passive)) in (1..).zip(&pairs) {
        carry(active, passive, length, 50_000)?;
        if number % 100 == 0 {
            println!(
                "{number} streams have carried all after {:?}",
                start.elapsed()
            );
        }
    }
    assert_kept(before)?;
    Ok(Outcome::Pass)
}

/// A stream has five.
fn raise_limit_of_descriptors() -> nix::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const ENOUGH: u64 = 1 << 14;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, ENOUGH, hard.max(ENOUGH))
}

fn much_through_one_stream() -> TestResult {
    let length = match environment::is_full_run() {
        true => 1 << 30,
        false => 8 << 20,
    };
    let (active, passive) = pair()?;
    // The threads' own buffers come with the first piece.
    carry(&active, &passive, PIECE, PIECE)?;
    let before = resident_kib()?;
    carry(&active, &passive, length, PIECE)?;
    assert_kept(before)?;
    Ok(Outcome::Pass)
}

/// How much of a long transfer is written at a time.
const PIECE: usize = 1 << 18;

/// Checks that the process has not become larger by more than what its allocator keeps of the pieces.
fn assert_kept(before: u64) -> Result<(), Box<dyn Error>> {
    const SLACK_KIB: u64 = 1024;
    let now = resident_kib()?;
    println!("resident: {before} KiB -> {now} KiB");
    assert!(
        now <= before + SLACK_KIB,
        "resident memory {before} KiB -> {now} KiB"
    );
    Ok(())
}

fn open_and_close_again_and_again() -> TestResult {
    let rounds = match environment::is_full_run() {
        true => 100_000,
        false => 100,
    };
    // Listeners come and go as well, though not as often.
    let mut listener = None;
    go_rounds(rounds, |round| {
        if round.is_multiple_of(10) {
            listener = Some(listen(&small())?);
        }
        let (listener, address) = listener
            .as_ref()
            .expect("there is one since the first round");
        let mut active = RdmaStream::connect_with(*address, &small())?;
        let (mut passive, _) = listener.accept_timeout(Duration::from_secs(10))?;
        active.write_all(b"x")?;
        passive.read_exact(&mut [0])?;
        Ok(())
    })
}
