//! Ids that wait for their events themselves.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use rdmacm::{
    AddrInfoQuery, ConnParam, ErrorKind, EventChannel, PortSpace, QpAttr, Result, SyncId,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Plan, QUIET, any_port, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_datagram_server_and_its_listener_go,
        each_step_ends_with_the_error_that_comes,
        one_lookup_serves_several_ids,
        after_connecting_nothing_is_left_to_hear,
        what_moves_before_it_connects_hears_of_it,
    ]
}

/// An id that gives up when nothing comes.
fn patient(port_space: PortSpace) -> Result<SyncId> {
    let mut id = SyncId::create(port_space)?;
    id.set_timeout(Some(PATIENCE));
    Ok(id)
}

/// An id that can connect to `peer`.
fn ready(port_space: PortSpace, peer: SocketAddr) -> Result<SyncId> {
    let mut id = patient(port_space)?;
    id.resolve_addr(None, peer, PATIENCE)?;
    id.resolve_route(PATIENCE)?;
    id.create_qp(&QpAttr::default())?;
    Ok(id)
}

/// F04, F97: no event comes after the accept, and none is waited for.
fn a_datagram_server_and_its_listener_go() -> TestResult {
    let mut listener = patient(PortSpace::Udp)?;
    listener.bind_addr(any_port())?;
    listener.set_request_attr(QpAttr::default());
    listener.listen(0)?;
    let address = listener.id().local_addr().expect("it listens");
    thread::scope(|scope| -> Result<()> {
        let connecting = scope.spawn(move || -> Result<()> {
            let mut client = ready(PortSpace::Udp, address)?;
            client.connect(&ConnParam::new())?;
            client.destroy()
        });
        let mut server = listener.get_request()?;
        server.accept(&ConnParam::new())?;
        connecting.join().expect("no thread panics")?;
        let begin = Instant::now();
        server.destroy()?;
        listener.destroy()?;
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
        Ok(())
    })?;
    Ok(Outcome::Pass)
}

/// F28: and not only with the event that would be right.
fn each_step_ends_with_the_error_that_comes() -> TestResult {
    let mut astray = patient(PortSpace::Tcp)?;
    let nowhere = SocketAddr::from((environment::plain_addr(), 7471));
    let unresolved = astray.resolve_addr(None, nowhere, PATIENCE);
    let error = unresolved.expect_err("no device leads there");
    assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");

    let closed = SocketAddr::from((environment::addr(), 1));
    let mut client = ready(PortSpace::Tcp, closed)?;
    let rejected = client.connect(&ConnParam::new());
    let error = rejected.expect_err("nobody listens there");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");

    let silent = listen(&EventChannel::open()?, any_port())?;
    let mut client = ready(PortSpace::Tcp, silent.local_addr().expect("it listens"))?;
    client.set_timeout(Some(QUIET));
    let unanswered = client.connect(&ConnParam::new());
    let error = unanswered.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    Ok(Outcome::Pass)
}

/// F12: whether their connections fail or not.
fn one_lookup_serves_several_ids() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let address = listener.local_addr().expect("it listens");
    let query = AddrInfoQuery::new()
        .node(address.ip().to_string())
        .service(address.port().to_string());
    let found = query.resolve()?;
    for answer in ["reject", "drop", "reject"] {
        let mut client = SyncId::create_ep(&found[0], Some(QpAttr::default()))?;
        client.set_timeout(Some(PATIENCE));
        thread::scope(|scope| -> Result<()> {
            let connecting = scope.spawn(|| client.connect(&ConnParam::new()));
            let request = request(&channel)?;
            match answer {
                "reject" => request.id().reject(&[])?,
                _ => drop(request),
            }
            let outcome = connecting.join().expect("no thread panics");
            let error = outcome.expect_err("it is rejected");
            assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
            Ok(())
        })?;
    }
    drop(found);
    Ok(Outcome::Pass)
}

/// Accepts what `client` asks for.
fn accept_beside(
    peer: impl FnOnce(SocketAddr) -> Result<SyncId> + Send,
) -> Result<(End, SyncId), Box<dyn Error>> {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, plan.address)?;
    let address = listener.local_addr().expect("it listens");
    thread::scope(|scope| {
        let connecting = scope.spawn(move || peer(address));
        let server = plan.end(request(&channel)?.into_id(), channel)?;
        server.id.accept(&plan.answered)?;
        let client = connecting.join().expect("no thread panics")?;
        Ok((server, client))
    })
}

/// F30: the call has had the event already.
fn after_connecting_nothing_is_left_to_hear() -> TestResult {
    let (server, client) = accept_beside(|address| {
        let mut client = ready(PortSpace::Tcp, address)?;
        client.connect(&ConnParam::new())?;
        Ok(client)
    })?;
    let channel = EventChannel::open()?;
    let (id, _queues) = client.into_id(&channel)?;
    let nothing = channel.next_event(Some(QUIET));
    assert!(nothing.is_err(), "{nothing:?}");
    expect(&server.channel, "ESTABLISHED")?;
    server.id.disconnect()?;
    expect(&channel, "DISCONNECTED")?;
    id.disconnect()?;
    Ok(Outcome::Pass)
}

/// F30: and the call does not wait.
fn what_moves_before_it_connects_hears_of_it() -> TestResult {
    let plan = Plan::default();
    let listening = EventChannel::open()?;
    let listener = listen(&listening, plan.address)?;
    let client = ready(PortSpace::Tcp, listener.local_addr().expect("it listens"))?;
    let channel = EventChannel::open()?;
    let (id, _queues) = client.into_id(&channel)?;
    id.connect(&ConnParam::new())?;
    let server = plan.end(request(&listening)?.into_id(), listening)?;
    server.id.accept(&plan.answered)?;
    expect(&channel, "ESTABLISHED")?;

    // And back: the next event is the waiting call's.
    let mut client = SyncId::from_id(id)?;
    client.set_timeout(Some(PATIENCE));
    expect(&server.channel, "ESTABLISHED")?;
    server.id.disconnect()?;
    client.disconnect()?;
    Ok(Outcome::Pass)
}
