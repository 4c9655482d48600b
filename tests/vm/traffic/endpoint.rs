//! The endpoint: calls that wait, and what they leave behind when they do not get what they want.

use std::time::{Duration, Instant};

use rdmacm::{
    Access, Buffer, Connection, ConnectionData, Connector, Error, ErrorKind, Listener, Opcode,
    PostError, Prepared, Result, Settings,
};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, assert_holds, endpoints, endpoints_with, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        messages_of_any_size,
        a_timeout_holds_and_harms_nothing,
        a_message_that_timed_out_arrives_late,
        receives_before_connecting,
        receives_before_accepting,
        batches_and_waiting_calls_mix,
        writes_and_reads,
        a_request_shows_its_private_data,
        a_rejection_reaches_the_peer,
        the_end_of_a_connection_is_told_again_and_again,
        what_was_sent_before_the_end_arrives,
    ]
}

/// Two ends whose calls do not wait for ever.
fn patient_endpoints() -> Result<(Connection, Connection)> {
    let (mut client, mut server) = endpoints()?;
    client.set_timeout(Some(PATIENCE));
    server.set_timeout(Some(PATIENCE));
    Ok((client, server))
}

fn messages_of_any_size() -> TestResult {
    let (mut client, mut server) = patient_endpoints()?;
    for (seed, length) in (0..).zip([1, 64, 65, 4096, 65536, 1 << 20]) {
        pass(&mut client, &mut server, &pattern(seed, length))?;
        pass(&mut server, &mut client, &pattern(seed + 100, length))?;
    }
    client.close()?;
    server.close()?;
    Ok(Outcome::Pass)
}

/// Sends a message and checks it at the other end.
fn pass(from: &mut Connection, to: &mut Connection, message: &[u8]) -> Result<()> {
    let inbox = to.alloc(message.len())?;
    to.post_recv(7, inbox.slice(..)?)?;
    from.send(message)?;
    let received = to.recv_completion()?;
    let length = received.result()?.byte_len() as usize;
    assert_eq!((received.wr_id(), length), (7, message.len()));
    assert_holds(&inbox, 0, message);
    Ok(())
}

const SHORT: Duration = Duration::from_millis(200);

