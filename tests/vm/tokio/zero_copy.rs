//! Reading where the peer wrote, and writing out of registered memory and into the peer's, in tasks.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::task::yield_now;
use ::tokio::time::{sleep, timeout};
use ::tokio::{select, spawn, try_join};
use rdmacm::StreamSettings;
use rdmacm::tokio::{OwnedReadHalf, RdmaStream};

use super::{pair, pair_with, runtime};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::streams::basics::pattern;
use crate::streams::killed::{Role, connected_with};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        registered_memory_arrives_and_is_lent: 60 s,
        lends_and_writes_that_are_dropped_lose_nothing: 120 s,
        a_dropped_write_leaves_the_memory_to_the_device,
        what_is_lent_is_not_read_by_others,
        a_peer_that_is_killed_frees_the_memory,
        memory_is_mapped_and_written,
        a_dropped_map_takes_no_place,
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

fn small() -> StreamSettings {
    StreamSettings::new()
        .receive_buffer(10_000)
        .receive_depth(16)
}

/// Compares what is lent with a pattern from a place on, and consumes at most so much.
async fn receive_some(from: &mut OwnedReadHalf, at: usize, most: usize) -> io::Result<usize> {
    let mut lent = from.lend().await?;
    let mut bytes = vec![0; lent.len().min(most)];
    assert_eq!(lent.copy_to(&mut bytes), bytes.len());
    assert!(bytes == pattern(at, bytes.len()), "from byte {at} on");
    lent.consume(bytes.len());
    Ok(bytes.len())
}

fn registered_memory_arrives_and_is_lent() -> TestResult {
    const LENGTH: usize = 200_000;
    runtime()?.block_on(async {
        let (active, passive) = pair_with(&small()).await?;
        let (mut read, _write) = passive.into_split();
        let (_read, mut write) = active.into_split();
        let mut buffer = write.register(LENGTH)?;
        buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
        let sender = spawn(async move {
            write.write_all_registered(&buffer, ..1000).await?;
            write.write_all_registered(&buffer, 1000..).await?;
            assert!(!buffer.is_busy());
            buffer.as_mut_slice()?.fill(0);
            write.shutdown().await
        });
        let mut at = 0;
        loop {
            match receive_some(&mut read, at, 3000).await? {
                0 => break,
                count => at += count,
            }
        }
        assert_eq!(at, LENGTH);
        timeout(PATIENCE, sender).await???;
        Ok(Outcome::Pass)
    })
}

/// Waits a moment, each time another.
async fn moment(turn: u64) {
    match turn % 4 {
        0 => {}
        1 => yield_now().await,
        _ => sleep(Duration::from_micros(turn * 379 % 1500)).await,
    }
}

fn lends_and_writes_that_are_dropped_lose_nothing() -> TestResult {
    const LENGTH: usize = 1_000_000;
    runtime()?.block_on(async {
        let (active, passive) = pair_with(&small()).await?;
        let (mut read, _write) = passive.into_split();
        let (_read, mut write) = active.into_split();
        let writer = spawn(async move {
            let mut buffer = write.register(LENGTH)?;
            buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
            let (mut at, mut dropped, mut turn) = (0, 0u64, 0u64);
            while at < LENGTH {
                turn += 1;
                let end = LENGTH.min(at + 1 + (at * 7919) % 30_000);
                select! {
                    biased;
                    written = write.write_registered(&buffer, at..end) => at += written?,
                    () = moment(turn) => dropped += 1,
                }
            }
            loop {
                select! {
                    biased;
                    sent = write.wait_sent(&buffer) => break sent?,
                    () = yield_now() => dropped += 1,
                }
            }
            buffer.as_mut_slice()?.fill(0);
            write.shutdown().await?;
            io::Result::Ok(dropped)
        });
        let (mut at, mut dropped, mut turn) = (0, 0u64, 0u64);
        loop {
            turn += 1;
            select! {
                biased;
                count = receive_some(&mut read, at, 2000) => match count? {
                    0 => break,
                    count => at += count,
                },
                () = moment(turn) => dropped += 1,
            }
        }
        assert_eq!(at, LENGTH);
        let writes = writer.await??;
        assert!(dropped + writes > 20, "{dropped} and {writes} were dropped");
        Ok(Outcome::Pass)
    })
}

/// The future is dropped, then the memory, and other memory is registered in its place.
fn a_dropped_write_leaves_the_memory_to_the_device() -> TestResult {
    const LENGTH: usize = 50_000;
    runtime()?.block_on(async {
        for round in 0..20 {
            let (mut active, mut passive) = pair_with(&small()).await?;
            let mut buffer = active.register(LENGTH)?;
            buffer.as_mut_slice()?.copy_from_slice(&pattern(0, LENGTH));
            let write = active.write_all_registered(&buffer, ..);
            // Right after it has begun, or once all that there is room for was sent.
            let early = timeout(Duration::from_millis(round % 2 * 20), write).await;
            assert!(early.is_err(), "nobody reads");
            drop(buffer);
            let mut others = Vec::new();
            for _ in 0..3 {
                let mut other = active.register(LENGTH)?;
                other.as_mut_slice()?.fill(0xee);
                others.push(other);
            }
            active.shutdown().await?;
            let mut bytes = Vec::new();
            timeout(PATIENCE, passive.read_to_end(&mut bytes)).await??;
            assert!((4000..20_000).contains(&bytes.len()), "{}", bytes.len());
            assert!(bytes == pattern(0, bytes.len()), "the bytes differ");
        }
        Ok(Outcome::Pass)
    })
}

