//! How streams end.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{RdmaStream, StreamSettings};

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
    active.shutdown(Shutdown::Write)?;
    let error = active.write(b"late").expect_err("writing was shut down");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let mut all = Vec::new();
    passive.read_to_end(&mut all)?;
    assert_eq!(all, b"last");
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
