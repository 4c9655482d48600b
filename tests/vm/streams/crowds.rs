//! Many streams, and much of everything.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::{RdmaStream, StreamSettings};

use super::basics::{carry, listen, pair, pair_with};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        threads_that_open_and_close: 120 s,
        many_streams_at_once: 400 s,
        much_through_one_stream: 600 s,
        open_and_close_again_and_again: 900 s,
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
    thread::scope(|scope| {
        echo(scope, listener, &stop);
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
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let done = done.into_inner();
    assert!(done >= threads, "{done} streams");
    Ok(Outcome::Pass)
}

fn many_streams_at_once() -> TestResult {
    let (count, length) = match environment::is_full_run() {
        true => (1000, 1 << 20),
        false => (100, 1 << 16),
    };
    raise_limit_of_descriptors()?;
    let settings = small().backlog(0);
    let (listener, address) = listen(&settings)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        let active = RdmaStream::connect_with(address, &settings)?;
        pairs.push((active, listener.accept()?.0));
    }
    for (active, passive) in &pairs {
        carry(active, passive, length, 50_000)?;
    }
    Ok(Outcome::Pass)
}

fn raise_limit_of_descriptors() -> nix::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

fn much_through_one_stream() -> TestResult {
    let length = match environment::is_full_run() {
        true => 1 << 30,
        false => 16 << 20,
    };
    let (active, passive) = pair()?;
    let before = memory()?;
    carry(&active, &passive, length, 1 << 20)?;
    let grown = memory()?.saturating_sub(before);
    // What the two threads use themselves is less.
    assert!(grown < 8 << 20, "{grown} bytes more are in use");
    Ok(Outcome::Pass)
}

/// Bytes of memory that the process has in use.
fn memory() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let pages: usize = pages.ok_or_else(|| io::Error::other("no number in statm"))?;
    Ok(pages * 4096)
}

fn open_and_close_again_and_again() -> TestResult {
    let rounds = match environment::is_full_run() {
        true => 100_000,
        false => 200,
    };
    // Descriptors and kernel objects are counted around each test.
    for _ in 0..rounds {
        let (mut active, mut passive) = pair_with(&small())?;
        active.write_all(b"x")?;
        passive.read_exact(&mut [0])?;
    }
    Ok(Outcome::Pass)
}
