//! Connections of tasks that exchange messages.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::tokio::time::{sleep, timeout};
use ::tokio::{select, spawn, try_join};
use rdmacm::tokio::{Connection, Connector, Listener};
use rdmacm::{Access, ErrorKind, Settings};

use super::runtime;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::peers::{Peer, Role};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        messages_and_answers_of_any_size,
        writes_and_reads_of_memory,
        receives_that_are_dropped_lose_no_message,
        a_dropped_send_arrives_and_keeps_its_memory,
        dropped_accepts_lose_no_peer,
        a_peer_that_is_killed_ends_every_wait,
        a_disconnect_comes_after_what_was_sent,
        a_refusal_and_no_answer_are_told,
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

async fn listen() -> rdmacm::Result<(Listener, SocketAddr)> {
    let listener = Listener::bind((environment::addr(), 0)).await?;
    let address = listener.local_addr().expect("it listens");
    Ok((listener, address))
}

async fn pair() -> rdmacm::Result<(Connection, Connection)> {
    let (mut listener, address) = listen().await?;
    let connector = Connector::new();
    try_join!(connector.connect(address), listener.accept())
}

fn messages_and_answers_of_any_size() -> TestResult {
    runtime()?.block_on(async {
        let (mut listener, address) = listen().await?;
        let server = spawn(async move {
            let incoming = listener.incoming().await?;
            assert_eq!(&incoming.connection().private_data[..2], b"v1");
            let mut prepared = incoming.prepare()?;
            let inbox = prepared.alloc(100_000)?;
            prepared.post_recv(0, inbox.slice(..)?)?;
            let mut connection = Connection::establish(prepared).await?;
            let mut bytes = vec![0; 100_000];
            for _ in 0..6 {
                let received = connection.recv_completion().await?;
                let length = received.result().expect("a message").byte_len() as usize;
                inbox.read(0, &mut bytes[..length])?;
                connection.post_recv(0, inbox.slice(..)?)?;
                connection.send(&bytes[..length]).await?;
            }
            Ok::<_, rdmacm::Error>(connection)
        });
        let settings = Settings::new().private_data(b"v1")?;
        let connector = Connector::from(rdmacm::Connector::new().settings(settings));
        let mut prepared = connector.prepare(address).await?;
        let inbox = prepared.alloc(100_000)?;
        prepared.post_recv(9, inbox.slice(..)?)?;
        let mut connection = Connection::establish(prepared).await?;
        assert_eq!(connection.peer_addr(), Some(address));
        for length in [0, 1, 64, 65, 4096, 100_000] {
            let message = crate::pair::pattern(length as u64, length);
            connection.send(&message).await?;
            let answer = connection.recv_completion().await?;
            let success = answer.result().expect("a message");
            assert_eq!((answer.wr_id(), success.byte_len() as usize), (9, length));
            crate::pair::assert_holds(&inbox, 0, &message);
            connection.post_recv(9, inbox.slice(..)?)?;
        }
        let _server = server.await??;
        Ok(Outcome::Pass)
    })
}

fn writes_and_reads_of_memory() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, passive) = pair().await?;
        let any = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let exposed = passive.alloc_with(8192, any)?;
        let mut own = active.alloc(8192)?;
        let bytes = crate::pair::pattern(3, 8192);
        own.write(0, &bytes)?;
        active.write(exposed.remote(), &[own.slice(..)?]).await?;
        crate::pair::assert_holds(&exposed, 0, &bytes);
        own.write(0, &[0; 8192])?;
        active.read(exposed.remote(), &[own.slice(..)?]).await?;
        crate::pair::assert_holds(&own, 0, &bytes);
        let mut batch = active.batch();
        batch.write(40, exposed.remote()).from(&[own.slice(..8)?])?;
        batch
            .write(41, exposed.remote())
            .signaled()
            .from(&[own.slice(..8)?])?;
        batch.submit()?;
        assert_eq!(active.send_completion().await?.wr_id(), 41);
        Ok(Outcome::Pass)
    })
}

fn receives_that_are_dropped_lose_no_message() -> TestResult {
    const MESSAGES: u64 = 100;
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        let inbox = passive.alloc(64)?;
        for number in 0..16 {
            passive.post_recv(number, inbox.slice(..)?)?;
        }
        let sender = spawn(async move {
            for number in 0..MESSAGES {
                active.send(&number.to_be_bytes()).await?;
                if number % 10 == 0 {
                    sleep(Duration::from_millis(2)).await;
                }
            }
            Ok::<_, rdmacm::Error>(active)
        });
        let mut dropped = 0;
        for number in 0..MESSAGES {
            let received = loop {
                select! {
                    biased;
                    received = passive.recv_completion() => break received?,
                    () = ::tokio::task::yield_now() => dropped += 1,
                }
            };
            assert_eq!(received.wr_id(), number % 16);
            passive.post_recv(number % 16, inbox.slice(..)?)?;
        }
        assert!(dropped > 10, "only {dropped} were dropped");
        let _active = sender.await??;
        Ok(Outcome::Pass)
    })
}

