//! Futures that are dropped while they wait lose nothing.

use std::io;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::time::{sleep, timeout};
use ::tokio::{select, spawn, try_join};
use rdmacm::StreamSettings;
use rdmacm::tokio::{RdmaListener, RdmaStream};

use super::{bind, pair_with, runtime};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::streams::basics::pattern;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        reads_and_writes_that_are_dropped_lose_nothing: 120 s,
        accepts_that_are_dropped_lose_no_peer,
        connects_that_are_dropped_leave_nothing,
        a_dropped_accept_leaves_the_peer_to_another,
        a_dropped_shutdown_is_taken_up_again,
    ]
}

/// Numbers that look random, the same ones each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % below
    }

    /// Waits for a moment, or for less.
    async fn moment(&mut self) {
        match self.roll(4) {
            0 => {}
            1 => ::tokio::task::yield_now().await,
            _ => sleep(Duration::from_micros(self.roll(1500))).await,
        }
    }
}

async fn write_with_interruptions(
    mut stream: impl AsyncWriteExt + Unpin,
    length: usize,
) -> io::Result<u32> {
    let (mut dice, mut dropped, mut at) = (Dice(7), 0, 0);
    while at < length {
        let piece = 1 + dice.roll(40_000) as usize;
        let bytes = pattern(at, piece.min(length - at));
        select! {
            biased;
            written = stream.write(&bytes) => at += written?,
            () = dice.moment() => dropped += 1,
        }
    }
    stream.shutdown().await?;
    Ok(dropped)
}

async fn read_with_interruptions(
    mut stream: impl AsyncReadExt + Unpin,
    length: usize,
) -> io::Result<u32> {
    let (mut dice, mut dropped, mut at) = (Dice(99), 0, 0);
    let mut bytes = vec![0; 30_000];
    loop {
        let room = 1 + dice.roll(30_000) as usize;
        let count = select! {
            biased;
            count = stream.read(&mut bytes[..room]) => count?,
            () = dice.moment() => {
                dropped += 1;
                continue;
            }
        };
        if count == 0 {
            assert_eq!(at, length, "the end");
            return Ok(dropped);
        }
        assert_eq!(bytes[..count], pattern(at, count)[..], "from byte {at} on");
        at += count;
    }
}

fn reads_and_writes_that_are_dropped_lose_nothing() -> TestResult {
    const LENGTH: usize = 4_000_000;
    runtime()?.block_on(async {
        let small = StreamSettings::new()
            .receive_buffer(20_000)
            .send_buffer(10_000)
            .send_depth(16)
            .receive_depth(16);
        let (active, passive) = pair_with(&small).await?;
        let ((active_read, active_write), (passive_read, passive_write)) =
            (active.into_split(), passive.into_split());
        let counts = [
            spawn(write_with_interruptions(active_write, LENGTH)),
            spawn(write_with_interruptions(passive_write, LENGTH / 2)),
            spawn(read_with_interruptions(active_read, LENGTH / 2)),
            spawn(read_with_interruptions(passive_read, LENGTH)),
        ];
        for count in counts {
            let dropped = count.await??;
            assert!(dropped > 20, "only {dropped} were dropped");
        }
        Ok(Outcome::Pass)
    })
}

/// Accepts one peer after many attempts that were dropped.
async fn accept_at_last(listener: &RdmaListener) -> io::Result<(RdmaStream, u32)> {
    let mut dropped = 0;
    loop {
        select! {
            biased;
            // Ready when it is asked again: each attempt is asked once.
            () = ::tokio::task::yield_now() => dropped += 1,
            accepted = listener.accept() => return Ok((accepted?.0, dropped)),
        }
    }
}

fn accepts_that_are_dropped_lose_no_peer() -> TestResult {
    const PEERS: u8 = 20;
    runtime()?.block_on(async {
        let (listener, address) = bind(&StreamSettings::new()).await?;
        let clients = (0..PEERS).map(|number| {
            spawn(async move {
                // One after the other, so that there is something to wait for in between.
                sleep(Duration::from_millis(20 * u64::from(number))).await;
                let mut stream = RdmaStream::connect(address).await?;
                stream.write_all(&[number]).await?;
                let mut answer = [0];
                stream.read_exact(&mut answer).await?;
                assert_eq!(answer, [number]);
                io::Result::Ok(())
            })
        });
        let clients: Vec<_> = clients.collect();
        let (mut dropped, mut seen) = (0, [false; PEERS as usize]);
        for _ in 0..PEERS {
            let (mut stream, count) = accept_at_last(&listener).await?;
            dropped += count;
            let mut number = [0];
            stream.read_exact(&mut number).await?;
            stream.write_all(&number).await?;
            assert!(!std::mem::replace(&mut seen[usize::from(number[0])], true));
        }
        for client in clients {
            client.await??;
        }
        assert!(dropped > 0, "none was dropped");
        Ok(Outcome::Pass)
    })
}

fn connects_that_are_dropped_leave_nothing() -> TestResult {
    runtime()?.block_on(async {
        let (listener, address) = bind(&StreamSettings::new()).await?;
        // Streams of peers that are gone by now end at once.
        let server = spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await?;
                spawn(async move {
                    let mut byte = [0];
                    while let Ok(1) = stream.read(&mut byte).await {
                        stream.write_all(&byte).await?;
                    }
                    io::Result::Ok(())
                });
            }
            #[allow(unreachable_code)]
            io::Result::Ok(())
        });
        let mut dice = Dice(11);
        let mut dropped = 0;
        for _ in 0..60 {
            select! {
                biased;
                stream = RdmaStream::connect(address) => {
                    let mut stream = stream?;
                    stream.write_all(b"x").await?;
                    stream.read_exact(&mut [0]).await?;
                }
                () = dice.moment() => dropped += 1,
            }
        }
        assert!(dropped > 10, "only {dropped} were dropped");
        let mut stream = RdmaStream::connect(address).await?;
        stream.write_all(b"x").await?;
        stream.read_exact(&mut [0]).await?;
        server.abort();
        Ok(Outcome::Pass)
    })
}

/// Two tasks wait for a peer, the one that asked last turns away.
fn a_dropped_accept_leaves_the_peer_to_another() -> TestResult {
    runtime()?.block_on(async {
        let (listener, address) = bind(&StreamSettings::new()).await?;
        let listener = std::sync::Arc::new(listener);
        let other = std::sync::Arc::clone(&listener);
        let first = spawn(async move { other.accept().await });
        sleep(Duration::from_millis(20)).await;
        assert!(
            timeout(Duration::from_millis(20), listener.accept())
                .await
                .is_err()
        );
        let patience = Duration::from_secs(10);
        let (_stream, accepted) = try_join!(
            timeout(patience, RdmaStream::connect(address)),
            timeout(patience, first)
        )?;
        accepted??;
        Ok(Outcome::Pass)
    })
}

fn a_dropped_shutdown_is_taken_up_again() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair_with(&StreamSettings::new()).await?;
        active.write_all(&[5; 100_000]).await?;
        select! {
            biased;
            ended = active.shutdown() => ended?,
            () = ::tokio::task::yield_now() => active.shutdown().await?,
        }
        let mut all = Vec::new();
        passive.read_to_end(&mut all).await?;
        assert_eq!(all.len(), 100_000);
        Ok(Outcome::Pass)
    })
}