/// Checks that a call runs out of a timeout of [`SHORT`], neither sooner nor much later.
fn assert_times_out<T: std::fmt::Debug>(call: impl FnOnce() -> Result<T>) {
    let start = Instant::now();
    let error = call().expect_err("nothing is there");
    let waited = start.elapsed();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(
        (SHORT..Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
    assert!(error.to_string().contains("200ms"), "{error}");
}

fn a_timeout_holds_and_harms_nothing() -> TestResult {
    let (mut client, mut server) = patient_endpoints()?;
    let inbox = server.alloc(1)?;
    server.post_recv(7, inbox.slice(..)?)?;
    server.set_timeout(Some(SHORT));
    assert_times_out(|| server.recv_completion());
    server.set_timeout(Some(PATIENCE));
    client.send(b"x")?;
    assert_eq!(server.recv_completion()?.wr_id(), 7);
    let listener = Listener::bind(any_port())?;
    assert_times_out(|| listener.incoming(Some(SHORT)));
    Ok(Outcome::Pass)
}

/// A send that gave up waiting is still under way. Its message arrives when there is a receive
/// for it, unspoilt by those sent after it.
fn a_message_that_timed_out_arrives_late() -> TestResult {
    for length in [10, 1000] {
        let (mut client, mut server) = patient_endpoints()?;
        client.set_timeout(Some(SHORT));
        assert_times_out(|| client.send(&pattern(1, length)));
        assert_times_out(|| client.send(&pattern(2, length)));
        client.set_timeout(Some(PATIENCE));

        let inbox = server.alloc(3 * length)?;
        for message in 0..3 {
            let place = message * length..(message + 1) * length;
            server.post_recv(message as u64, inbox.slice(place)?)?;
        }
        client.send(&pattern(3, length))?;
        for message in 0..3 {
            assert_eq!(server.recv_completion()?.wr_id(), message);
        }
        for message in 0..3 {
            assert_holds(
                &inbox,
                message * length,
                &pattern(message as u64 + 1, length),
            );
        }
    }
    Ok(Outcome::Pass)
}

/// The client and the server, both before the handshake's end.
fn meet(client: Settings) -> Result<(Prepared, Listener)> {
    let listener = Listener::bind(any_port())?;
    let address = listener.local_addr().expect("a listener has an address");
    let prepared = Connector::new().settings(client).prepare(address)?;
    Ok((prepared, listener))
}

/// F116: a message that the server sends as soon as there is a connection finds its receive. Over iWARP
/// a server has to wait for its client.
fn receives_before_connecting() -> TestResult {
    let (mut asking, listener) = meet(Settings::new())?;
    let inbox = asking.alloc(5)?;
    asking.post_recv(1, inbox.slice(..)?)?;
    let (client, server) = std::thread::scope(|scope| {
        let greeting = scope.spawn(|| greet(listener.incoming(Some(PATIENCE))?.prepare()?));
        (
            asking.establish(),
            greeting.join().expect("no thread panics"),
        )
    });
    let (client, _server) = (client?, server?);
    assert_greeted(client, &inbox)
}

/// F116 on the other side: what the client sends as soon as there is a connection.
fn receives_before_accepting() -> TestResult {
    let (asking, listener) = meet(Settings::new())?;
    let (inbox, client, server) = std::thread::scope(|scope| {
        let greeting = scope.spawn(|| greet(asking));
        let mut accepting = listener.incoming(Some(PATIENCE))?.prepare()?;
        let inbox = accepting.alloc(5)?;
        accepting.post_recv(1, inbox.slice(..)?)?;
        let server = accepting.establish()?;
        let client = greeting.join().expect("no thread panics")?;
        Ok::<_, Error>((inbox, client, server))
    })?;
    let _client = client;
    assert_greeted(server, &inbox)
}

/// Completes the handshake and sends a message, which waits at most so long for its receive.
fn greet(prepared: Prepared) -> Result<Connection> {
    let mut connection = prepared.establish()?;
    connection.set_timeout(Some(Duration::from_millis(500)));
    connection.send(b"hello")?;
    Ok(connection)
}

fn assert_greeted(mut connection: Connection, inbox: &Buffer) -> TestResult {
    connection.set_timeout(Some(PATIENCE));
    assert_eq!(connection.recv_completion()?.wr_id(), 1);
    assert_holds(inbox, 0, b"hello");
    Ok(Outcome::Pass)
}

/// A call that waits for its own completion puts those of others aside and loses none.
fn batches_and_waiting_calls_mix() -> TestResult {
    let (mut client, mut server) = patient_endpoints()?;
    let inbox = server.alloc(16)?;
    for wr_id in 0..4 {
        server.post_recv(wr_id, inbox.slice(..)?)?;
    }
    let own = client.alloc(8)?;
    client.post_recv(90, own.slice(..)?)?;
    server.send(b"early")?;
    let mut batch = client.batch();
    for wr_id in 1..=3 {
        batch.send(wr_id).signaled().inline(&[wr_id as u8])?;
    }
    batch.submit()?;
    client.send(b"waits")?;
    for wr_id in 1..=3 {
        assert_eq!(client.send_completion()?.wr_id(), wr_id);
    }
    let early = client.recv_completion()?;
    assert_eq!(
        (early.wr_id(), early.result()?.opcode()),
        (90, Opcode::Receive)
    );
    for (wr_id, length) in [(0, 1), (1, 1), (2, 1), (3, 5)] {
        let received = server.recv_completion()?;
        assert_eq!(
            (received.wr_id(), received.result()?.byte_len()),
            (wr_id, length)
        );
    }
    let taken = client.post_recv(1 << 62, own.slice(..)?);
    assert_eq!(taken, Err(PostError::NumberTaken { wr_id: 1 << 62 }));
    Ok(Outcome::Pass)
}

fn writes_and_reads() -> TestResult {
    let (mut client, mut server) = patient_endpoints()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let open = server.alloc_with(1000, access)?;
    let mut own = client.alloc(1000)?;
    own.write(0, &pattern(1, 1000))?;
    client.write(open.remote(), &[own.slice(..)?])?;
    assert_holds(&open, 0, &pattern(1, 1000));
    let back = client.alloc(500)?;
    client.read(open.remote().at(500), &[back.slice(..)?])?;
    assert_holds(&back, 0, &pattern(1, 1000)[500..]);
    pass(&mut server, &mut client, b"still connected")?;

    let closed = server.alloc(1000)?;
    let refused = client.write(closed.remote(), &[own.slice(..)?]);
    let error = refused.expect_err("the memory is the server's own");
    assert_eq!(error.kind(), ErrorKind::WorkFailed);
    assert!(error.to_string().contains("remote access error"), "{error}");
    assert_holds(&closed, 0, &[0; 1000]);
    Ok(Outcome::Pass)
}

/// F69: padded with zeros to what the message holds.
fn a_request_shows_its_private_data() -> TestResult {
    let (asking, listener) = meet(Settings::new().private_data(b"who is there?")?)?;
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| asking.establish());
        let incoming = listener.incoming(Some(PATIENCE))?;
        let ConnectionData { private_data, .. } = incoming.connection().clone();
        assert_eq!(private_data.len(), 56);
        assert_eq!(private_data[..13], *b"who is there?");
        assert_eq!(private_data[13..], [0; 43]);
        assert_eq!(
            incoming.peer_addr().map(|peer| peer.ip()),
            Some(any_port().ip())
        );
        let server = incoming.prepare()?.establish()?;
        let client = client.join().expect("no thread panics")?;
        assert_eq!(server.peer_addr(), client.local_addr());
        assert_eq!(client.peer_addr(), server.local_addr());
        Ok::<_, Error>(client)
    })?;
    client.close()?;
    Ok(Outcome::Pass)
}

