//! Names and services that are looked up for an id, and events of the program's own.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma::{Command, EventType, IbUserServiceRec};

use super::pair::{TIMEOUT, address, expect, refused_first};
use crate::cm::{
    AddrInfo, AddrInfoQuery, Address, CmId, Event, EventChannel, PortSpace, Service, Status,
};
use crate::device::{Gid, Registry};
use crate::error::{ErrorKind, Result};
use crate::sys::twin::{ADDRESS, Twin, TwinDevice};

/// A kernel on an InfiniBand subnet whose administrator knows `count` services of one name.
fn subnet(count: usize) -> Arc<Twin> {
    let twin = Twin::with_devices(vec![TwinDevice {
        protocol: "ib",
        ..TwinDevice::rxe(0, ADDRESS)
    }]);
    let service = |number: usize| {
        let mut record = IbUserServiceRec {
            id: (number as u64 + 1).into(),
            gid: [number as u8; 16],
            pkey: 0xffff.into(),
            ..Default::default()
        };
        record.name[..7].copy_from_slice(b"storage");
        record
    };
    twin.register_services((0..count).map(service).collect());
    twin
}

/// An id that is bound to the device.
fn bound(registry: &'static Registry) -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Ib)?;
    id.bind_addr(address())?;
    Ok((channel, id))
}

fn names() -> AddrInfoQuery {
    let node = AddrInfoQuery::new().node(ADDRESS.to_string());
    node.service("7471").numeric_host()
}

/// The service ids of what was found.
fn service_ids(found: &[AddrInfo]) -> Vec<u64> {
    let id_of = |info: &AddrInfo| match info.destination {
        Some(Address::Ib(address)) => address.service_id,
        _ => panic!("{info:?}"),
    };
    found.iter().map(id_of).collect()
}

/// A service, names and an event of the program's own.
pub(super) fn live_on_a_subnet(registry: &'static Registry) -> Result<()> {
    let (channel, id) = bound(registry)?;
    id.resolve_service(Service::Name("storage"))?;
    expect(&channel, "ADDRINFO_RESOLVED")?;
    assert_eq!(service_ids(&id.query_addrinfo()?), [1, 2]);
    id.resolve_addrinfo(&names())?;
    expect(&channel, "ADDRINFO_RESOLVED")?;
    assert_eq!(id.query_addrinfo()?.len(), 1);
    id.write_user_event(5)?;
    expect(&channel, "USER").map(drop)
}

/// The kernel for it.
pub(super) fn small_subnet() -> Arc<Twin> {
    subnet(2)
}

