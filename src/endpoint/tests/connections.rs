//! Connections, through the calls that programs make.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::Command;

use super::super::{Connection, Connector, Incoming, Listener, Settings};
use super::{PATIENCE, SHORT, address, on_twin};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Opcode, PostError};
use crate::sys::twin::{Call, SILENT, Twin};
use crate::verbs::Access;

/// Two connected ends, each with a receive of 64 bytes posted under number 1.
pub(super) fn connected(twin: &Arc<Twin>) -> (Connection, Connection) {
    connected_with(twin, Settings::new(), Settings::new())
}

fn connected_with(
    twin: &Arc<Twin>,
    active: Settings,
    passive: Settings,
) -> (Connection, Connection) {
    let registry = twin.registry();
    registry.stand_in();
    let listener = Listener::bind_with(address(), passive).unwrap();
    let accepted = on_twin(registry, move || listener.accept().unwrap());
    let mut active = Connector::new()
        .settings(active)
        .connect(address())
        .unwrap();
    let mut passive = accepted.join().unwrap();
    for end in [&mut active, &mut passive] {
        end.set_timeout(Some(PATIENCE));
    }
    (active, passive)
}

/// Sends a message from one end and returns it as the other gets it.
fn pass(from: &mut Connection, to: &mut Connection, message: &[u8]) -> Vec<u8> {
    let buffer = to.alloc(8192).unwrap();
    to.post_recv(7, buffer.slice(..).unwrap()).unwrap();
    from.send(message).unwrap();
    let received = to.recv_completion().unwrap();
    assert_eq!(received.wr_id(), 7);
    let length = received.result().unwrap().byte_len() as usize;
    buffer.read_vec(0, length).unwrap()
}

#[test]
fn messages_pass_in_both_directions() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    let long: Vec<u8> = (0..5000).map(|number| number as u8).collect();
    for message in [&b""[..], b"inline", &long, b"inline again", &long[..100]] {
        assert_eq!(pass(&mut active, &mut passive, message), message);
        assert_eq!(pass(&mut passive, &mut active, message), message);
    }
    assert_eq!(active.peer_addr(), Some(address()));
    assert_eq!(passive.local_addr(), Some(address()));
    assert_eq!(passive.peer_addr(), active.local_addr());
    active.close().unwrap();
    passive.close().unwrap();
    twin.assert_clean();
}

#[test]
fn memory_of_the_peer_is_written_and_read() {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let shared = passive.alloc_with(64, access).unwrap();
    let mut own = active.alloc(64).unwrap();
    own.write(0, b"written").unwrap();
    active
        .write(shared.remote().at(10), &[own.slice(..7).unwrap()])
        .unwrap();
    assert_eq!(shared.read_vec(10, 7).unwrap(), b"written");
    active
        .read(shared.remote().at(10), &[own.slice(20..27).unwrap()])
        .unwrap();
    assert_eq!(own.read_vec(20, 7).unwrap(), b"written");
    // Memory that the peer did not offer ends the connection.
    let closed = passive.alloc(64).unwrap();
    let error = active
        .write(closed.remote(), &[own.slice(..1).unwrap()])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WorkFailed);
    drop((active, passive));
    drop((shared, own, closed));
    twin.assert_clean();
}

