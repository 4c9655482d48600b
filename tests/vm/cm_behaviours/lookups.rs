//! Lookups for an id, and events of the program's own: Linux 6.18 or newer.

use rdmacm::{
    AddrInfoQuery, CmId, ErrorKind, Event, EventChannel, PortSpace, Result, Service, SyncId,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{any_port, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        names_are_looked_up_for_an_id,
        events_of_the_programs_own_come_back,
        services_are_refused_with_a_reason_on_roce,
    ]
}

/// Whether the kernel knows the calls; an older one has to say so clearly.
fn is_known(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotSupported => {
            assert!(error.explanation().contains("6.18"), "{error}");
            Ok(false)
        }
        outcome => outcome.map(|()| true),
    }
}

fn unknown() -> TestResult {
    Ok(Outcome::Skip(
        "the kernel is older than Linux 6.18".to_owned(),
    ))
}

fn fresh() -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    Ok((channel, id))
}

fn query() -> AddrInfoQuery {
    AddrInfoQuery::new()
        .node(environment::addr().to_string())
        .service("7471")
}

fn names_are_looked_up_for_an_id() -> TestResult {
    let (channel, id) = fresh()?;
    assert_eq!(
        id.query_addrinfo().unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    if !is_known(id.resolve_addrinfo(&query()))? {
        assert!(channel.try_next_event()?.is_none());
        return unknown();
    }
    let twice = id.resolve_addrinfo(&query()).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidState, "one at a time");
    expect(&channel, "ADDRINFO_RESOLVED")?;
    assert_eq!(id.query_addrinfo()?, query().resolve()?);
    assert!(id.query_addrinfo().is_err(), "it was taken");
    let failed = id
        .resolve_addrinfo(&AddrInfoQuery::new().node("no.such.host.invalid"))
        .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Resolver);

    let mut waiting = SyncId::create(PortSpace::Tcp)?;
    assert_eq!(waiting.resolve_addrinfo(&query())?, query().resolve()?);
    Ok(Outcome::Pass)
}

fn events_of_the_programs_own_come_back() -> TestResult {
    let (channel, id) = fresh()?;
    if !is_known(id.write_user_event(0))? {
        return unknown();
    }
    id.write_user_event(0x0102_0304_0506_0708)?;
    id.write_user_event(u64::MAX)?;
    for expected in [0, 0x0102_0304_0506_0708, u64::MAX] {
        match expect(&channel, "USER")? {
            Event::User { argument, event } => {
                assert_eq!((argument, event.id()), (expected, &id));
            }
            other => unreachable!("{other:?}"),
        }
    }
    Ok(Outcome::Pass)
}

fn services_are_refused_with_a_reason_on_roce() -> TestResult {
    let (_channel, id) = fresh()?;
    let unbound = id.resolve_service(Service::Id(1)).unwrap_err();
    assert_eq!(unbound.kind(), ErrorKind::InvalidState);
    id.bind_addr(any_port())?;
    for service in [Service::Id(1), Service::Name("name")] {
        let refused = id.resolve_service(service).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
    }
    assert!(id.resolve_service(Service::Name("")).is_err());
    Ok(Outcome::Pass)
}