fn what_is_lent_is_not_read_by_others() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, passive) = pair().await?;
        let std = passive.into_std();
        let mut other = RdmaStream::from_std(std.try_clone()?);
        let mut passive = RdmaStream::from_std(std);
        active.write_all(b"first").await?;
        let mut lent = passive.lend().await?;
        let reader = spawn(async move {
            let mut bytes = [0; 10];
            let count = other.read(&mut bytes).await?;
            io::Result::Ok(bytes[..count].to_vec())
        });
        active.write_all(b"more").await?;
        sleep(Duration::from_millis(50)).await;
        assert!(!reader.is_finished());
        let mut bytes = [0; 10];
        assert_eq!(lent.copy_to(&mut bytes), 5);
        assert_eq!(&bytes[..5], b"first");
        lent.consume(5);
        sleep(Duration::from_millis(50)).await;
        assert!(
            !reader.is_finished(),
            "it is still lent, though nothing is left of it"
        );
        drop(lent);
        assert_eq!(timeout(PATIENCE, reader).await???, b"more");
        Ok(Outcome::Pass)
    })
}

fn a_peer_that_is_killed_frees_the_memory() -> TestResult {
    let (mut peer, stream) = connected_with(Role::Drain)?;
    runtime()?.block_on(async {
        let mut stream = RdmaStream::from_std(stream);
        let mut buffer = stream.register(1 << 20)?;
        let writer = spawn(async move {
            loop {
                let written = stream.write_all_registered(&buffer, ..).await;
                if let Err(error) = written {
                    // It may have been a part before that was not sent.
                    let _ = stream.wait_sent(&buffer).await;
                    buffer.as_mut_slice()?.fill(1);
                    return io::Result::Ok(error);
                }
            }
        });
        sleep(Duration::from_millis(300)).await;
        assert!(!writer.is_finished());
        let killed: Instant = peer.kill()?;
        let error = timeout(PATIENCE, writer).await???;
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert!(killed.elapsed() < Duration::from_secs(1));
        Ok(Outcome::Pass)
    })
}

fn memory_is_mapped_and_written() -> TestResult {
    runtime()?.block_on(async {
        let (mut owner, mut writer) = pair_with(&StreamSettings::new().mappings(4)).await?;
        let error = writer
            .write_mapped(b"x", 0)
            .await
            .expect_err("nothing is mapped");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let table = owner.map(100_000, 5000).await?;
        owner.write_all(b"go").await?;
        writer.read_exact(&mut [0; 2]).await?;
        let (read, mut write) = writer.into_split();
        let bytes = pattern(0, 80_000);
        let mut written = 0;
        while written < bytes.len() {
            let offset = 5010 + written as u64;
            written += write.write_mapped(&bytes[written..], offset).await?;
        }
        write.write_all(b"done").await?;
        let mut word = [0; 4];
        timeout(PATIENCE, owner.read_exact(&mut word)).await??;
        let mut came = vec![0; bytes.len()];
        table.read(10, &mut came)?;
        assert!(came == bytes, "the bytes differ");
        // The memory does not keep the stream open.
        drop(owner);
        let mut writer = read.reunite(write).map_err(io::Error::other)?;
        let end = timeout(PATIENCE, writer.read(&mut word)).await??;
        assert_eq!(end, 0);
        table.read(10, &mut came)?;
        assert!(came == bytes, "the memory stays");
        Ok(Outcome::Pass)
    })
}

fn a_dropped_map_takes_no_place() -> TestResult {
    runtime()?.block_on(async {
        let (mut owner, mut writer) = pair_with(&small().mappings(1)).await?;
        // Without credit nothing can be told to the peer.
        let mut filled = 0;
        while let Ok(count) = timeout(Duration::from_millis(30), owner.write(&[1; 100])).await {
            filled += count?;
        }
        for _ in 0..3 {
            let early = timeout(Duration::from_millis(10), owner.map(100, 0)).await;
            match early {
                Err(_) => {}
                Ok(mapped) => panic!("the peer was told: {mapped:?}"),
            }
        }
        let (mapped, read) = try_join!(owner.map(100, 0), async {
            writer.read_exact(&mut vec![0; filled]).await
        })?;
        assert_eq!((mapped.len(), read), (100, filled));
        let error = owner.map(100, 0).await.expect_err("there is one place");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        Ok(Outcome::Pass)
    })
}