#[test]
fn completions_come_to_whom_they_belong() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    let buffer = passive.alloc(64).unwrap();
    for number in 0..3 {
        passive
            .post_recv(number, buffer.slice(..16).unwrap())
            .unwrap();
    }
    let mut batch = active.batch();
    batch.send(10).signaled().inline(b"first").unwrap();
    batch.send(11).inline(b"not signaled").unwrap();
    batch.submit().unwrap();
    // A waiting call in between does not lose the batch's completion.
    active.send(b"third").unwrap();
    let completion = active.send_completion().unwrap();
    assert_eq!(
        (completion.wr_id(), completion.result().unwrap().opcode()),
        (10, Opcode::Send)
    );
    // Nor does one lose the messages that came meanwhile.
    let inbox = active.alloc(64).unwrap();
    active.post_recv(20, inbox.slice(..).unwrap()).unwrap();
    passive.send(b"answer").unwrap();
    for number in 0..3 {
        assert_eq!(passive.recv_completion().unwrap().wr_id(), number);
    }
    assert_eq!(active.recv_completion().unwrap().wr_id(), 20);
    active.set_timeout(Some(SHORT));
    assert_eq!(
        active.send_completion().unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

#[test]
fn numbers_that_endpoints_use_are_refused() {
    let twin = Twin::new();
    let (_active, mut passive) = connected(&twin);
    let buffer = passive.alloc(64).unwrap();
    for wr_id in [1 << 62, 1 << 63, u64::MAX] {
        let refused = passive.post_recv(wr_id, buffer.slice(..).unwrap());
        assert_eq!(refused, Err(PostError::NumberTaken { wr_id }));
        let refused = passive.batch().send(wr_id).inline(b"x");
        assert_eq!(refused, Err(PostError::NumberTaken { wr_id }));
    }
    passive
        .post_recv((1 << 62) - 1, buffer.slice(..).unwrap())
        .unwrap();
}

#[test]
fn what_was_sent_before_the_end_is_received_after_it() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    let buffer = passive.alloc(64).unwrap();
    for number in 0..3 {
        passive
            .post_recv(number, buffer.slice(..16).unwrap())
            .unwrap();
    }
    active.send(b"one").unwrap();
    active.send(b"two").unwrap();
    active.close().unwrap();
    for number in 0..2 {
        assert_eq!(passive.recv_completion().unwrap().wr_id(), number);
    }
    for _ in 0..2 {
        let ended = passive.recv_completion().unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Disconnected, "{ended}");
    }
    assert_eq!(
        passive.send(b"x").unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    drop((passive, buffer));
    twin.assert_clean();
}

#[test]
fn a_wait_ends_when_the_peer_goes_away() {
    let twin = Twin::new();
    let (active, mut passive) = connected(&twin);
    let waiting = thread::spawn(move || passive.recv_completion().unwrap_err());
    drop(active);
    assert_eq!(waiting.join().unwrap().kind(), ErrorKind::Disconnected);
    twin.assert_clean();
}

#[test]
fn a_wait_ends_when_the_device_is_removed() {
    let twin = Twin::new();
    let (active, mut passive) = connected(&twin);
    let waiting = thread::spawn(move || passive.recv_completion().unwrap_err());
    twin.remove_device(0);
    assert_eq!(waiting.join().unwrap().kind(), ErrorKind::DeviceRemoved);
    drop(active);
    twin.assert_clean();
}

#[test]
fn a_send_without_a_receive_times_out_and_the_next_one_is_told_apart() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    active.set_timeout(Some(SHORT));
    let long = [7; 1000];
    assert_eq!(active.send(&long).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(
        active.send(b"inline").unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    // The device may still read the first message: it arrives whole.
    active.set_timeout(Some(PATIENCE));
    let buffer = passive.alloc(3000).unwrap();
    for number in 0..3 {
        let start = number as usize * 1000;
        passive
            .post_recv(number, buffer.slice(start..start + 1000).unwrap())
            .unwrap();
    }
    active.send(b"third").unwrap();
    let lengths = [1000, 6, 5];
    for length in lengths {
        let received = passive.recv_completion().unwrap();
        assert_eq!(received.result().unwrap().byte_len(), length);
    }
    assert_eq!(buffer.read_vec(0, 1000).unwrap(), long);
    drop((active, passive, buffer));
    twin.assert_clean();
}

#[test]
fn the_two_sides_see_each_others_private_data() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = Listener::bind(address()).unwrap();
    let accepted = on_twin(registry, move || {
        let incoming = listener.incoming(Some(PATIENCE)).unwrap();
        assert_eq!(incoming.connection().private_data[..5], *b"hello");
        assert!(incoming.peer_addr().is_some());
        let answer = Settings::new().private_data(b"welcome").unwrap();
        incoming
            .settings(answer)
            .prepare()
            .unwrap()
            .establish()
            .unwrap()
    });
    let settings = Settings::new().private_data(b"hello").unwrap();
    let active = Connector::new()
        .settings(settings)
        .connect(address())
        .unwrap();
    drop((active, accepted.join().unwrap()));
    twin.assert_clean();
}