fn a_dropped_send_arrives_and_keeps_its_memory() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        // Long messages, so that they are not inline; nobody receives them yet.
        for number in 1..4u8 {
            let message = vec![number; 10_000];
            let sent = timeout(Duration::from_millis(20), active.send(&message)).await;
            assert!(sent.is_err(), "{sent:?}");
        }
        let inboxes = [
            passive.alloc(10_000)?,
            passive.alloc(10_000)?,
            passive.alloc(10_000)?,
        ];
        for (number, inbox) in (0..).zip(&inboxes) {
            passive.post_recv(number, inbox.slice(..)?)?;
        }
        for (number, inbox) in (0u8..).zip(&inboxes) {
            let received = timeout(PATIENCE, passive.recv_completion()).await??;
            assert_eq!(received.wr_id(), u64::from(number));
            crate::pair::assert_holds(inbox, 0, &[number + 1; 10_000]);
        }
        passive.post_recv(7, inboxes[0].slice(..)?)?;
        active.send(&[9; 10_000]).await?;
        passive.recv_completion().await?;
        crate::pair::assert_holds(&inboxes[0], 0, &[9; 10_000]);
        Ok(Outcome::Pass)
    })
}

fn dropped_accepts_lose_no_peer() -> TestResult {
    const PEERS: u64 = 10;
    runtime()?.block_on(async {
        let (mut listener, address) = listen().await?;
        let clients: Vec<_> = (0..PEERS)
            .map(|number| {
                spawn(async move {
                    // One after the other, so that there is something to wait for in between.
                    sleep(Duration::from_millis(20 * number)).await;
                    Connector::new().connect(address).await
                })
            })
            .collect();
        let (mut dropped, mut servers) = (0, Vec::new());
        while servers.len() < clients.len() {
            select! {
                biased;
                // Ready when it is asked again: each attempt is asked once.
                () = ::tokio::task::yield_now() => dropped += 1,
                incoming = listener.incoming() => {
                    let prepared = incoming?.prepare()?;
                    servers.push(spawn(Connection::establish(prepared)));
                }
            }
        }
        assert!(dropped > 0, "none was dropped");
        for task in clients.into_iter().chain(servers) {
            timeout(PATIENCE, task).await???;
        }
        Ok(Outcome::Pass)
    })
}

fn a_peer_that_is_killed_ends_every_wait() -> TestResult {
    // One that waits for a message, and one whose message nobody receives.
    for is_receiver in [true, false] {
        let (peer, address) = Peer::listening(Role::Accept)?;
        runtime()?.block_on(async {
            let mut connection = Connector::new().connect(address).await?;
            let inbox = connection.alloc(64)?;
            connection.post_recv(1, inbox.slice(..)?)?;
            let waiting = spawn(async move {
                let waited = match is_receiver {
                    true => connection.recv_completion().await.map(drop),
                    false => connection.send(b"to nobody").await,
                };
                (Instant::now(), waited)
            });
            sleep(Duration::from_millis(200)).await;
            assert!(!waiting.is_finished());
            let killed = peer.kill()?;
            let (ended, waited) = timeout(PATIENCE, waiting).await??;
            let error = waited.expect_err("the peer was killed");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            let took = ended.saturating_duration_since(killed);
            assert!(took < Duration::from_secs(1), "{took:?}");
            Ok::<_, Box<dyn Error>>(())
        })?;
    }
    Ok(Outcome::Pass)
}

fn a_disconnect_comes_after_what_was_sent() -> TestResult {
    runtime()?.block_on(async {
        let (mut active, mut passive) = pair().await?;
        let inbox = passive.alloc(64)?;
        for number in 0..3 {
            passive.post_recv(number, inbox.slice(..)?)?;
        }
        active.send(b"one").await?;
        active.send(b"two").await?;
        drop(active);
        assert_eq!(passive.recv_completion().await?.wr_id(), 0);
        assert_eq!(passive.recv_completion().await?.wr_id(), 1);
        for _ in 0..2 {
            let waited = timeout(PATIENCE, passive.recv_completion()).await?;
            let error = waited.expect_err("the peer is gone");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        }
        let error = passive.send(b"late").await.expect_err("the peer is gone");
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        Ok(Outcome::Pass)
    })
}

fn a_refusal_and_no_answer_are_told() -> TestResult {
    let (_peer, silent) = Peer::listening(Role::Listen)?;
    runtime()?.block_on(async {
        let (listener, address) = listen().await?;
        drop(listener);
        let refused = Connector::new().connect(address).await;
        let error = refused.expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        let patience = Duration::from_millis(300);
        let connector = Connector::from(rdmacm::Connector::new().timeout(patience));
        let start = Instant::now();
        let error = connector.connect(silent).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let took = start.elapsed();
        assert!(
            took >= patience && took < Duration::from_secs(2),
            "{took:?}"
        );
        Ok(Outcome::Pass)
    })
}
