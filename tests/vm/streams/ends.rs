//! How streams end.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{Connector, RdmaStream, Settings, StreamSettings};

use super::basics::{listen, pair};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        after_a_close_reads_are_at_the_end_and_writes_fail,
        a_half_that_is_shut_down_leaves_the_other,
        what_was_written_before_a_close_arrives,
        a_refused_connection_is_told,
        a_refused_connection_is_told_without_waiting,
        shutting_down_wakes_a_reader,
        readers_and_writers_both_wake,
        peers_that_speak_something_else_are_rejected,
        beyond_the_backlog_peers_are_refused,
        shutting_down_wakes_who_polls,
        two_that_poll_both_wake,
        a_refused_connection_wakes_who_polls,
    ]
}

fn after_a_close_reads_are_at_the_end_and_writes_fail() -> TestResult {
    let (mut active, passive) = pair()?;
    drop(passive);
    let mut bytes = [0; 10];
    for _ in 0..3 {
        assert_eq!(active.read(&mut bytes)?, 0);
    }
    let error = active.write(b"late").expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    assert!(active.take_error()?.is_none(), "a close is no error");
    Ok(Outcome::Pass)
}

fn a_half_that_is_shut_down_leaves_the_other() -> TestResult {
    let (mut active, mut passive) = pair()?;
    active.write_all(b"last")?;
    active.set_nonblocking(true)?;
    active.shutdown(Shutdown::Write)?;
    let error = active.write(b"late").expect_err("writing was shut down");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let mut all = Vec::new();
    passive.read_to_end(&mut all)?;
    assert_eq!(all, b"last");
    // It does not block, as before.
    let error = active.read(&mut [0]).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    active.set_nonblocking(false)?;
    passive.write_all(b"answer")?;
    drop(passive);
    let mut all = Vec::new();
    active.read_to_end(&mut all)?;
    assert_eq!(all, b"answer");
    Ok(Outcome::Pass)
}

fn what_was_written_before_a_close_arrives() -> TestResult {
    // What the peer has room for without a call of it.
    const LENGTH: usize = 60_000;
    for round in 0..20 {
        let (mut active, mut passive) = pair()?;
        active.write_all(&vec![7; LENGTH])?;
        drop(active);
        let mut all = Vec::new();
        passive.read_to_end(&mut all)?;
        assert_eq!(all.len(), LENGTH, "round {round}");
    }
    Ok(Outcome::Pass)
}

fn a_refused_connection_is_told() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    drop(listener);
    let error = RdmaStream::connect(address).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    Ok(Outcome::Pass)
}

fn a_refused_connection_is_told_without_waiting() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    drop(listener);
    let mut stream = RdmaStream::connect_nonblocking(&address, &StreamSettings::new())?;
    let start = Instant::now();
    let error = loop {
        if let Some(error) = stream.take_error()? {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "no error");
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    assert!(stream.take_error()?.is_none(), "it is told once");
    let error = stream.read(&mut [0]).expect_err("there is no connection");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    Ok(Outcome::Pass)
}

fn shutting_down_wakes_a_reader() -> TestResult {
    let (active, _passive) = pair()?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| (&active).read(&mut [0]));
        thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        active.shutdown(Shutdown::Both)?;
        let read = reader.join().expect("no panic")?;
        assert_eq!(read, 0);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        io::Result::Ok(())
    })?;
    Ok(Outcome::Pass)
}

/// One thread waits for data, another for room.
fn readers_and_writers_both_wake() -> TestResult {
    let (active, passive) = pair()?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| (&active).read(&mut [0]));
        let writer = scope.spawn(|| (&active).write_all(&vec![1; 1_000_000]));
        thread::sleep(Duration::from_millis(300));
        assert!(!writer.is_finished() && !reader.is_finished());
        let start = Instant::now();
        (&passive).write_all(b"x")?;
        assert_eq!(reader.join().expect("no panic")?, 1);
        (&passive).read_exact(&mut vec![0; 1_000_000])?;
        writer.join().expect("no panic")?;
        assert!(start.elapsed() < Duration::from_secs(5));
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(Outcome::Pass)
}