#[test]
fn receives_can_be_posted_before_the_handshake() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = Listener::bind(address()).unwrap();
    let accepted = on_twin(registry, move || {
        let mut connection = listener.accept().unwrap();
        connection.send(b"at once").unwrap();
        connection
    });
    let mut prepared = Connector::new().prepare(address()).unwrap();
    let buffer = prepared.alloc(64).unwrap();
    prepared.post_recv(3, buffer.slice(..).unwrap()).unwrap();
    let mut active = prepared.establish().unwrap();
    let passive = accepted.join().unwrap();
    assert_eq!(active.recv_completion().unwrap().wr_id(), 3);
    assert_eq!(buffer.read_vec(0, 7).unwrap(), b"at once");
    drop((active, passive, buffer));
    twin.assert_clean();
}

#[test]
fn a_rejection_comes_back_as_one() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = Listener::bind(address()).unwrap();
    let rejecting = on_twin(registry, move || {
        listener
            .incoming(Some(PATIENCE))
            .unwrap()
            .reject(b"full")
            .unwrap();
        // And one that nobody answers.
        drop(listener.incoming(Some(PATIENCE)).unwrap());
    });
    for _ in 0..2 {
        let error = Connector::new().connect(address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    }
    rejecting.join().unwrap();
    let nobody = Connector::new().connect(address()).unwrap_err();
    assert!(nobody.to_string().contains("nobody listens"), "{nobody}");
    twin.assert_clean();
}

#[test]
fn connecting_ends_in_time() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let connector = Connector::new().timeout(SHORT);
    let silent = connector.connect((SILENT, 7471)).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut);
    let listener = Listener::bind(address()).unwrap();
    let ignored = connector.connect(address()).unwrap_err();
    assert_eq!(
        (ignored.kind(), ignored.operation()),
        (ErrorKind::TimedOut, "connect")
    );
    // The request is there, and its sender is gone.
    let late = listener.incoming(Some(SHORT)).unwrap().prepare();
    let error = late
        .and_then(|prepared| prepared.establish())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
    assert_eq!(
        listener.incoming(Some(SHORT)).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    drop(listener);
    twin.assert_clean();
}

#[test]
fn names_without_an_address_are_refused() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let nothing: &[SocketAddr] = &[];
    let errors: [Error; 2] = [
        Connector::new().connect(nothing).unwrap_err(),
        Listener::bind(nothing).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn each_address_of_a_name_is_tried() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let addresses = [SocketAddr::new(SILENT, 7471), address()];
    let foreign = [SocketAddr::new(SILENT, 7471), address()];
    let listener = Listener::bind(&foreign[..]).unwrap();
    assert_eq!(listener.local_addr(), Some(address()));
    let accepted = on_twin(registry, move || listener.accept().unwrap());
    let active = Connector::new().connect(&addresses[..]).unwrap();
    drop((active, accepted.join().unwrap()));
    twin.assert_clean();
}

#[test]
fn settings_reach_the_queue_pair() {
    let twin = Twin::new();
    let settings = Settings::new()
        .send_depth(3)
        .recv_depth(5)
        .segments(2)
        .max_inline(100);
    let (active, _passive) = connected_with(&twin, settings, Settings::new());
    let granted = active.capabilities();
    assert!(granted.max_send_wr >= 3 && granted.max_recv_wr >= 5);
    assert!(granted.max_send_sge >= 2 && granted.max_inline_data >= 100);
}

