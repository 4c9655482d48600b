//! How streams of tasks end.

use std::error::Error;
use std::io::{self, ErrorKind, Read};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::runtime::Builder;
use ::tokio::spawn;
use ::tokio::time::{sleep, timeout};
use rdmacm::StreamSettings;
use rdmacm::tokio::RdmaStream;

use super::{bind, pair, runtime};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::peers;
use crate::streams::basics::listen;
use crate::streams::killed::{Role, SOON, connected_with};
use crate::streams::queue_pairs::fail_all;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        after_a_close_reads_are_at_the_end_and_writes_fail,
        a_half_that_is_dropped_ends_writing,
        a_peer_that_is_killed_ends_every_wait,
        a_queue_pair_that_fails_ends_every_wait,
        dropping_a_stream_does_not_wait,
        the_end_of_the_runtime_loses_nothing,
        a_refused_connection_is_told,
        no_answer_in_time_is_told_without_a_timer_of_the_runtime,
        outside_of_a_runtime_waiting_is_an_error,
    ]
}

fn after_a_close_reads_are_at_the_end_and_writes_fail() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        passive.write_all(b"last").await?;
        drop(passive);
        let mut all = Vec::new();
        active.read_to_end(&mut all).await?;
        assert_eq!(all, b"last");
        let error = active.write(b"late").await.expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        active.shutdown().await?;
        assert!(active.take_error()?.is_none(), "a close is no error");
        Ok(Outcome::Pass)
    })
}

fn a_half_that_is_dropped_ends_writing() -> TestResult {
    runtime()?.block_on(async {
        let (active, mut passive) = pair().await?;
        let (mut read, mut write) = active.into_split();
        write.write_all(b"last").await?;
        drop(write);
        let mut all = Vec::new();
        passive.read_to_end(&mut all).await?;
        assert_eq!(all, b"last");
        passive.write_all(b"answer").await?;
        let mut answer = [0; 6];
        read.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"answer");
        Ok(Outcome::Pass)
    })
}

/// A reader, and a writer that is blocked or not, while the peer is killed.
fn a_peer_that_is_killed_ends_every_wait() -> TestResult {
    for role in [Role::Idle, Role::Drain, Role::Flood] {
        let (mut peer, stream) = connected_with(role)?;
        end_both_waits(stream, || peer.kill()).map_err(|error| format!("{role:?}: {error}"))?;
    }
    Ok(Outcome::Pass)
}

fn a_queue_pair_that_fails_ends_every_wait() -> TestResult {
    let (_peer, stream) = connected_with(Role::Idle)?;
    end_both_waits(stream, fail_all)?;
    Ok(Outcome::Pass)
}

/// Reads and writes in two tasks until the connection is struck, which tells when that was.
fn end_both_waits(
    stream: rdmacm::RdmaStream,
    strike: impl FnOnce() -> io::Result<Instant>,
) -> Result<(), Box<dyn Error>> {
    runtime()?.block_on(async {
        let (mut read, mut write) = RdmaStream::from_std(stream).into_split();
        let reader = spawn(async move {
            let mut bytes = vec![0; 10_000];
            loop {
                match read.read(&mut bytes).await {
                    Ok(0) => panic!("a clean end"),
                    Ok(_) => {}
                    Err(error) => return (Instant::now(), error),
                }
            }
        });
        let writer = spawn(async move {
            loop {
                if let Err(error) = write.write_all(&[1; 10_000]).await {
                    return (Instant::now(), error);
                }
            }
        });
        sleep(Duration::from_millis(300)).await;
        assert!(!reader.is_finished() && !writer.is_finished());
        let struck = strike()?;
        for task in [reader, writer] {
            let (ended, error) = timeout(Duration::from_secs(10), task).await??;
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            let took = ended.saturating_duration_since(struck);
            assert!(took < SOON, "{took:?}");
        }
        Ok(())
    })
}

fn dropping_a_stream_does_not_wait() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    let server = thread::spawn(move || {
        let mut read = Vec::new();
        for _ in 0..10 {
            let (mut stream, _) = listener.accept()?;
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            read.push(all.len());
        }
        io::Result::Ok(read)
    });
    runtime()?.block_on(async {
        for _ in 0..10 {
            let mut stream = RdmaStream::connect(address).await?;
            let mut written = 0;
            while written < 300_000 {
                written += stream.write(&vec![1; 300_000 - written]).await?;
            }
            let start = Instant::now();
            drop(stream);
            let took = start.elapsed();
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
        io::Result::Ok(())
    })?;
    let read = server.join().expect("no panic")?;
    assert_eq!(read, [300_000; 10]);
    Ok(Outcome::Pass)
}

fn the_end_of_the_runtime_loses_nothing() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    for round in 0..10 {
        runtime()?.block_on(async {
            let mut stream = RdmaStream::connect(address).await?;
            stream.write_all(&[2; 100_000]).await
        })?;
        let (mut stream, _) = listener.accept()?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        assert_eq!(all.len(), 100_000, "round {round}");
    }
    Ok(Outcome::Pass)
}

fn a_refused_connection_is_told() -> TestResult {
    runtime()?.block_on(async {
        let (listener, address) = bind(&StreamSettings::new()).await?;
        drop(listener);
        let error = RdmaStream::connect(address)
            .await
            .expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        Ok(Outcome::Pass)
    })
}

fn no_answer_in_time_is_told_without_a_timer_of_the_runtime() -> TestResult {
    let (_peer, address) = peers::Peer::listening(peers::Role::Listen)?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let settings = StreamSettings::new().connect_timeout(Duration::from_millis(300));
        let start = Instant::now();
        let connect = RdmaStream::connect_with(address, &settings);
        let error = connect.await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let took = start.elapsed();
        assert!(
            took >= Duration::from_millis(300) && took < Duration::from_secs(2),
            "{took:?}"
        );
        Ok(Outcome::Pass)
    })
}

fn outside_of_a_runtime_waiting_is_an_error() -> TestResult {
    let runtime = runtime()?;
    let (active, mut passive) = runtime.block_on(async {
        let (active, mut passive) = pair().await?;
        passive.write_all(b"x").await?;
        io::Result::Ok((active, passive))
    })?;
    let mut byte = [0];
    let mut read = Box::pin(passive.read(&mut byte));
    let polled = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
    drop(read);
    let mut active = active.into_std();
    active.read_exact(&mut [0])?;
    // Without a runtime, this waits.
    drop(passive);
    assert_eq!(active.read(&mut [0])?, 0);
    Ok(Outcome::Pass)
}
