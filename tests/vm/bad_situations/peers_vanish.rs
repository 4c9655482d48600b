//! The peer's process is killed, at every stage of a connection: whoever waits hears of it.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Connection, Connector, Error, ErrorKind, EventChannel, Listener, Prepared, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Plan, any_port, expect, listen, request, resolve};
use crate::peers::{Peer, Role};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        after_resolving,
        a_peer_that_never_answers,
        while_asking,
        before_our_answer,
        while_answering,
        right_after_connecting,
        while_idle,
        while_waiting_for_a_message,
        while_waiting_for_a_receive,
        while_sending_much,
        while_writing_and_reading_much,
    ]
}

/// By when a waiting call must have ended: F106, F139.
const SOON: Duration = Duration::from_secs(2);

/// Runs a call that waits, kills the peer meanwhile, and returns the call's error.
fn killed_during<T: Send>(
    peer: Peer,
    call: impl FnOnce() -> Result<T> + Send,
) -> Result<Error, Box<dyn StdError>> {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| call().map(drop));
        thread::sleep(Duration::from_millis(300));
        let is_early = waiting.is_finished();
        let killed = peer.kill()?;
        let outcome = waiting.join().expect("no thread panics");
        assert!(!is_early, "it did not wait: {outcome:?}");
        assert!(
            killed.elapsed() < SOON,
            "{:?} after {outcome:?}",
            killed.elapsed()
        );
        Ok(outcome.expect_err("the peer is dead"))
    })
}

fn assert_disconnected(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(
        error.to_string().contains("the connection ended"),
        "{error}"
    );
}

fn after_resolving() -> TestResult {
    let (peer, address) = Peer::listening(Role::Listen)?;
    let channel = EventChannel::open()?;
    let client = Plan::default().end(resolve(&channel, address)?, channel)?;
    peer.kill()?;
    client.id.connect(&Plan::default().asked)?;
    let error = expect(&client.channel, "REJECTED")?.into_error("connect");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(
        error.to_string().contains("nobody listens on that port"),
        "{error}"
    );
    Ok(Outcome::Pass)
}

/// A prepared connection to a peer that lives and says nothing.
fn prepared(address: SocketAddr, timeout: Duration) -> Result<Prepared> {
    Connector::new().timeout(timeout).prepare(address)
}

fn a_peer_that_never_answers() -> TestResult {
    let (_peer, address) = Peer::listening(Role::Listen)?;
    let timeout = Duration::from_millis(700);
    let start = Instant::now();
    let refused = prepared(address, timeout)?.establish();
    let error = refused.map(drop).expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    for words in ["connect: ", "within 700ms"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(
        (timeout..timeout + SOON).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    Ok(Outcome::Pass)
}

fn while_asking() -> TestResult {
    let (peer, address) = Peer::listening(Role::Listen)?;
    let prepared = prepared(address, PATIENCE)?;
    let error = killed_during(peer, || prepared.establish())?;
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("or ended"), "{error}");
    Ok(Outcome::Pass)
}

/// The kernel does not tell that a peer has gone before it was answered. Answering does.
fn before_our_answer() -> TestResult {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let peer = Peer::start(Role::Ask, listener.local_addr().expect("it listens"))?;
    let server = plan.end(request(&channel)?.into_id(), channel)?;
    peer.kill()?;
    thread::sleep(Duration::from_millis(300));
    let error = server
        .id
        .accept(&plan.answered)
        .expect_err("nobody is there");
    assert!(
        error.to_string().contains("the peer has given up"),
        "{error}"
    );
    Ok(Outcome::Pass)
}

fn while_answering() -> TestResult {
    let listener = Listener::bind(any_port())?;
    let peer = Peer::start(Role::Ask, listener.local_addr().expect("it listens"))?;
    let answering = listener.incoming(Some(PATIENCE))?.prepare()?;
    let error = killed_during(peer, || answering.establish())?;
    assert!(
        [ErrorKind::Rejected, ErrorKind::Disconnected].contains(&error.kind()),
        "{error}"
    );
    Ok(Outcome::Pass)
}

/// A connection to a peer of a role that accepts.
fn connected_to(role: Role) -> Result<(Peer, Connection), Box<dyn StdError>> {
    let (peer, address) = Peer::listening(role)?;
    let mut connection = Connector::new().connect(address)?;
    connection.set_timeout(Some(PATIENCE));
    Ok((peer, connection))
}

/// F106: also seen from the accepting side, and by those who read events themselves.
fn while_idle() -> TestResult {
    let (peer, mut connection) = connected_to(Role::Accept)?;
    peer.kill()?;
    thread::sleep(Duration::from_millis(300));
    assert_disconnected(&connection.recv_completion().expect_err("the peer is dead"));
    assert_disconnected(&connection.send(b"anybody?").expect_err("the peer is dead"));

    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let mut peer = Peer::start(Role::Connect, listener.local_addr().expect("it listens"))?;
    let server = plan.end(request(&channel)?.into_id(), channel)?;
    server.id.accept(&plan.answered)?;
    expect(&server.channel, "ESTABLISHED")?;
    assert_eq!(peer.line()?, "connected");
    let killed = peer.kill()?;
    expect(&server.channel, "DISCONNECTED")?;
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    Ok(Outcome::Pass)
}

/// A peer that dies before it has heard of our end of the handshake rejects a connection that we
/// have already.
fn right_after_connecting() -> TestResult {
    for _ in 0..10 {
        let (peer, mut connection) = connected_to(Role::Accept)?;
        peer.kill()?;
        assert_disconnected(&connection.recv_completion().expect_err("the peer is dead"));
        assert_disconnected(&connection.send(b"anybody?").expect_err("the peer is dead"));
    }
    Ok(Outcome::Pass)
}

fn while_waiting_for_a_message() -> TestResult {
    let (peer, mut connection) = connected_to(Role::Accept)?;
    let inbox = connection.alloc(1)?;
    connection.post_recv(1, inbox.slice(..)?)?;
    assert_disconnected(&killed_during(peer, || connection.recv_completion())?);
    Ok(Outcome::Pass)
}

/// The peer has no receive posted, so that the message is repeated for ever.
fn while_waiting_for_a_receive() -> TestResult {
    for length in [10, 1000] {
        let (peer, mut connection) = connected_to(Role::Accept)?;
        assert_disconnected(&killed_during(peer, || connection.send(&vec![1; length]))?);
    }
    Ok(Outcome::Pass)
}

fn while_sending_much() -> TestResult {
    let (peer, mut connection) = connected_to(Role::Receive)?;
    let message = vec![1; 1 << 16];
    let error = killed_during(peer, || -> Result<()> {
        loop {
            connection.send(&message)?;
        }
    })?;
    assert_disconnected(&error);
    Ok(Outcome::Pass)
}

fn while_writing_and_reading_much() -> TestResult {
    for is_read in [false, true] {
        let (mut peer, mut connection) = connected_to(Role::Expose)?;
        let place = peer.place()?;
        let buffer = connection.alloc(1 << 16)?;
        let segments = [buffer.slice(..)?];
        let error = killed_during(peer, || -> Result<()> {
            loop {
                match is_read {
                    true => connection.read(place, &segments)?,
                    false => connection.write(place, &segments)?,
                }
            }
        })?;
        assert_disconnected(&error);
    }
    Ok(Outcome::Pass)
}