#[test]
fn a_life_leaves_nothing() {
    let twin = small_subnet();
    live_on_a_subnet(twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn services_are_found_by_number_and_by_name() {
    let twin = subnet(2);
    let (channel, id) = bound(twin.registry()).unwrap();
    id.resolve_service(Service::Id(2)).unwrap();
    assert_eq!(
        id.query_addrinfo().unwrap_err().kind(),
        ErrorKind::InvalidState,
        "the event is not read"
    );
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    let found = id.query_addrinfo().unwrap();
    assert_eq!(service_ids(&found), [2]);
    let Some(Address::Ib(destination)) = found[0].destination else {
        unreachable!("the service id was checked")
    };
    assert_eq!(destination.gid, Gid([1; 16]));
    assert_eq!(found[0].port_space, PortSpace::Ib);
    assert!(id.query_addrinfo().is_err(), "it was taken");
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn more_services_than_fit_are_asked_for_again() {
    for (count, queries) in [(8, 1), (9, 2), (60, 2)] {
        let twin = subnet(count);
        let (channel, id) = bound(twin.registry()).unwrap();
        id.resolve_service(Service::Name("storage")).unwrap();
        twin.forget_calls();
        expect(&channel, "ADDRINFO_RESOLVED").unwrap();
        let calls = twin.calls();
        let asked = calls.iter().filter(|call| call.is_cm(Command::Query));
        assert_eq!(asked.count(), queries);
        let expected: Vec<u64> = (1..=count as u64).collect();
        assert_eq!(service_ids(&id.query_addrinfo().unwrap()), expected);
        drop((channel, id));
        twin.assert_clean();
    }
}

#[test]
fn no_command_asks_for_more_services_than_it_can_say() {
    let twin = subnet(500);
    let (channel, id) = bound(twin.registry()).unwrap();
    id.resolve_service(Service::Name("storage")).unwrap();
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    // As many as 65535 bytes hold, and no made-up ones behind them.
    let expected: Vec<u64> = (1..=372).collect();
    assert_eq!(service_ids(&id.query_addrinfo().unwrap()), expected);
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn a_count_that_is_too_large_is_cut_to_what_came() {
    for count in [3u32, 0x8000_0000, u32::MAX] {
        let twin = subnet(2);
        let (channel, id) = bound(twin.registry()).unwrap();
        id.resolve_service(Service::Name("storage")).unwrap();
        twin.tamper(move |call, _, answer| {
            if call.is_cm(Command::Query) {
                answer[..4].copy_from_slice(&count.to_ne_bytes());
            }
        });
        expect(&channel, "ADDRINFO_RESOLVED").unwrap();
        let found = id.query_addrinfo().unwrap();
        assert!((2..=372).contains(&found.len()), "{}", found.len());
        drop((channel, id));
        twin.assert_clean();
    }
}

#[test]
fn an_unknown_service_is_an_error_after_which_another_can_be_asked_for() {
    let twin = subnet(1);
    let (channel, id) = bound(twin.registry()).unwrap();
    id.resolve_service(Service::Id(77)).unwrap();
    let busy = id.resolve_service(Service::Id(1)).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::InvalidState, "one at a time");
    let failed = expect(&channel, "ADDRINFO_ERROR").unwrap();
    assert_eq!(failed.status(), Status::Errno(libc::ENODATA));
    assert!(id.query_addrinfo().is_err());
    id.resolve_service(Service::Id(1)).unwrap();
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    assert_eq!(id.query_addrinfo().unwrap().len(), 1);
    drop((channel, id, failed));
    twin.assert_clean();
}

#[test]
fn services_that_cannot_be_fetched_are_an_error() {
    let twin = subnet(1);
    let (channel, id) = bound(twin.registry()).unwrap();
    id.resolve_service(Service::Id(1)).unwrap();
    twin.fail(0, libc::ENOMEM, |call| call.is_cm(Command::Query));
    let failed = expect(&channel, "ADDRINFO_ERROR").unwrap();
    assert_eq!(failed.into_error("test").errno(), Some(libc::ENOMEM));
    id.resolve_service(Service::Id(1)).unwrap();
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn refused_calls_can_be_made_again() {
    let twin = subnet(1);
    let (channel, id) = bound(twin.registry()).unwrap();
    refused_first(&twin, Command::ResolveIbService, || {
        id.resolve_service(Service::Id(1))
    });
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    let write = Command::WriteCmEvent;
    refused_first(&twin, write, || id.resolve_addrinfo(&names()));
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    assert_eq!(id.query_addrinfo().unwrap().len(), 1);
    refused_first(&twin, write, || id.write_user_event(u64::MAX));
    let Event::User { argument, .. } = expect(&channel, "USER").unwrap() else {
        unreachable!("the name was checked")
    };
    assert_eq!(argument, u64::MAX);
    assert!(channel.try_next_event().unwrap().is_none());
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn an_old_kernel_is_said_to_be_too_old() {
    let twin = subnet(1);
    twin.become_old();
    let (channel, id) = bound(twin.registry()).unwrap();
    for refused in [
        id.resolve_service(Service::Id(1)),
        id.resolve_addrinfo(&names()),
        id.write_user_event(1),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.to_string().contains("6.18"), "{error}");
    }
    assert!(channel.try_next_event().unwrap().is_none());
    // Nothing is left under way.
    let nothing = id.query_addrinfo().unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::InvalidState);
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn roce_has_no_services() {
    let twin = Twin::new();
    let (channel, id) = bound(twin.registry()).unwrap();
    let refused = id.resolve_service(Service::Id(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
    assert!(refused.to_string().contains("InfiniBand"), "{refused}");
    let unbound = channel.create_id(PortSpace::Ib).unwrap();
    let refused = unbound.resolve_service(Service::Id(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    drop((channel, id, unbound));
    twin.assert_clean();
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let twin = subnet(1);
    let (channel, id) = bound(twin.registry()).unwrap();
    let kinds = [
        EventType::ADDRINFO_RESOLVED,
        EventType::ADDRINFO_ERROR,
        EventType::INTERNAL,
    ];
    for kind in kinds {
        for argument in [0, EventType::ADDRINFO_RESOLVED.0, u32::MAX] {
            twin.inject(id.handle(), kind, |event| event.param[0] = argument);
            let event = channel.try_next_event().unwrap().unwrap();
            assert_eq!(event.id(), &id);
            assert!(id.query_addrinfo().is_err(), "{event:?}");
        }
    }
    // Names that are on their way do not come with somebody else's event.
    id.resolve_addrinfo(&names()).unwrap();
    twin.inject(id.handle(), EventType::INTERNAL, |_| ());
    twin.inject(id.handle(), EventType::ADDRINFO_ERROR, |_| ());
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    assert_eq!(id.query_addrinfo().unwrap().len(), 1);
    for _ in 0..2 {
        channel.try_next_event().unwrap().unwrap();
    }
    // A service that is asked for waits for its own event.
    id.resolve_service(Service::Id(1)).unwrap();
    expect(&channel, "ADDRINFO_RESOLVED").unwrap();
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn a_lookup_ends_with_its_id() {
    let twin = subnet(1);
    let registry = twin.registry();
    let (channel, id) = bound(registry).unwrap();
    id.resolve_service(Service::Id(1)).unwrap();
    let elsewhere = EventChannel::open_on(registry).unwrap();
    id.migrate(&elsewhere).unwrap();
    let held = expect(&elsewhere, "ADDRINFO_RESOLVED").unwrap();
    id.resolve_addrinfo(&names()).unwrap();
    id.write_user_event(1).unwrap();
    held.id().destroy().unwrap();
    assert!(elsewhere.try_next_event().unwrap().is_none());
    for gone in [
        id.query_addrinfo().map(drop),
        id.resolve_addrinfo(&names()),
        id.resolve_service(Service::Id(1)),
        id.write_user_event(1),
        id.resolve_addr(None, address(), TIMEOUT),
    ] {
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::Destroyed);
    }
    drop((channel, id, elsewhere, held));
    twin.assert_clean();
}

#[test]
fn a_service_lookup_in_the_wrong_state() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_RESOLVED").unwrap();
    let error = id.resolve_service(Service::Id(1)).unwrap_err();
    assert!(!error.to_string().contains("6.18"), "{error}");
}

#[test]
fn old_kernel_before_names() {
    let twin = Twin::new();
    twin.become_old();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let query = AddrInfoQuery::new()
        .node("no.such.host.invalid")
        .numeric_host();
    let error = id.resolve_addrinfo(&query).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
}
