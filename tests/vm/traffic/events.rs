//! The rules of connection manager events: who gets which, and that nothing waits for them.

use std::time::{Duration, Instant};

use rdmacm::{
    CmId, ConnParam, ErrorKind, Event, EventChannel, IdEvent, RejectReason, Result, Status,
};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    End, PATIENCE, Pair, Plan, QUIET, any_port, expect, listen, pattern, request, resolve,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        private_data_of_every_message,
        depths_are_seen_from_the_own_side,
        a_closed_port_and_a_refusal_have_their_reasons,
        destroying_does_not_wait_for_events,
        a_request_survives_its_listener,
        unread_events_of_destroyed_ids_are_gone,
        events_outlive_their_channel,
        migration_takes_unread_events_along,
        both_sides_hear_of_the_end,
    ]
}

/// The content of an event that is no request.
fn content(event: &Event) -> &IdEvent {
    event.content().expect("an event of an id")
}

fn assert_padded(private_data: &[u8], sent: &[u8], length: usize) {
    assert_eq!(private_data.len(), length);
    assert_eq!(private_data[..sent.len()], *sent);
    assert!(private_data[sent.len()..].iter().all(|byte| *byte == 0));
}

/// F25, F68, F69: up to 56, 196 and 148 bytes arrive, padded to that length.
fn private_data_of_every_message() -> TestResult {
    for (asked, answered) in [(0, 0), (5, 3), (56, 196)] {
        let (asked, answered) = (pattern(1, asked), pattern(2, answered));
        let plan = Plan {
            asked: ConnParam::new().private_data(&asked)?,
            answered: ConnParam::new().private_data(&answered)?,
            ..Plan::default()
        };
        let channel = EventChannel::open()?;
        let listener = listen(&channel, plan.address)?;
        let client = plan.ask(listener.local_addr().expect("it listens"))?;
        let request = request(&channel)?;
        assert_padded(&request.connection().private_data, &asked, 56);
        let server = plan.end(request.into_id(), channel)?;
        server.id.accept(&plan.answered)?;
        let established = expect(&client.channel, "ESTABLISHED")?;
        assert_padded(
            &content(&established).connection().private_data,
            &answered,
            196,
        );
        let established = expect(&server.channel, "ESTABLISHED")?;
        assert_padded(&content(&established).connection().private_data, &[], 0);
    }
    for length in [0, 4, 148] {
        let channel = EventChannel::open()?;
        let listener = listen(&channel, any_port())?;
        let client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
        request(&channel)?.into_id().reject(&pattern(3, length))?;
        let rejected = expect(&client.channel, "REJECTED")?;
        assert_padded(
            &content(&rejected).connection().private_data,
            &pattern(3, length),
            148,
        );
    }
    Ok(Outcome::Pass)
}

/// F71: what one side is to answer is what the other has under way, and never more than either
/// wants.
fn depths_are_seen_from_the_own_side() -> TestResult {
    let plan = Plan {
        asked: ConnParam::new().responder_resources(3).initiator_depth(7),
        answered: ConnParam::new().responder_resources(5).initiator_depth(2),
        ..Plan::default()
    };
    let channel = EventChannel::open()?;
    let listener = listen(&channel, plan.address)?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let request = request(&channel)?;
    let offered = request.connection();
    assert_eq!(
        (offered.responder_resources, offered.initiator_depth),
        (7, 3)
    );
    let server = plan.end(request.into_id(), channel)?;
    server.id.accept(&plan.answered)?;
    let established = expect(&client.channel, "ESTABLISHED")?;
    let agreed = content(&established).connection();
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (2, 5));
    assert_eq!(agreed.qp_num, server.qp.number());
    Ok(Outcome::Pass)
}

/// F24: reasons from the wire are told apart from errnos.
fn a_closed_port_and_a_refusal_have_their_reasons() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let address = listener.local_addr().expect("it listens");
    let refused = Plan::default().ask(address)?;
    request(&channel)?.into_id().reject(&[])?;
    assert_rejected(&refused, RejectReason::CONSUMER_DEFINED)?;
    listener.destroy()?;
    let early = Plan::default().ask(address)?;
    assert_rejected(&early, RejectReason::INVALID_SERVICE_ID)?;
    Ok(Outcome::Pass)
}

fn assert_rejected(client: &End, reason: RejectReason) -> Result<()> {
    let rejected = expect(&client.channel, "REJECTED")?;
    assert_eq!(rejected.status(), Status::Rejected(reason));
    assert_eq!(rejected.id(), &client.id);
    Ok(())
}

