//! Streams, connections and all that waits, in tasks of a runtime.

mod beside_threads;
mod cancelled;
mod datagrams;
mod endpoint;
mod ends;
mod examples;
mod many;
mod waits;
mod waking;
mod zero_copy;

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread;

use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};
use ::tokio::try_join;
use rdmacm::StreamSettings;
use rdmacm::tokio::{RdmaListener, RdmaStream};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::streams::basics::{listen, pattern};

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    let own = tests![
        echoes_of_many_sizes,
        a_thread_and_a_task_talk,
        a_stream_goes_from_threads_to_tasks_and_back,
        halves_become_one_again,
        what_is_peeked_is_still_there,
    ];
    [
        own,
        waking::tests(),
        beside_threads::tests(),
        zero_copy::tests(),
        datagrams::tests(),
        cancelled::tests(),
        ends::tests(),
        many::tests(),
        waits::tests(),
        endpoint::tests(),
        examples::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A runtime with one thread, this one.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn bind(settings: &StreamSettings) -> io::Result<(RdmaListener, SocketAddr)> {
    let listener = RdmaListener::bind_with((environment::addr(), 0), settings).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Two ends of a stream, the connecting one first.
async fn pair_with(settings: &StreamSettings) -> io::Result<(RdmaStream, RdmaStream)> {
    let (listener, address) = bind(settings).await?;
    let active = RdmaStream::connect_with(address, settings);
    let (mut active, (mut passive, _)) = try_join!(active, listener.accept())?;
    // Over iWARP the side that accepted tells of its room only when the other has spoken.
    active.write_all(&[0]).await?;
    passive.read_exact(&mut [1]).await?;
    Ok((active, passive))
}

async fn pair() -> io::Result<(RdmaStream, RdmaStream)> {
    pair_with(&StreamSettings::new()).await
}

/// Writes a pattern and ends writing.
async fn send(mut to: impl AsyncWrite + Unpin, length: usize, piece: usize) -> io::Result<()> {
    for at in (0..length).step_by(piece) {
        to.write_all(&pattern(at, piece.min(length - at))).await?;
    }
    to.shutdown().await
}

/// Reads a pattern up to the end.
async fn receive(mut from: impl AsyncRead + Unpin, length: usize) -> io::Result<()> {
    let mut bytes = vec![0; 10_000];
    let mut at = 0;
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            assert_eq!(at, length, "the end");
            return Ok(());
        }
        assert_eq!(bytes[..count], pattern(at, count)[..], "from byte {at} on");
        at += count;
    }
}

/// Sends back what comes, up to the end.
async fn echo(mut stream: RdmaStream) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&bytes[..count]).await?;
    }
}

/// Sends a pattern to an echo and compares what comes back.
async fn hear_echo(stream: RdmaStream, length: usize, piece: usize) -> io::Result<()> {
    let (read, write) = stream.into_split();
    try_join!(send(write, length, piece), receive(read, length))?;
    Ok(())
}

fn echoes_of_many_sizes() -> TestResult {
    runtime()?.block_on(async {
        let (listener, address) = bind(&StreamSettings::new()).await?;
        // How many bytes, and how many of them at a time.
        let sizes = [
            (0, 1),
            (1, 1),
            (63, 9),
            (64, 64),
            (65, 65),
            (1000, 10),
            (65_535, 1000),
            (65_536, 70_000),
            (131_073, 4096),
            (1 << 20, 50_000),
        ];
        for (length, piece) in sizes {
            let connect = RdmaStream::connect(address);
            let (active, (passive, peer)) = try_join!(connect, listener.accept())?;
            assert_eq!(peer.ip(), environment::addr());
            assert_eq!(active.peer_addr()?, address);
            assert_eq!(active.local_addr()?, passive.peer_addr()?);
            let server = ::tokio::spawn(echo(passive));
            hear_echo(active, length, piece).await?;
            server.await??;
        }
        Ok(Outcome::Pass)
    })
}

fn a_thread_and_a_task_talk() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        stream.write_all(&all)
    });
    runtime()?.block_on(async {
        let mut stream = RdmaStream::connect(address).await?;
        let sent = pattern(0, 300_000);
        stream.write_all(&sent).await?;
        stream.shutdown().await?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        assert_eq!(all, sent);
        io::Result::Ok(())
    })?;
    server.join().expect("no panic")?;
    Ok(Outcome::Pass)
}

fn a_stream_goes_from_threads_to_tasks_and_back() -> TestResult {
    let (active, mut passive) = crate::streams::basics::pair()?;
    let active = runtime()?.block_on(async {
        let mut active = RdmaStream::from_std(active);
        passive.write_all(b"one")?;
        active.read_exact(&mut [0; 3]).await?;
        active.write_all(b"two").await?;
        io::Result::Ok(active.into_std())
    })?;
    let mut bytes = [0; 3];
    passive.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"two");
    passive.write_all(b"three")?;
    let mut bytes = [0; 5];
    (&active).read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"three");
    Ok(Outcome::Pass)
}

fn halves_become_one_again() -> TestResult {
    runtime()?.block_on(async {
        let (active, passive) = pair().await?;
        let ((read, write), (other_read, other_write)) =
            (active.into_split(), passive.into_split());
        let error = read.reunite(other_write).expect_err("of two streams");
        let (read, other_write) = (error.0, error.1);
        let mut active = read.reunite(write)?;
        let mut passive = other_read.reunite(other_write)?;
        active.write_all(b"still open").await?;
        let mut bytes = [0; 10];
        passive.read_exact(&mut bytes).await?;
        let (mut read, mut write) = passive.split();
        write.write_all(b"x").await?;
        active.read_exact(&mut [0]).await?;
        drop(active);
        assert_eq!(read.read(&mut bytes).await?, 0);
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(Outcome::Pass)
}

fn what_is_peeked_is_still_there() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        let mut bytes = [0; 3];
        let (count, ()) = try_join!(passive.peek(&mut bytes), active.write_all(b"hello"))?;
        assert_eq!((count, &bytes), (3, b"hel"));
        let mut bytes = [0; 5];
        passive.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"hello");
        Ok(Outcome::Pass)
    })
}
