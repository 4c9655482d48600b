//! Which addresses connect, and which end up on the ids.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rdmacm::{CmId, ErrorKind, EventChannel, PortSpace, Result};

use super::interface::{Interface, SecondAddress};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, Pair, Plan, any_port, expect, listen, request, resolve_from};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        ipv6_connects,
        link_local_addresses_connect,
        the_source_is_honoured,
        wildcards_have_a_port_and_no_device,
        a_wildcard_listener_serves_every_address,
    ]
}

/// Connects over an address and sends a message; both ends must have the addresses that the peer
/// sees.
fn connect_over(address: SocketAddr) -> Result<Pair> {
    let plan = Plan {
        address,
        inline: 8,
        ..Plan::default()
    };
    let mut pair = plan.connect()?;
    let Pair { client, server } = &mut pair;
    assert_eq!(
        without_scope(client.id.peer_addr()),
        without_scope(server.id.local_addr())
    );
    assert_eq!(
        without_scope(client.id.local_addr()),
        without_scope(server.id.peer_addr())
    );
    let inbox = server.buffer(8)?;
    server.post_recv(1, &inbox)?;
    client.post(|batch| batch.send(1).signaled().inline(b"hello"))?;
    client.sent()?.result()?;
    server.received()?.result()?;
    Ok(pair)
}

/// The kernel does not tell the server's side on which interface a link-local address is.
fn without_scope(address: Option<SocketAddr>) -> Option<(IpAddr, u16)> {
    address.map(|address| (address.ip(), address.port()))
}

fn ipv6_connects() -> TestResult {
    let address = environment::addr6();
    let pair = connect_over((address, 0).into())?;
    let peer = pair.client.id.peer_addr().expect("it is connected");
    assert_eq!(peer.ip(), address);
    assert_eq!(
        pair.client.id.local_addr().map(|own| own.ip()),
        Some(address)
    );
    Ok(Outcome::Pass)
}

/// F56: the scope id says which interface the address is on, and stays with it.
fn link_local_addresses_connect() -> TestResult {
    let interface = Interface::under_test()?;
    let ip = interface.link_local()?;
    let scope = interface.index;
    let pair = connect_over(SocketAddrV6::new(ip, 0, 0, scope).into())?;
    for address in [pair.client.id.peer_addr(), pair.client.id.local_addr()] {
        let Some(SocketAddr::V6(address)) = address else {
            panic!("{address:?}")
        };
        assert_eq!((*address.ip(), address.scope_id()), (ip, scope));
    }
    Ok(Outcome::Pass)
}

/// F137: also when it is not the one that the kernel would take.
fn the_source_is_honoured() -> TestResult {
    let second = SecondAddress::add("10.10.0.77")?;
    let plan = Plan::default();
    let listening = EventChannel::open()?;
    let listener = listen(&listening, plan.address)?;
    let peer = listener.local_addr().expect("it listens");
    for source in [environment::addr(), second.ip(), environment::addr()] {
        for port in [0, 7999] {
            let channel = EventChannel::open()?;
            let id = resolve_from(&channel, Some((source, port).into()), peer)?;
            let local = id.local_addr().expect("it is resolved");
            assert_eq!(local.ip(), source);
            assert!(
                local.port() == port || port == 0 && local.port() != 0,
                "{local}"
            );

            let client = plan.end(id, channel)?;
            client.id.connect(&plan.asked)?;
            let request = request(&listening)?;
            assert_eq!(request.id().peer_addr(), Some(local));
            request.id().reject(&[])?;
            expect(&client.channel, "REJECTED")?;
        }
    }
    Ok(Outcome::Pass)
}

/// F54: binding to no address in particular is no error; the device comes with the resolution.
fn wildcards_have_a_port_and_no_device() -> TestResult {
    let listening = EventChannel::open()?;
    for (wildcard, peer) in [
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), environment::addr()),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), environment::addr6()),
    ] {
        let listener = listen(&listening, (peer, 0).into())?;
        let channel = EventChannel::open()?;
        let id = bound(&channel, (wildcard, 0).into())?;
        let port = id.local_addr().expect("it is bound").port();
        let error = id.context().expect_err("no device yet");
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert!(error.to_string().contains("resolve an address"), "{error}");

        id.resolve_addr(
            None,
            listener.local_addr().expect("it listens"),
            crate::pair::PATIENCE,
        )?;
        expect(&channel, "ADDR_RESOLVED")?;
        assert!(id.context()?.same_as(&listener.context()?));
        assert_eq!(id.local_addr(), Some((peer, port).into()));
    }
    Ok(Outcome::Pass)
}

fn bound(channel: &EventChannel, address: SocketAddr) -> Result<CmId> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.bind_addr(address)?;
    let port = id.local_addr().map(|local| local.port());
    assert!(port.is_some_and(|port| port != 0), "{port:?}");
    Ok(id)
}

fn a_wildcard_listener_serves_every_address() -> TestResult {
    let second = SecondAddress::add("10.10.0.77")?;
    let plan = Plan::default();
    let listening = EventChannel::open()?;
    let listener = listen(&listening, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    let port = listener.local_addr().expect("it listens").port();
    assert!(listener.context().is_err(), "it listens on all devices");
    for ip in [any_port().ip(), second.ip()] {
        let client = plan.ask((ip, port).into())?;
        let request = request(&listening)?;
        assert_eq!(request.id().local_addr(), Some((ip, port).into()));
        let End { id, .. } = plan.end(request.into_id(), listening.clone())?;
        id.accept(&plan.answered)?;
        expect(&client.channel, "ESTABLISHED")?;
        expect(&listening, "ESTABLISHED")?;
    }
    Ok(Outcome::Pass)
}
