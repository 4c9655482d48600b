//! Calls that wait while another thread takes away what they wait for.

use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use rdmacm::{CmId, ConnParam, Connection, ErrorKind, EventChannel, Listener, PortSpace};
use rdmacm::{QpAttr, Result, SyncId};

use super::sync;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Plan, QUIET, any_port, endpoints, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        readers_of_a_closed_channel,
        accepts_of_a_closed_listener,
        steps_of_a_destroyed_id,
        completions_of_a_destroyed_id,
        completions_of_a_destroyed_connection,
    ]
}

/// For ever, and for a while.
const TIMEOUTS: [Option<Duration>; 2] = [None, Some(PATIENCE)];

/// Ends what another thread waits for, and returns how the wait ended.
fn ended<T: Debug + Send>(
    wait: impl FnOnce() -> Result<T> + Send,
    end: impl FnOnce() -> Result<()>,
) -> ErrorKind {
    thread::scope(|scope| {
        let waiting = scope.spawn(wait);
        thread::sleep(QUIET);
        let waited = !waiting.is_finished();
        // Whatever it returns, the wait must end, or nothing here does.
        let end = end();
        let outcome = waiting.join().expect("no thread panics");
        assert!(waited, "it did not wait: {outcome:?}");
        end.expect("it can be ended");
        outcome.expect_err("there is nothing to wait for").kind()
    })
}

fn readers_of_a_closed_channel() -> TestResult {
    for timeout in TIMEOUTS {
        let channel = EventChannel::open()?;
        let _listener = listen(&channel, any_port())?;
        let close = || {
            channel.close();
            Ok(())
        };
        let two_readers = || {
            thread::scope(|scope| {
                let another = scope.spawn(|| channel.next_event(timeout));
                let outcome = channel.expect("wait", timeout, |_| true);
                let other = another.join().expect("no thread panics");
                assert_eq!(
                    other.map_err(|error| error.kind()).expect_err("no event"),
                    ErrorKind::Closed
                );
                outcome
            })
        };
        assert_eq!(ended(two_readers, close), ErrorKind::Closed);
        let late = channel.next_event(timeout).expect_err("it is closed");
        assert_eq!(late.kind(), ErrorKind::Closed);
    }
    Ok(Outcome::Pass)
}

fn accepts_of_a_closed_listener() -> TestResult {
    let waits: [fn(&Listener) -> Result<()>; 3] = [
        |listener| listener.accept().map(drop),
        |listener| listener.incoming(None).map(drop),
        |listener| listener.incoming(Some(PATIENCE)).map(drop),
    ];
    for wait in waits {
        let listener = Listener::bind(any_port())?;
        let kind = ended(|| wait(&listener), || listener.close());
        assert_eq!(kind, ErrorKind::Closed);
        let late = wait(&listener).expect_err("it is closed");
        assert_eq!(late.kind(), ErrorKind::Closed);
    }
    Ok(Outcome::Pass)
}

/// One end of a connection waits for the other one, which does nothing.
fn steps_of_a_destroyed_id() -> TestResult {
    for timeout in TIMEOUTS {
        let channel = EventChannel::open()?;
        let listener = listen(&channel, any_port())?;
        let peer = listener.local_addr().expect("it listens");

        let mut client = sync::client(peer)?;
        client.set_timeout(timeout);
        assert_destroyed(&mut client, "connect", |id| id.connect(&ConnParam::new()));
        drop(request(&channel)?);

        // A client that never looks at the answer.
        let _asking = Plan::default().ask(peer)?;
        let mut server = SyncId::from_id(request(&channel)?.into_id())?;
        server.set_timeout(timeout);
        server.create_qp(&QpAttr::default())?;
        assert_destroyed(&mut server, "accept", |id| id.accept(&ConnParam::new()));

        // A server that never looks at the goodbye.
        let (mut leaving, _staying) = connected(timeout)?;
        assert_destroyed(&mut leaving, "disconnect", SyncId::disconnect);

        let mut waiting = SyncId::create(PortSpace::Tcp)?;
        waiting.set_timeout(timeout);
        waiting.bind_addr(any_port())?;
        waiting.listen(0)?;
        assert_destroyed(&mut waiting, "get_request", |id| id.get_request().map(drop));
    }
    Ok(Outcome::Pass)
}

fn completions_of_a_destroyed_id() -> TestResult {
    for timeout in TIMEOUTS {
        let (mut client, mut server) = connected(timeout)?;
        assert_destroyed(&mut client, "recv_completion", |id| {
            id.recv_completion().map(drop)
        });
        // The peer's end is told in the meantime.
        let error = server.send_completion().expect_err("nothing was sent");
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");

        let (mut client, _server) = connected(timeout)?;
        assert_destroyed(&mut client, "send_completion", |id| {
            id.send_completion().map(drop)
        });
    }
    Ok(Outcome::Pass)
}

/// Destroys an id under a call of it that waits. Later calls fail in the same way.
fn assert_destroyed(id: &mut SyncId, call: &str, wait: fn(&mut SyncId) -> Result<()>) {
    let end = id.id().clone();
    let kind = ended(|| wait(id), || end.destroy());
    assert_eq!(kind, ErrorKind::Destroyed, "{call}");
    let late = id.disconnect().expect_err("it is destroyed");
    assert_eq!(late.kind(), ErrorKind::Destroyed, "after {call}: {late}");
}

/// A client and a server that wait this long.
fn connected(timeout: Option<Duration>) -> Result<(SyncId, SyncId)> {
    let (mut client, mut server) = sync::connect_over(any_port())?;
    client.set_timeout(timeout);
    server.set_timeout(timeout);
    Ok((client, server))
}

/// By its id or by its queue pair, while it waits for either kind of completion.
fn completions_of_a_destroyed_connection() -> TestResult {
    let ends: [fn(&CmId) -> Result<()>; 2] = [CmId::destroy, |id| id.destroy_qp().map(drop)];
    let waits: [fn(&mut Connection) -> Result<()>; 2] = [
        |connection| connection.recv_completion().map(drop),
        |connection| connection.send_completion().map(drop),
    ];
    for ((end, wait), timeout) in ends
        .into_iter()
        .flat_map(|end| waits.map(|wait| (end, wait)))
        .zip(TIMEOUTS.into_iter().cycle())
    {
        let (mut client, server) = endpoints()?;
        client.set_timeout(timeout);
        let id = client.id().clone();
        let kind = ended(|| wait(&mut client), || end(&id));
        assert_eq!(kind, ErrorKind::Destroyed);
        drop(server);
    }
    Ok(Outcome::Pass)
}
