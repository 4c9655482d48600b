//! What the library does to a queue pair during and after a handshake.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma::{Command, EventType};
use rdmacm_kernel_abi::uverbs;

use super::pair::{self, Pair, Side, connect, exchange, expect, furnish, listen, resolve};
use crate::cm::{ConnParam, Event, Status};
use crate::error::ErrorKind;
use crate::fastpath::{Completion, CompletionStatus};
use crate::sys::twin::{Call, Twin};

/// Both sides up to the passive side's acceptance.
fn accepted(twin: &Arc<Twin>, active: &ConnParam, passive: &ConnParam) -> Pair {
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let asking = furnish(twin, channel, id).unwrap();
    asking.id.connect(active).unwrap();
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    let answering = furnish(twin, channel, id).unwrap();
    answering.id.accept(passive).unwrap();
    Pair {
        listening,
        active: asking,
        passive: answering,
    }
}

/// The calls about queue pairs and acceptances, as one word each.
fn story(twin: &Twin) -> Vec<&'static str> {
    let word = |call: &Call| match call {
        Call::Cm(Command::InitQpAttr, _) => Some("propose"),
        Call::Cm(Command::Accept, _) => Some("accept"),
        Call::Cm(Command::Disconnect, _) => Some("disconnect"),
        call if call.is_write(uverbs::Command::MODIFY_QP) => Some("modify"),
        _ => None,
    };
    twin.calls().iter().filter_map(word).collect()
}

#[test]
fn a_side_can_send_before_the_other_hears_that_it_accepted() {
    let twin = Twin::new();
    let Pair {
        listening: _listening,
        active,
        passive,
    } = accepted(&twin, &ConnParam::new(), &ConnParam::new());
    let story_of_accept = ["propose", "modify", "propose", "modify", "accept"];
    assert_eq!(story(&twin)[2..], story_of_accept);
    twin.forget_calls();
    expect(&active.channel, "ESTABLISHED").unwrap();
    assert_eq!(story(&twin), story_of_accept);
    expect(&passive.channel, "ESTABLISHED").unwrap();
}

#[test]
fn an_early_message_of_the_active_side_arrives() {
    let twin = Twin::new();
    let Pair {
        listening: _listening,
        mut active,
        mut passive,
    } = accepted(&twin, &ConnParam::new(), &ConnParam::new());
    expect(&active.channel, "ESTABLISHED").unwrap();
    // The passive side has not read its event yet.
    active.send_inline(b"early").unwrap();
    passive.wait_for(&[1]).unwrap();
    assert_eq!(passive.buffer.read_vec(0, 5).unwrap(), b"early");
}

#[test]
fn depths_are_the_least_that_both_sides_and_the_device_can() {
    let twin = Twin::new();
    let asking = ConnParam::new().responder_resources(3).initiator_depth(200);
    let registry = twin.registry();
    let (channel, id) = resolve(registry).unwrap();
    let side = furnish(&twin, channel, id).unwrap();
    assert_eq!(
        side.id.connect(&asking).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    drop(side);

    let asking = ConnParam::new().responder_resources(3).initiator_depth(5);
    let answering = ConnParam::new().responder_resources(4);
    let Pair {
        listening: _listening,
        active,
        passive: _passive,
    } = accepted(&twin, &asking, &answering);
    let event = expect(&active.channel, "ESTABLISHED").unwrap();
    let agreed = event.content().unwrap().connection();
    // Seen from the active side: it answers 3 at a time, and has 4 under way.
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (3, 4));
}

#[test]
fn private_data_of_the_acceptance_comes_with_the_event() {
    let twin = Twin::new();
    let answering = ConnParam::new().private_data(b"welcome").unwrap();
    let Pair {
        listening: _listening,
        active,
        passive: _passive,
    } = accepted(&twin, &ConnParam::new(), &answering);
    let event = expect(&active.channel, "ESTABLISHED").unwrap();
    let data = &event.content().unwrap().connection().private_data;
    assert_eq!((&data[..7], data.len()), (&b"welcome"[..], 196));
}

