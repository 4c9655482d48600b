//! Requests at a listener: answered, dropped, or outliving it.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma::Command;

use super::pair::{self, Listening, Side, expect, furnish, listen, resolve};
use crate::cm::{ConnParam, Event, EventChannel};
use crate::error::ErrorKind;
use crate::sys::twin::Twin;

/// A request that waits at a listener, with the side that sent it.
fn requested(twin: &Arc<Twin>) -> (Listening, Side) {
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let active = furnish(twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    (listening, active)
}

#[test]
fn a_rejection_tells_why_and_leaves_nothing() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    let Event::ConnectRequest(request) = expect(&listening.channel, "CONNECT_REQUEST").unwrap()
    else {
        unreachable!("the name was checked")
    };
    request.id().reject(b"not today").unwrap();
    assert_eq!(
        request.id().reject(b"").unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    let rejected = expect(&active.channel, "REJECTED").unwrap();
    let data = &rejected.content().unwrap().connection().private_data;
    assert_eq!((&data[..9], data.len()), (&b"not today"[..], 148));
    assert_eq!(rejected.into_error("connect").kind(), ErrorKind::Rejected);
    drop((request, listening, active));
    twin.assert_clean();
}

#[test]
fn dropping_a_request_rejects_the_peer() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    drop(expect(&listening.channel, "CONNECT_REQUEST").unwrap());
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn destroying_a_listener_rejects_the_requests_that_nobody_fetched() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    listening.id.destroy().unwrap();
    expect(&active.channel, "REJECTED").unwrap();
    assert!(listening.channel.try_next_event().unwrap().is_none());
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn a_fetched_request_survives_its_listener() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (listening, active) = requested(&twin);
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    listening.id.destroy().unwrap();
    drop(listening);
    let passive = furnish(&twin, channel, id).unwrap();
    passive.id.accept(&ConnParam::new()).unwrap();
    expect(&active.channel, "ESTABLISHED").unwrap();
    expect(&passive.channel, "ESTABLISHED").unwrap();
    drop((active, passive));
    twin.assert_clean();
}

#[test]
fn a_request_for_a_listener_that_is_gone_is_rejected() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    twin.tamper(|call, _, answer| {
        if call.is_cm(Command::GetEvent) {
            answer[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        }
    });
    assert!(listening.channel.try_next_event().unwrap().is_none());
    twin.behave();
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn a_request_that_cannot_be_taken_over_is_rejected() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    twin.fail(0, libc::ENOMEM, |call| call.is_cm(Command::Query));
    let lost = listening.channel.try_next_event().unwrap().unwrap();
    assert!(matches!(lost, Event::RequestLost(_)), "{lost:?}");
    assert_eq!(lost.id(), &listening.id);
    assert_eq!(lost.into_error("accept").errno(), Some(libc::ENOMEM));
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn a_migrated_listener_takes_its_requests_along() {
    let twin = Twin::new();
    let (listening, active) = requested(&twin);
    let first = listening.channel;
    // Twice: the request's id stays on the first of three channels.
    let [second, third] = [(); 2].map(|()| EventChannel::open_on(first.registry()).unwrap());
    listening.id.migrate(&second).unwrap();
    listening.id.migrate(&third).unwrap();
    drop((first, second));
    let listening = Listening {
        id: listening.id,
        channel: third,
    };
    let (channel, id) = pair::fetch(listening.channel.registry(), &listening).unwrap();
    let passive = furnish(&twin, channel, id).unwrap();
    passive.id.accept(&ConnParam::new()).unwrap();
    expect(&active.channel, "ESTABLISHED").unwrap();
    let before = twin.census().files;
    listening.id.destroy().unwrap();
    assert_eq!(before - twin.census().files, 2, "its former channels");
    drop((listening, active, passive));
    twin.assert_clean();
}
