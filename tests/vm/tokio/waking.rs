//! Tasks that wait are woken, and only when there is a reason.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::spawn;
use ::tokio::task::JoinHandle;
use ::tokio::time::{sleep, timeout};
use rdmacm::StreamSettings;
use rdmacm::tokio::RdmaStream;

use super::{pair, pair_with, runtime};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_full_direction_keeps_no_sign_from_the_other,
        a_task_that_waits_no_more_takes_no_sign_along,
        a_writer_that_is_blocked_rests,
        a_task_that_takes_a_sign_is_not_woken_by_it_again,
        a_hot_stream_lets_others_run,
        an_idle_stream_looks_after_its_peer,
        a_shutdown_that_waits_rests,
    ]
}

/// How long something may take that is due.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes until nothing fits any more; returns how much did.
async fn fill(stream: &mut RdmaStream) -> io::Result<usize> {
    let mut written = 0;
    loop {
        match timeout(Duration::from_millis(50), stream.write(&[1; 50_000])).await {
            Ok(length) => written += length?,
            Err(_) => return Ok(written),
        }
    }
}

async fn drain(stream: &mut RdmaStream, length: usize) -> io::Result<()> {
    stream.read_exact(&mut vec![0; length]).await.map(drop)
}

async fn in_time<T>(task: JoinHandle<io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, task).await??
}

/// One task waits for data, another for room; each gets only what it waits for, in both orders.
fn a_full_direction_keeps_no_sign_from_the_other() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        for round in 0..20 {
            let filled = fill(&mut active).await?;
            let (mut read, mut write) = active.into_split();
            let mut reader = spawn(async move {
                let length = read.read(&mut [0; 10]).await?;
                io::Result::Ok((read, length))
            });
            let mut writer = spawn(async move {
                write.write_all(b"more").await?;
                io::Result::Ok(write)
            });
            sleep(Duration::from_millis(5)).await;
            assert!(!reader.is_finished() && !writer.is_finished());
            if round % 2 == 0 {
                passive.write_all(b"x").await?;
                let (half, length) = in_time(reader).await?;
                assert_eq!(length, 1);
                assert!(!writer.is_finished(), "nothing was read yet");
                drain(&mut passive, filled).await?;
                active = half
                    .reunite(in_time(writer).await?)
                    .map_err(io::Error::other)?;
            } else {
                let drained = drain(&mut passive, filled);
                drained.await?;
                let half = timeout(PATIENCE, &mut writer).await???;
                assert!(!reader.is_finished(), "nothing was written yet");
                passive.write_all(b"x").await?;
                let (read, length) = timeout(PATIENCE, &mut reader).await???;
                assert_eq!(length, 1);
                active = read.reunite(half).map_err(io::Error::other)?;
            }
            drain(&mut passive, 4).await?;
        }
        Ok(Outcome::Pass)
    })
}

/// A task waits in one direction and turns to something else, without dropping the stream; the other
/// direction's task is woken all the same.
fn a_task_that_waits_no_more_takes_no_sign_along() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        let filled = fill(&mut active).await?;
        let (mut read, mut write) = active.into_split();
        let idle = spawn(async move {
            // Asks once, and never again.
            let mut bytes = [0];
            let asked = timeout(Duration::from_millis(1), read.read(&mut bytes)).await;
            assert!(asked.is_err());
            sleep(PATIENCE * 10).await;
            drop(read);
        });
        let writer = spawn(async move { write.write_all(b"more").await });
        sleep(Duration::from_millis(50)).await;
        drain(&mut passive, filled + 4).await?;
        in_time(writer).await?;
        idle.abort();
        // The other way round.
        let (mut active, mut passive) = pair().await?;
        fill(&mut active).await?;
        let (mut read, write) = active.into_split();
        let idle = spawn(async move {
            sleep(PATIENCE * 10).await;
            drop(write);
        });
        let reader = spawn(async move { read.read(&mut [0]).await });
        sleep(Duration::from_millis(20)).await;
        passive.write_all(b"x").await?;
        assert_eq!(in_time(reader).await?, 1);
        idle.abort();
        Ok(Outcome::Pass)
    })
}

/// Counts how often a future is polled.
async fn counted<F: Future>(polls: Arc<AtomicUsize>, future: F) -> F::Output {
    let mut future = Box::pin(future);
    poll_fn(move |cx: &mut Context<'_>| -> Poll<F::Output> {
        polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut future).poll(cx)
    })
    .await
}