/// Who accepts streams hears nothing of them.
fn peers_that_speak_something_else_are_rejected() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    for private_data in [&b""[..], b"\x02\x02and more", &[0xff; 50]] {
        let settings = Settings::new().private_data(private_data)?;
        let refused = Connector::new().settings(settings).connect(address);
        assert!(refused.is_err(), "{private_data:?} is no stream");
    }
    let mut stream = RdmaStream::connect(address)?;
    let (mut accepted, _) = listener.accept_timeout(Duration::from_secs(10))?;
    stream.write_all(b"x")?;
    accepted.read_exact(&mut [0])?;
    Ok(Outcome::Pass)
}

fn beyond_the_backlog_peers_are_refused() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new().backlog(2))?;
    let _waiting = [RdmaStream::connect(address)?, RdmaStream::connect(address)?];
    let error = RdmaStream::connect(address).expect_err("there is no room");
    // Over iWARP a rejection has no reason.
    let expected = match crate::siw::is_under_test() {
        true => [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset],
        false => [ErrorKind::ConnectionRefused; 2],
    };
    assert!(expected.contains(&error.kind()), "{error}");
    listener.accept()?;
    RdmaStream::connect(address)?;
    Ok(Outcome::Pass)
}

/// Waits for the descriptor; how long that took.
fn poll_for(stream: &RdmaStream, patience: u16) -> io::Result<Duration> {
    let start = Instant::now();
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(patience))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(start.elapsed()),
    }
}

fn shutting_down_wakes_who_polls() -> TestResult {
    let (active, _passive) = pair()?;
    active.set_nonblocking(true)?;
    thread::scope(|scope| {
        let poller = scope.spawn(|| {
            loop {
                match (&active).read(&mut [0]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        poll_for(&active, 5000)?;
                    }
                    other => return other,
                }
            }
        });
        thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        active.shutdown(Shutdown::Both)?;
        assert_eq!(poller.join().expect("no panic")?, 0);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        io::Result::Ok(())
    })?;
    Ok(Outcome::Pass)
}

/// One waits for data and the other for room; both become true at about the same time.
fn two_that_poll_both_wake() -> TestResult {
    let (active, passive) = pair()?;
    active.set_nonblocking(true)?;
    for round in 0..10 {
        let result = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match (&active).read(&mut [0; 10]) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            poll_for(&active, 10_000)?;
                        }
                        other => return other,
                    }
                }
            });
            let writer = scope.spawn(|| {
                let mut written = 0;
                while written < 500_000 {
                    match (&active).write(&[1; 50_000]) {
                        Ok(length) => written += length,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            poll_for(&active, 10_000)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(written)
            });
            thread::sleep(Duration::from_millis(100));
            (&passive).write_all(b"x")?;
            let mut read = 0;
            let mut bytes = vec![0; 50_000];
            while read < 500_000 {
                read += (&passive).read(&mut bytes)?;
            }
            assert_eq!(reader.join().expect("no panic")?, 1);
            let written = writer.join().expect("no panic")?;
            (&passive).read_exact(&mut vec![0; written - read])?;
            io::Result::Ok(())
        });
        result.map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(Outcome::Pass)
}

fn a_refused_connection_wakes_who_polls() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    drop(listener);
    let stream = RdmaStream::connect_nonblocking(&address, &StreamSettings::new())?;
    let start = Instant::now();
    loop {
        let ready = stream.ready()?;
        if ready.has_failed {
            assert!(ready.readable && ready.writable);
            break;
        }
        assert!(!ready.writable, "it cannot be written to");
        poll_for(&stream, 5000)?;
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    let error = stream.take_error()?.expect("an error");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    Ok(Outcome::Pass)
}
