//! Options of ids, with events.

use rdmacm::{CmId, ErrorKind, EventChannel, PortSpace, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Plan, any_port, assert_holds, expect, listen, pattern, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        async_traffic_with_the_ack_timeout_in_the_queue_pair,
        the_type_of_service_is_in_the_queue_pair,
        options_that_come_too_late_are_refused,
        a_shared_port_and_a_family_of_its_own,
        a_path_can_be_given_instead_of_resolved,
    ]
}

/// A client on the way to `listener`, whose options are set by `set` before its route is resolved.
fn ask(listener: &CmId, set: impl FnOnce(&CmId) -> Result<()>) -> Result<End> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, listener.local_addr().unwrap(), PATIENCE)?;
    expect(&channel, "ADDR_RESOLVED")?;
    set(&id)?;
    id.resolve_route(PATIENCE)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    let plan = Plan::default();
    let client = plan.end(id, channel)?;
    client.id.connect(&plan.asked)?;
    Ok(client)
}

/// Both ends, with options of the client and of the server.
fn connect(
    of_client: impl FnOnce(&CmId) -> Result<()>,
    of_server: impl FnOnce(&CmId) -> Result<()>,
) -> Result<(End, End)> {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = ask(&listener, of_client)?;
    let plan = Plan::default();
    let server = plan.end(request(&channel)?.into_id(), channel)?;
    of_server(&server.id)?;
    server.id.accept(&plan.answered)?;
    expect(&client.channel, "ESTABLISHED")?;
    expect(&server.channel, "ESTABLISHED")?;
    Ok((client, server))
}

fn async_traffic_with_the_ack_timeout_in_the_queue_pair() -> TestResult {
    let (mut client, mut server) =
        connect(|id| id.set_ack_timeout(14), |id| id.set_ack_timeout(20))?;
    assert_eq!(client.qp.query()?.timeout, 14);
    assert_eq!(server.qp.query()?.timeout, 20);
    let message = pattern(3, 500);
    let (outbox, inbox) = (client.buffer_of(&message)?, server.buffer(500)?);
    server.post_recv(1, &inbox)?;
    let segment = outbox.slice(..)?;
    client.post(|batch| batch.send(2).signaled().from(&[segment]))?;
    client.sent()?.result()?;
    server.received()?.result()?;
    assert_holds(&inbox, 0, &message);
    Ok(Outcome::Pass)
}

fn the_type_of_service_is_in_the_queue_pair() -> TestResult {
    let (client, _server) = connect(|id| id.set_type_of_service(0x68), |_| Ok(()))?;
    let path = client.qp.query()?.path;
    assert_eq!(path.traffic_class, 0x68, "{path:?}");
    assert_eq!(client.id.paths()?[0].traffic_class(), 0x68);
    Ok(Outcome::Pass)
}

fn options_that_come_too_late_are_refused() -> TestResult {
    let (client, server) = connect(|_| Ok(()), |_| Ok(()))?;
    for id in [&client.id, &server.id] {
        for late in [
            id.set_type_of_service(8),
            id.set_ack_timeout(14),
            id.set_reuse_addr(true),
            id.set_only_own_family(true),
        ] {
            let error = late.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState);
            assert!(error.explanation().contains("too late"), "{error}");
        }
    }
    let datagrams = client.channel.create_id(PortSpace::Udp)?;
    let refused = datagrams.set_ack_timeout(14).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let fresh = client.channel.create_id(PortSpace::Tcp)?;
    assert_eq!(
        fresh.set_ack_timeout(32).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    Ok(Outcome::Pass)
}

fn a_shared_port_and_a_family_of_its_own() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let address = listener.local_addr().unwrap();
    drop(listener);
    let [one, other] = [(); 2].map(|()| channel.create_id(PortSpace::Tcp).unwrap());
    one.bind_addr(address)?;
    assert_eq!(
        other.bind_addr(address).unwrap_err().errno(),
        Some(libc::EADDRINUSE)
    );
    drop((one, other));
    let [one, other] = [(); 2].map(|()| channel.create_id(PortSpace::Tcp).unwrap());
    for id in [&one, &other] {
        id.set_reuse_addr(true)?;
        id.bind_addr(address)?;
    }
    drop((one, other));

    let [v6, v4] = [(); 2].map(|()| channel.create_id(PortSpace::Tcp).unwrap());
    v6.set_only_own_family(true)?;
    v6.bind_addr((std::net::Ipv6Addr::UNSPECIFIED, address.port()))?;
    v4.bind_addr((std::net::Ipv4Addr::UNSPECIFIED, address.port()))?;
    Ok(Outcome::Pass)
}

fn a_path_can_be_given_instead_of_resolved() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = ask(&listener, |_| Ok(()))?;
    let paths = client.id.paths()?;
    assert_eq!(paths.len(), 1);
    let (local, peer) = (client.id.local_ib_addr()?, client.id.peer_ib_addr()?);
    assert_eq!(local.gid, paths[0].source_gid());
    assert_eq!(peer.gid, paths[0].destination_gid());
    assert_eq!(peer.port(), listener.local_addr().unwrap().port());

    let second = EventChannel::open()?;
    let id = second.create_id(PortSpace::Tcp)?;
    assert!(id.set_path(&paths).is_err(), "the address is not resolved");
    id.resolve_addr(None, listener.local_addr().unwrap(), PATIENCE)?;
    expect(&second, "ADDR_RESOLVED")?;
    assert_eq!(
        id.set_path(&[]).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    id.set_path(&paths)?;
    expect(&second, "ROUTE_RESOLVED")?;
    let plan = Plan::default();
    let client = plan.end(id, second)?;
    client.id.connect(&plan.asked)?;
    request(&channel)?;
    request(&channel)?;
    Ok(Outcome::Pass)
}
