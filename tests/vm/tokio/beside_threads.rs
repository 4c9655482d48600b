//! A thread and a task that wait for the same stream: each is woken, though the other takes the signs.

use std::io::{self, Read, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::spawn;
use ::tokio::task::yield_now;
use ::tokio::time::{sleep, timeout};
use nix::errno::Errno;
use nix::libc;
use rdmacm::tokio::RdmaStream;

use super::runtime;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::streams::basics;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_task_reads_while_a_thread_waits_for_room,
        a_thread_reads_while_a_task_waits_for_room,
        both_read,
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);
const ROUNDS: usize = 20;

/// Writes without waiting until nothing fits any more; returns how much did.
fn fill(stream: &rdmacm::RdmaStream) -> io::Result<usize> {
    stream.set_nonblocking(true)?;
    let (mut filled, mut misses) = (0, 0);
    while misses < 20 {
        match (&mut &*stream).write(&[1; 50_000]) {
            Ok(length) => (filled, misses) = (filled + length, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                misses += 1;
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error),
        }
    }
    stream.set_nonblocking(false)?;
    Ok(filled)
}

fn drain(mut stream: &rdmacm::RdmaStream, length: usize) -> io::Result<()> {
    stream.read_exact(&mut vec![0; length])
}

/// A thread that gets the processor only when nobody else wants it: so the runtime's thread is the first
/// to take each sign.
fn slow_thread<T: Send + 'static>(
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> JoinHandle<io::Result<T>> {
    thread::spawn(move || {
        let nothing = libc::sched_param { sched_priority: 0 };
        // SAFETY: it changes how this thread is scheduled, and reads the parameter only.
        let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &nothing) };
        Errno::result(done)?;
        act()
    })
}

/// Lets the tasks run, and no other thread at first.
async fn finished<T>(thread: &JoinHandle<T>) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(30) {
        yield_now().await;
    }
    while !thread.is_finished() {
        assert!(start.elapsed() < PATIENCE, "the thread sleeps on");
        sleep(Duration::from_millis(1)).await;
    }
}

fn a_task_reads_while_a_thread_waits_for_room() -> TestResult {
    let (active, peer) = basics::pair()?;
    for round in 0..ROUNDS {
        let filled = fill(&active)?;
        let own = active.try_clone()?;
        let writer = slow_thread(move || (&own).write_all(b"more"));
        let shared = active.try_clone()?;
        runtime()?.block_on(async {
            let mut task = RdmaStream::from_std(shared);
            let reader = spawn(async move { task.read(&mut [0; 10]).await });
            sleep(Duration::from_millis(5)).await;
            assert!(!reader.is_finished() && !writer.is_finished());
            // Each is woken by what it waits for, whoever looks first.
            if round % 2 == 0 {
                (&peer).write_all(b"x")?;
                assert_eq!(timeout(PATIENCE, reader).await???, 1);
                assert!(!writer.is_finished(), "nothing was read yet");
                drain(&peer, filled)?;
                finished(&writer).await;
            } else {
                drain(&peer, filled)?;
                finished(&writer).await;
                assert!(!reader.is_finished(), "nothing was written yet");
                (&peer).write_all(b"x")?;
                assert_eq!(timeout(PATIENCE, reader).await???, 1);
            }
            io::Result::Ok(())
        })?;
        writer.join().expect("no panic")?;
        drain(&peer, 4)?;
    }
    Ok(Outcome::Pass)
}

fn a_thread_reads_while_a_task_waits_for_room() -> TestResult {
    let (active, peer) = basics::pair()?;
    for round in 0..ROUNDS {
        let filled = fill(&active)?;
        let own = active.try_clone()?;
        let reader = slow_thread(move || (&own).read(&mut [0; 10]));
        let shared = active.try_clone()?;
        runtime()?.block_on(async {
            let mut task = RdmaStream::from_std(shared);
            let writer = spawn(async move { task.write_all(b"more").await });
            sleep(Duration::from_millis(5)).await;
            assert!(!reader.is_finished() && !writer.is_finished());
            if round % 2 == 0 {
                (&peer).write_all(b"x")?;
                finished(&reader).await;
                assert!(!writer.is_finished(), "nothing was read yet");
                drain(&peer, filled)?;
                timeout(PATIENCE, writer).await???;
            } else {
                drain(&peer, filled)?;
                timeout(PATIENCE, writer).await???;
                assert!(!reader.is_finished(), "nothing was written yet");
                (&peer).write_all(b"x")?;
                finished(&reader).await;
            }
            io::Result::Ok(())
        })?;
        assert_eq!(reader.join().expect("no panic")?, 1);
        drain(&peer, 4)?;
    }
    Ok(Outcome::Pass)
}

/// One byte goes to one of the two, and the next to the other.
fn both_read() -> TestResult {
    let (active, peer) = basics::pair()?;
    for _ in 0..ROUNDS {
        let own = active.try_clone()?;
        let thread = slow_thread(move || (&own).read(&mut [0]));
        let shared = active.try_clone()?;
        runtime()?.block_on(async {
            let mut task = RdmaStream::from_std(shared);
            let mut task = spawn(async move { task.read(&mut [0]).await });
            sleep(Duration::from_millis(5)).await;
            assert!(!thread.is_finished() && !task.is_finished());
            (&peer).write_all(b"x")?;
            let start = Instant::now();
            while !thread.is_finished() && !task.is_finished() {
                assert!(start.elapsed() < PATIENCE, "both sleep on");
                sleep(Duration::from_millis(1)).await;
            }
            (&peer).write_all(b"y")?;
            assert_eq!(timeout(PATIENCE, &mut task).await???, 1);
            finished(&thread).await;
            io::Result::Ok(())
        })?;
        assert_eq!(thread.join().expect("no panic")?, 1);
    }
    Ok(Outcome::Pass)
}