/// Destroys an id, which must not take long.
fn destroy_at_once(id: &CmId) -> Result<()> {
    let start = Instant::now();
    id.destroy()?;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    Ok(())
}

/// F01, F02, F138: with an event of it in the hand, of whatever kind.
fn destroying_does_not_wait_for_events() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let address = listener.local_addr().expect("it listens");
    let client = Plan::default().ask(address)?;
    let held_request = request(&channel)?;
    destroy_at_once(&listener)?;
    held_request.into_id().reject(&[])?;
    let held = expect(&client.channel, "REJECTED")?;
    destroy_at_once(&client.id)?;
    let again = held.id().destroy().expect_err("it is destroyed");
    assert_eq!(again.kind(), ErrorKind::Destroyed);

    let Pair { client, server } = Plan::default().connect()?;
    client.id.disconnect()?;
    let held = expect(&server.channel, "DISCONNECTED")?;
    destroy_at_once(&server.id)?;
    let again = held.id().disconnect().expect_err("it is destroyed");
    assert_eq!(again.kind(), ErrorKind::Destroyed);
    Ok(Outcome::Pass)
}

/// A request that was read is its own master.
fn a_request_survives_its_listener() -> TestResult {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, plan.address)?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let request = request(&channel)?;
    assert_eq!(request.listener(), &listener);
    destroy_at_once(&listener)?;
    let server = plan.end(request.into_id(), channel)?;
    server.id.accept(&plan.answered)?;
    expect(&client.channel, "ESTABLISHED")?;
    expect(&server.channel, "ESTABLISHED")?;
    Ok(Outcome::Pass)
}

/// F08: and never name another id that came after.
fn unread_events_of_destroyed_ids_are_gone() -> TestResult {
    let others = EventChannel::open()?;
    let listener = listen(&others, any_port())?;
    let peer = listener.local_addr().expect("it listens");
    let channel = EventChannel::open()?;
    let first = channel.create_id(rdmacm::PortSpace::Tcp)?;
    first.resolve_addr(None, peer, PATIENCE)?;
    std::thread::sleep(QUIET);
    first.destroy()?;
    let second = resolve(&channel, peer)?;
    assert!(second != first);
    let more = channel.next_event(Some(QUIET));
    assert!(more.is_err(), "{more:?}");
    Ok(Outcome::Pass)
}

/// F32: an event is kept while its id moves on and its channel closes.
fn events_outlive_their_channel() -> TestResult {
    let Pair { client, server } = Plan::default().connect()?;
    let End { id, channel, .. } = server;
    client.id.disconnect()?;
    let held = expect(&channel, "DISCONNECTED")?;
    id.migrate(&EventChannel::open()?)?;
    drop(channel);
    assert_eq!(held.id(), &id);
    held.id().disconnect()?;
    expect(&client.channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}

/// F30, F31: also while an event of the id is held.
fn migration_takes_unread_events_along() -> TestResult {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, plan.address)?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let request = request(&channel)?;
    let own = EventChannel::open()?;
    request.id().migrate(&own)?;
    let server = plan.end(request.into_id(), own)?;
    server.id.accept(&plan.answered)?;
    let held = expect(&client.channel, "ESTABLISHED")?;
    std::thread::sleep(QUIET);

    // The server's ESTABLISHED is unread.
    let newer = EventChannel::open()?;
    server.id.migrate(&newer)?;
    let established = expect(&newer, "ESTABLISHED")?;
    assert_eq!(established.id(), &server.id);
    client.id.disconnect()?;
    expect(&newer, "DISCONNECTED")?;
    server.id.disconnect()?;
    assert_eq!(held.id(), &client.id);
    expect(&client.channel, "DISCONNECTED")?;
    let nothing = server.channel.next_event(Some(QUIET));
    assert!(nothing.is_err(), "{nothing:?}");
    Ok(Outcome::Pass)
}

/// F81: the side that disconnects first hears of it when the other has done so as well; doing it
/// again is harmless.
fn both_sides_hear_of_the_end() -> TestResult {
    let Pair { client, server } = Plan::default().connect()?;
    client.id.disconnect()?;
    client.id.disconnect()?;
    expect(&server.channel, "DISCONNECTED")?;
    let early = client.channel.next_event(Some(QUIET));
    assert!(early.is_err(), "{early:?}");
    server.id.disconnect()?;
    expect(&client.channel, "DISCONNECTED")?;
    server.id.disconnect()?;
    client.id.disconnect()?;
    Ok(Outcome::Pass)
}
