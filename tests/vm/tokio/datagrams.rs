//! Datagrams in tasks.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use ::tokio::task::yield_now;
use ::tokio::time::{sleep, timeout};
use ::tokio::{select, spawn};
use rdmacm::StreamSettings;
use rdmacm::tokio::RdmaDatagram;

use super::runtime;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::streams::basics::pattern;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        datagrams_come_back,
        tasks_share_a_socket,
        receives_that_are_dropped_lose_nothing,
        a_sender_waits_for_room,
        a_socket_goes_from_threads_to_tasks_and_back,
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

async fn socket() -> io::Result<RdmaDatagram> {
    RdmaDatagram::bind((environment::addr(), 0)).await
}

/// Sends until something comes back: over UDP the first may be lost.
async fn ask(socket: &RdmaDatagram, says: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 2048];
    for _ in 0..20 {
        socket.send(says).await?;
        let heard = timeout(Duration::from_millis(500), socket.recv(&mut bytes));
        if let Ok(length) = heard.await {
            return Ok(bytes[..length?].to_vec());
        }
    }
    Err(ErrorKind::TimedOut.into())
}

async fn echo(socket: Arc<RdmaDatagram>) -> io::Result<()> {
    let mut bytes = vec![0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes).await?;
        socket.send_to(&bytes[..length], from).await?;
    }
}

fn datagrams_come_back() -> TestResult {
    runtime()?.block_on(async {
        let server = Arc::new(socket().await?);
        let address = server.local_addr()?;
        let echo = spawn(echo(server));
        let client = socket().await?;
        let error = client.send(b"x").await.expect_err("no peer");
        assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        client.connect(address).await?;
        assert_eq!(client.peer_addr()?, address);
        for length in [1, 64, 1000, 1016, 2032] {
            for _ in 0..10 {
                let says = pattern(length, length);
                assert!(ask(&client, &says).await? == says, "{length} bytes");
            }
        }
        let error = client.send(&[0; 2033]).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        echo.abort();
        Ok(Outcome::Pass)
    })
}

/// Each datagram goes to one of those that wait, and those that still wait are woken by the next.
fn tasks_share_a_socket() -> TestResult {
    const TASKS: usize = 4;
    runtime()?.block_on(async {
        let server = Arc::new(socket().await?);
        let client = socket().await?;
        client.connect(server.local_addr()?).await?;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let server = Arc::clone(&server);
                spawn(async move {
                    let mut bytes = [0; 10];
                    let (length, _) = server.recv_from(&mut bytes).await?;
                    assert_eq!(length, 1);
                    io::Result::Ok(bytes[0])
                })
            })
            .collect();
        sleep(Duration::from_millis(50)).await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
        for number in 0..TASKS as u8 {
            client.send(&[number]).await?;
            sleep(Duration::from_millis(20)).await;
        }
        let mut heard = Vec::new();
        for task in tasks {
            heard.push(timeout(PATIENCE, task).await???);
        }
        heard.sort_unstable();
        assert_eq!(heard, [0, 1, 2, 3]);
        Ok(Outcome::Pass)
    })
}

fn receives_that_are_dropped_lose_nothing() -> TestResult {
    const COUNT: u32 = 300;
    runtime()?.block_on(async {
        let server = socket().await?;
        let client = socket().await?;
        client.connect(server.local_addr()?).await?;
        let sender = spawn(async move {
            for number in 0..COUNT {
                client.send(&number.to_be_bytes()).await?;
                // No more than the receiver has room for.
                sleep(Duration::from_millis(1)).await;
            }
            io::Result::Ok(client)
        });
        let (mut dropped, mut heard) = (0u32, Vec::new());
        while heard.len() < COUNT as usize {
            let mut bytes = [0; 4];
            select! {
                biased;
                length = server.recv(&mut bytes) => {
                    assert_eq!(length?, 4);
                    heard.push(u32::from_be_bytes(bytes));
                }
                () = yield_now() => dropped += 1,
            }
        }
        heard.sort_unstable();
        assert!(
            heard.iter().copied().eq(0..COUNT),
            "some came twice or not at all"
        );
        assert!(dropped > 20, "only {dropped} were dropped");
        timeout(PATIENCE, sender).await???;
        Ok(Outcome::Pass)
    })
}

/// More than the queue takes: the task waits, and others run meanwhile.
fn a_sender_waits_for_room() -> TestResult {
    runtime()?.block_on(async {
        let settings = StreamSettings::new().send_buffer(1 << 15).send_depth(16);
        let server = Arc::new(socket().await?);
        let address = server.local_addr()?;
        let echo = spawn(echo(server));
        let client = RdmaDatagram::bind_with((environment::addr(), 0), &settings).await?;
        client.connect(address).await?;
        // Until it goes from queue pair to queue pair.
        for _ in 0..5 {
            ask(&client, b"hello").await?;
        }
        let flood = async {
            for _ in 0..2000 {
                client.send(&[7; 1000]).await?;
            }
            io::Result::Ok(())
        };
        timeout(PATIENCE, flood).await??;
        echo.abort();
        Ok(Outcome::Pass)
    })
}

fn a_socket_goes_from_threads_to_tasks_and_back() -> TestResult {
    let [one, other] = [0, 0].map(|port| rdmacm::RdmaDatagram::bind((environment::addr(), port)));
    let (one, other) = (one?, other?);
    one.connect(other.local_addr()?)?;
    let one = runtime()?.block_on(async {
        let one = RdmaDatagram::from_std(one);
        one.send(b"hello").await?;
        let mut bytes = [0; 10];
        let (length, from) = other.recv_from(&mut bytes)?;
        assert_eq!(&bytes[..length], b"hello");
        other.send_to(b"hi", from)?;
        let heard = timeout(PATIENCE, one.peek_from(&mut bytes)).await??;
        assert_eq!(heard, (2, other.local_addr()?));
        io::Result::Ok(one.into_std())
    })?;
    let mut bytes = [0; 10];
    assert_eq!(one.recv(&mut bytes)?, 2);
    assert_eq!(&bytes[..2], b"hi");
    Ok(Outcome::Pass)
}