/// What the active side does in the sweep below.
fn active_life() -> Result<()> {
    let mut connection = Connector::new().timeout(PATIENCE).connect(address())?;
    connection.set_timeout(Some(PATIENCE));
    let buffer = connection.alloc(64)?;
    connection.post_recv(1, buffer.slice(..)?)?;
    connection.send(b"request")?;
    connection.recv_completion()?;
    connection.close()
}

/// Echoes for whoever comes, until told to stop.
fn echo(stop: &AtomicBool) {
    let listener = Listener::bind(address()).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let Ok(incoming) = listener.incoming(Some(Duration::from_millis(1))) else {
            continue;
        };
        let _ = echo_once(incoming);
    }
}

fn echo_once(incoming: Incoming) -> Result<()> {
    let mut prepared = incoming.prepare()?;
    let buffer = prepared.alloc(64)?;
    prepared.post_recv(1, buffer.slice(..)?)?;
    let mut connection = prepared.establish()?;
    connection.set_timeout(Some(PATIENCE));
    let length = connection.recv_completion()?.result()?.byte_len() as usize;
    connection.send_from(&[buffer.slice(..length)?])?;
    // Until the peer closes.
    connection.recv_completion().map(drop)
}

#[test]
fn each_call_of_an_active_endpoint_refused_once() {
    for errno in [libc::ENOMEM, libc::EINTR] {
        let twin = Twin::new();
        let registry = twin.registry();
        registry.stand_in();
        let stop = Arc::new(AtomicBool::new(false));
        let echoing = on_twin(registry, {
            let stop = stop.clone();
            move || echo(&stop)
        });
        while !twin.calls().iter().any(|call| call.is_cm(Command::Listen)) {
            thread::yield_now();
        }
        // Miri is slow, and refuses some of the calls only.
        let stride = if cfg!(miri) { 20 } else { 1 };
        let outcomes = (0..)
            .step_by(stride)
            .map_while(|skip| refuse_one(&twin, skip, errno));
        let failures = outcomes.filter(Result::is_err).count();
        // Of more than fifty calls some are repeated or have a second way.
        assert!(failures >= 20 / stride, "{failures}");
        active_life().unwrap();
        stop.store(true, Ordering::Relaxed);
        echoing.join().unwrap();
        twin.assert_clean();
    }
}

/// A life with one call of this thread refused. `None` when it has fewer calls.
fn refuse_one(twin: &Twin, skip: usize, errno: i32) -> Option<Result<()>> {
    let before = twin.refused().len();
    twin.fail_here(skip, errno, |_| true);
    let outcome = active_life();
    twin.behave();
    let refused = twin.refused();
    let call: &Call = refused.get(before)?;
    if let Err(error) = &outcome {
        assert_eq!(error.errno(), Some(errno), "{call:?}: {error}");
    }
    Some(outcome)
}

#[test]
fn a_sleeper_is_woken_when_another_thread_destroys_the_id_or_its_queue_pair() {
    let twin = Twin::new();
    for destroy in [
        (|id| id.destroy()) as fn(&crate::cm::CmId) -> Result<()>,
        |id| id.destroy_qp().map(drop),
    ] {
        let (mut active, _passive) = connected(&twin);
        let id = active.id().clone();
        active.set_timeout(None);
        let sleeper = on_twin(twin.registry(), move || {
            active.recv_completion().unwrap_err()
        });
        thread::sleep(SHORT);
        destroy(&id).unwrap();
        assert_eq!(sleeper.join().unwrap().kind(), ErrorKind::Destroyed);
    }
}

#[test]
fn closing_a_listener_ends_the_waits_for_requests() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let listener = Arc::new(Listener::bind(address()).unwrap());
    let waiting = Arc::clone(&listener);
    let accepting = on_twin(twin.registry(), move || waiting.accept().unwrap_err());
    thread::sleep(SHORT);
    listener.close().unwrap();
    assert_eq!(accepting.join().unwrap().kind(), ErrorKind::Closed);
}