fn a_writer_that_is_blocked_rests() -> TestResult {
    runtime()?.block_on(async {
        let (active, mut passive) = pair().await?;
        let (mut read, mut write) = active.into_split();
        let (reads, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let polls = (Arc::clone(&reads), Arc::clone(&writes));
        let reader = spawn(counted(reads, async move { read.read(&mut [0]).await }));
        let writer = spawn(counted(writes, async move {
            write.write_all(&vec![1; 1_000_000]).await
        }));
        // Until nothing fits any more.
        sleep(Duration::from_millis(300)).await;
        let count = || {
            (
                polls.0.load(Ordering::Relaxed),
                polls.1.load(Ordering::Relaxed),
            )
        };
        let before = count();
        sleep(Duration::from_millis(500)).await;
        assert!(!writer.is_finished() && !reader.is_finished());
        let after = count();
        let (reads, writes) = (after.0 - before.0, after.1 - before.1);
        assert!(
            reads <= 2 && writes <= 2,
            "{reads} and {writes} polls in vain"
        );
        drain(&mut passive, 1_000_000).await?;
        in_time(writer).await?;
        assert!(!reader.is_finished());
        // A megabyte is many messages, but far from all of them wake the reader for nothing.
        let reads = count().0;
        assert!(
            reads < 200,
            "{reads} polls of a reader with nothing to read"
        );
        passive.write_all(b"x").await?;
        assert_eq!(in_time(reader).await?, 1);
        Ok(Outcome::Pass)
    })
}

/// A task that answers messages is polled once for each, when it came.
fn a_task_that_takes_a_sign_is_not_woken_by_it_again() -> TestResult {
    const MESSAGES: usize = 200;
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        let polls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&polls);
        let echo = spawn(counted(polls, async move {
            let mut bytes = [0; 10];
            for _ in 0..MESSAGES {
                passive.read_exact(&mut bytes).await?;
                passive.write_all(&bytes).await?;
            }
            io::Result::Ok(())
        }));
        let mut bytes = [0; 10];
        for _ in 0..MESSAGES {
            active.write_all(&[1; 10]).await?;
            timeout(PATIENCE, active.read_exact(&mut bytes)).await??;
        }
        in_time(echo).await?;
        let polls = seen.load(Ordering::Relaxed);
        // Some are for what the peer says of its room, and for what it has got.
        assert!(polls < MESSAGES * 3 / 2, "{polls} polls");
        Ok(Outcome::Pass)
    })
}

/// The task is woken for it again and again, and the stream goes on.
fn an_idle_stream_looks_after_its_peer() -> TestResult {
    runtime()?.block_on(async {
        let settings = StreamSettings::new().keepalive(Some(Duration::from_millis(20)));
        let (mut active, mut passive) = pair_with(&settings).await?;
        let polls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&polls);
        let reader = spawn(counted(polls, async move { active.read(&mut [0]).await }));
        sleep(Duration::from_millis(500)).await;
        assert!(!reader.is_finished());
        let polls = seen.load(Ordering::Relaxed);
        assert!((5..200).contains(&polls), "{polls} polls");
        passive.write_all(b"x").await?;
        assert_eq!(in_time(reader).await?, 1);
        Ok(Outcome::Pass)
    })
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One that asks again before the peer's device has answered for all that was written is not woken by
/// itself.
fn a_shutdown_that_waits_rests() -> TestResult {
    runtime()?.block_on(async {
        let mut waited = 0;
        for _ in 0..20 {
            let (mut active, mut passive) = pair().await?;
            let wakes = Arc::<Wakes>::default();
            let waker = Waker::from(Arc::clone(&wakes));
            let mut context = Context::from_waker(&waker);
            active.write_all(&vec![1; 100_000]).await?;
            let mut ended = Box::pin(active.shutdown());
            for _ in 0..3 {
                waited += usize::from(ended.as_mut().poll(&mut context).is_pending());
            }
            // The runtime's reactor has not run meanwhile.
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            timeout(PATIENCE, ended).await??;
            drain(&mut passive, 100_000).await?;
            assert_eq!(passive.read(&mut [0]).await?, 0);
        }
        // Up to then, rxe carried everything out within the call that posted it.
        if waited <= 1 && environment::kernel() < (6, 4) {
            return Ok(Outcome::Skip("nothing is under way behind a call".into()));
        }
        assert!(waited > 1, "there was nothing to wait for");
        Ok(Outcome::Pass)
    })
}

/// A task that always finds something to read does not keep the thread for itself.
fn a_hot_stream_lets_others_run() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, passive) = pair().await?;
        active.write_all(&[1; 10_000]).await?;
        sleep(Duration::from_millis(100)).await;
        let ticks = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ticks);
        let ticker = spawn(async move {
            loop {
                seen.fetch_add(1, Ordering::Relaxed);
                ::tokio::task::yield_now().await;
            }
        });
        ::tokio::task::yield_now().await;
        let before = ticks.load(Ordering::Relaxed);
        let (mut read, _write) = passive.into_split();
        for _ in 0..10_000 {
            read.read_exact(&mut [0]).await?;
        }
        let ran = ticks.load(Ordering::Relaxed) - before;
        assert!(ran > 10, "the other task ran {ran} times");
        ticker.abort();
        Ok(Outcome::Pass)
    })
}