#[test]
fn the_aftermath_of_a_failed_handshake_is_not_reported() {
    let twin = Twin::new();
    let Pair {
        listening,
        active,
        passive,
    } = accepted(&twin, &ConnParam::new(), &ConnParam::new());
    twin.fail(0, libc::ENOMEM, |call| {
        call.is_write(uverbs::Command::MODIFY_QP)
    });
    let failed = expect(&active.channel, "CONNECT_ERROR").unwrap();
    assert_eq!(failed.status(), Status::Errno(libc::ENOMEM));
    // The kernel still believes in the connection, and its peer ends it.
    passive.id.destroy().unwrap();
    twin.inject(active.id.handle(), EventType::DISCONNECTED, |_| ());
    assert!(active.channel.try_next_event().unwrap().is_none());
    drop((listening, active, passive, failed));
    twin.assert_clean();
}

/// The state that the kernel has a side's queue pair in, told by what becomes of a receive.
fn is_flushed(side: &mut Side) -> bool {
    let mut entries = [Completion::default()];
    let completions = side.cq.poll(&mut entries);
    completions.first().is_some_and(|completion| {
        completion
            .result()
            .is_err_and(|failed| failed.status == CompletionStatus::Flushed)
    })
}

#[test]
fn a_rejection_flushes_what_is_posted() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let mut active = furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    drop(expect(&listening.channel, "CONNECT_REQUEST").unwrap());
    assert!(!is_flushed(&mut active));
    expect(&active.channel, "REJECTED").unwrap();
    assert!(is_flushed(&mut active));
}

#[test]
fn a_disconnect_flushes_what_is_posted_and_the_peers_does_not() {
    let twin = Twin::new();
    let Pair {
        mut active,
        mut passive,
        ..
    } = connect(&twin, twin.registry()).unwrap();
    twin.forget_calls();
    active.id.disconnect().unwrap();
    assert_eq!(story(&twin), ["modify", "disconnect"]);
    assert!(is_flushed(&mut active));
    expect(&passive.channel, "DISCONNECTED").unwrap();
    assert!(!is_flushed(&mut passive));
    passive.id.disconnect().unwrap();
    assert!(is_flushed(&mut passive));
    for side in [&active, &passive] {
        side.id.disconnect().unwrap();
    }
}

#[test]
fn a_refused_acceptance_flushes_what_is_posted_and_rejects_the_peer_in_the_end() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let active = furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    let mut passive = furnish(&twin, channel, id).unwrap();
    twin.fail(0, libc::ENOMEM, |call| call.is_cm(Command::Accept));
    passive.id.accept(&ConnParam::new()).unwrap_err();
    assert!(is_flushed(&mut passive));
    let again = passive.id.accept(&ConnParam::new()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InvalidState);
    drop(passive);
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn a_side_that_cannot_get_ready_rejects_the_peer_at_once() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let active = furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    let passive = furnish(&twin, channel, id).unwrap();
    twin.fail(0, libc::ENOMEM, |call| call.is_cm(Command::InitQpAttr));
    let error = passive.id.accept(&ConnParam::new()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOMEM));
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active, passive));
    twin.assert_clean();
}

#[test]
fn accepting_a_peer_that_has_given_up_says_so() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let active = furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    let passive = furnish(&twin, channel, id).unwrap();
    drop(active);
    let error = passive.id.accept(&ConnParam::new()).unwrap_err();
    assert!(error.to_string().contains("given up"), "{error}");
    drop((listening, passive));
    twin.assert_clean();
}

#[test]
fn a_connection_without_a_queue_pair_of_ours_is_left_to_the_program() {
    let twin = Twin::new();
    let Pair {
        listening: _listening,
        active,
        passive: _passive,
    } = accepted(&twin, &ConnParam::new(), &ConnParam::new());
    active.id.destroy_qp().unwrap();
    twin.forget_calls();
    let event = active.channel.try_next_event().unwrap().unwrap();
    assert!(matches!(event, Event::ConnectResponse(_)), "{event:?}");
    assert_eq!(story(&twin), [""; 0]);
}

#[test]
fn moving_the_queue_pair_asks_the_kernel_for_no_state() {
    let twin = Twin::new();
    let mut pair = connect(&twin, twin.registry()).unwrap();
    exchange(&mut pair).unwrap();
    assert!(
        !twin
            .calls()
            .iter()
            .any(|call| call.is_write(uverbs::Command::QUERY_QP))
    );
}
