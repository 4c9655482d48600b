//! Addresses that mean something else on each host, or on each interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use rdmacm::{EventChannel, PortSpace};

use super::ends;
use super::host::Host;
use super::link::Link;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, expect};
use crate::traffic::interface::Interface;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        link_local_addresses_between_hosts: 120 s,
        a_wildcard_gets_its_device_from_the_peer: 120 s,
        a_host_that_is_not_there: 120 s,
    ]
}

/// F56: each host says with its own scope which interface leads to the other.
fn link_local_addresses_between_hosts() -> TestResult {
    let interface = Interface::under_test()?;
    let own = interface.link_local()?;
    let scope = interface.index;
    let mut link = Link::open("link-local addresses")?;
    let mut end = ends::connect(
        &mut link,
        || SocketAddrV6::new(own, 0, 0, scope).into(),
        |listener| with_scope(listener, scope),
    )?;
    ends::exchange(&mut link, &mut end)?;
    // The kernel tells the side that listens no scope of a request's addresses.
    let sides = match Host::own() {
        Host::A => vec![],
        Host::B => vec![end.id.local_addr(), end.id.peer_addr()],
    };
    for address in sides {
        let Some(SocketAddr::V6(address)) = address else {
            panic!("{address:?}")
        };
        assert_eq!(address.scope_id(), scope, "{address}");
    }
    link.meet("connected")?;
    Ok(Outcome::Pass)
}

fn with_scope(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into(),
        SocketAddr::V4(_) => address,
    }
}

/// F54: an id that is bound to no address in particular finds the device that leads to the peer.
fn a_wildcard_gets_its_device_from_the_peer() -> TestResult {
    let mut link = Link::open("wildcards")?;
    if Host::own() == Host::B {
        let pairs: [(IpAddr, IpAddr, IpAddr); 2] = [
            (
                Ipv4Addr::UNSPECIFIED.into(),
                environment::peer_addr(),
                environment::addr(),
            ),
            (
                Ipv6Addr::UNSPECIFIED.into(),
                environment::peer_addr6(),
                environment::addr6(),
            ),
        ];
        for (wildcard, peer, own) in pairs {
            let channel = EventChannel::open()?;
            let id = channel.create_id(PortSpace::Tcp)?;
            id.bind_addr((wildcard, 0))?;
            assert!(id.context().is_err(), "no device yet");
            let port = id.local_addr().expect("it is bound").port();
            id.resolve_addr(None, (peer, 7471), PATIENCE)?;
            expect(&channel, "ADDR_RESOLVED")?;
            assert_eq!(id.local_addr(), Some((own, port).into()));
            assert_eq!(id.context()?.device().name(), environment::device());
        }
    }
    link.meet("resolved")?;
    Ok(Outcome::Pass)
}

/// F53: nobody has the address: an error of the resolution, in time.
fn a_host_that_is_not_there() -> TestResult {
    let mut link = Link::open("nobody")?;
    if Host::own() == Host::B {
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        let nobody = (Ipv4Addr::new(10, 10, 0, 99), 7471);
        id.resolve_addr(None, nobody, Duration::from_secs(2))?;
        let event = expect(&channel, "ADDR_ERROR")?;
        let error = event.into_error("connect");
        assert!(
            error.to_string().contains("10.10.0.99"),
            "the message names the host: {error}"
        );
    }
    link.meet("asked")?;
    Ok(Outcome::Pass)
}
