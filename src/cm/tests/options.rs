//! Options of ids, and what the kernel knows of them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rdmacm_kernel_abi::ucma::Command;

use super::pair::{self, TIMEOUT, address, expect, refused_first};
use crate::cm::{CmId, ConnParam, EventChannel, PortSpace};
use crate::device::Registry;
use crate::error::{ErrorKind, Result};
use crate::sys::twin::Twin;
use crate::verbs::QpState;

fn new_id(registry: &'static Registry) -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Tcp)?;
    Ok((channel, id))
}

/// All options, and all that can be asked, of an id that listens and of one that connects to it.
pub(super) fn live(_twin: &Arc<Twin>, registry: &'static Registry) -> Result<()> {
    let (_listening, listener) = new_id(registry)?;
    listener.set_reuse_addr(true)?;
    listener.set_only_own_family(false)?;
    listener.bind_addr(address())?;
    listener.listen(1)?;
    let (channel, id) = new_id(registry)?;
    id.resolve_addr(None, address(), TIMEOUT)?;
    expect(&channel, "ADDR_RESOLVED")?;
    id.set_type_of_service(8)?;
    id.resolve_route(TIMEOUT)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    id.set_ack_timeout(14)?;
    let paths = id.paths()?;
    assert_eq!(paths[0].traffic_class(), 8);
    assert_eq!(id.local_ib_addr()?.gid, paths[0].source_gid());
    assert_eq!(id.peer_ib_addr()?.port(), pair::PORT);

    let (channel, id) = new_id(registry)?;
    id.resolve_addr(None, address(), TIMEOUT)?;
    expect(&channel, "ADDR_RESOLVED")?;
    id.set_path(&paths)?;
    expect(&channel, "ROUTE_RESOLVED").map(drop)
}

#[test]
fn a_life_leaves_nothing() {
    let twin = Twin::new();
    live(&twin, twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn refused_calls_can_be_made_again() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (channel, id) = new_id(registry).unwrap();
    let set = Command::SetOption;
    refused_first(&twin, set, || id.set_reuse_addr(true));
    refused_first(&twin, set, || id.set_only_own_family(true));
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_RESOLVED").unwrap();
    refused_first(&twin, set, || id.set_type_of_service(8));
    refused_first(&twin, set, || id.set_ack_timeout(9));
    refused_first(&twin, Command::Query, || id.local_ib_addr());
    refused_first(&twin, Command::Query, || id.peer_ib_addr());
    refused_first(&twin, Command::Query, || id.paths());
    let (other_channel, other) = pair::resolve(registry).unwrap();
    let paths = other.paths().unwrap();
    refused_first(&twin, set, || id.set_path(&paths));
    expect(&channel, "ROUTE_RESOLVED").unwrap();
    assert_eq!(id.paths().unwrap(), paths);
    drop((channel, id, other_channel, other));
    twin.assert_clean();
}

#[test]
fn an_option_that_was_refused_may_still_be_set_later() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    let late = [
        id.set_type_of_service(1),
        id.set_reuse_addr(true),
        id.set_only_own_family(true),
    ];
    for refused in late {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidState);
    }
    id.set_ack_timeout(3).unwrap();
    let datagrams = channel.create_id(PortSpace::Udp).unwrap();
    assert_eq!(
        datagrams.set_ack_timeout(3).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    drop((channel, id, datagrams));
    twin.assert_clean();
}

#[test]
fn a_connection_waits_for_acknowledgements_as_long_as_it_was_told() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = pair::listen(registry).unwrap();
    let (channel, id) = pair::resolve(registry).unwrap();
    id.set_ack_timeout(11).unwrap();
    let active = pair::furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    let (channel, id) = pair::fetch(registry, &listening).unwrap();
    let passive = pair::furnish(&twin, channel, id).unwrap();
    passive.id.accept(&ConnParam::new()).unwrap();
    expect(&active.channel, "ESTABLISHED").unwrap();
    let proposal = active.id.init_qp_attr(QpState::Rts).unwrap();
    assert!(format!("{proposal:?}").contains("timeout: 11"));
    drop((listening, active, passive));
    twin.assert_clean();
}

#[test]
fn ports_are_shared_by_those_that_agree_and_counted_by_port_space() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let new = |space| channel.create_id(space).unwrap();
    let first = new(PortSpace::Tcp);
    first.bind_addr(address()).unwrap();
    let second = new(PortSpace::Tcp);
    second.set_reuse_addr(true).unwrap();
    let taken = second.bind_addr(address()).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EADDRINUSE), "only one agrees");
    for space in [PortSpace::Udp, PortSpace::Ib] {
        new(space).bind_addr(address()).unwrap();
    }
    drop(first);
    let third = new(PortSpace::Tcp);
    third.set_reuse_addr(true).unwrap();
    for id in [&second, &third] {
        id.bind_addr(address()).unwrap();
    }
    drop((second, third));

    let [v6, v4] = [(); 2].map(|()| new(PortSpace::Tcp));
    v6.bind_addr((Ipv6Addr::UNSPECIFIED, 7000)).unwrap();
    let wildcard = (Ipv4Addr::UNSPECIFIED, 7000);
    let taken = v4.bind_addr(wildcard).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EADDRNOTAVAIL));
    drop(v6);
    let v6 = new(PortSpace::Tcp);
    v6.set_only_own_family(true).unwrap();
    v6.bind_addr((Ipv6Addr::UNSPECIFIED, 7000)).unwrap();
    v4.bind_addr(wildcard).unwrap();
    let ipoib = new(PortSpace::Ipoib);
    let refused = ipoib.bind_addr(address()).unwrap_err();
    assert!(refused.to_string().contains("InfiniBand"), "{refused}");
    drop((v6, v4, ipoib, channel));
    twin.assert_clean();
}

/// Changes the answers to QUERY.
fn tamper_query(twin: &Twin, change: impl Fn(&mut [u8]) + Send + 'static) {
    twin.tamper(move |call, _, answer| {
        if call.is_cm(Command::Query) {
            change(answer);
        }
    });
}

#[test]
fn more_paths_than_there_is_room_for_are_cut() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    for count in [7u32, 8, 0x8000_0000, u32::MAX] {
        tamper_query(&twin, move |answer| {
            answer[..4].copy_from_slice(&count.to_ne_bytes());
        });
        assert_eq!(id.paths().unwrap().len(), 7);
        twin.behave();
    }
    tamper_query(&twin, |answer| answer[..4].fill(0));
    assert_eq!(id.paths().unwrap(), []);
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn addresses_of_other_families_are_none() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    for family in [0u16, 2, 10, 99, u16::MAX] {
        tamper_query(&twin, move |answer| {
            for at in [16, 144] {
                answer[at..at + 2].copy_from_slice(&family.to_ne_bytes());
            }
        });
        for refused in [id.local_ib_addr(), id.peer_ib_addr()] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState, "{family}: {error}");
        }
        twin.behave();
    }
    drop((channel, id));
    twin.assert_clean();
}