/// F07, F25: a rejection, and a request that is dropped without an answer, end the peer's
/// connecting and leave nothing behind.
fn a_rejection_reaches_the_peer() -> TestResult {
    for _ in 0..10 {
        for is_dropped in [false, true] {
            let (asking, listener) = meet(Settings::new())?;
            let refused = std::thread::scope(|scope| {
                let client = scope.spawn(|| asking.establish());
                let incoming = listener.incoming(Some(PATIENCE))?;
                match is_dropped {
                    true => drop(incoming),
                    false => incoming.reject(b"not you")?,
                }
                Ok::<_, Error>(client.join().expect("no thread panics"))
            })?;
            let error = refused.map(drop).expect_err("rejected");
            assert_eq!(error.kind(), ErrorKind::Rejected);
            assert!(error.to_string().contains("program rejected"), "{error}");
        }
    }
    Ok(Outcome::Pass)
}

fn the_end_of_a_connection_is_told_again_and_again() -> TestResult {
    let settings = Settings::new().send_depth(4);
    let (mut client, server) = endpoints_with(settings.clone(), settings)?;
    client.set_timeout(Some(PATIENCE));
    let inbox = client.alloc(1)?;
    client.post_recv(1, inbox.slice(..)?)?;
    server.close()?;
    for _ in 0..3 {
        let errors = [
            client.recv_completion().map(drop),
            client.send(b"anybody?"),
            client.send(&[0; 1000]),
            client.send_completion().map(drop),
        ];
        for ended in errors {
            let error = ended.expect_err("the connection ended");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        }
    }
    client.close()?;
    Ok(Outcome::Pass)
}

/// The messages of a peer that sends and goes away are received before its end is told.
fn what_was_sent_before_the_end_arrives() -> TestResult {
    let (mut client, mut server) = patient_endpoints()?;
    let inbox = server.alloc(3)?;
    for wr_id in 0..3 {
        let place = wr_id as usize;
        server.post_recv(wr_id, inbox.slice(place..=place)?)?;
    }
    client.send(b"1")?;
    client.send(b"2")?;
    drop(client);
    assert_eq!(server.recv_completion()?.wr_id(), 0);
    assert_eq!(server.recv_completion()?.wr_id(), 1);
    let ended = server.recv_completion().expect_err("the third never comes");
    assert_eq!(ended.kind(), ErrorKind::Disconnected);
    assert_holds(&inbox, 0, b"12");
    Ok(Outcome::Pass)
}
