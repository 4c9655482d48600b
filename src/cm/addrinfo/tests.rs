//! Questions that need no name server.

use std::io;

use rdmacm_kernel_abi::ucma;
use zerocopy::IntoBytes;

use super::*;
use crate::device::Gid;
use crate::error::{Error, ErrorKind};
use crate::sys::twin::Twin;

fn ip(text: &str) -> Address {
    text.parse::<SocketAddr>().unwrap().into()
}

fn query() -> AddrInfoQuery {
    AddrInfoQuery::new()
}

/// The answer on a machine without ibacm.
fn resolve(query: &AddrInfoQuery) -> Vec<AddrInfo> {
    query.resolve_on(Twin::new().registry()).unwrap()
}

fn error(query: &AddrInfoQuery) -> Error {
    query.resolve_on(Twin::new().registry()).unwrap_err()
}

#[test]
fn an_active_answer_is_a_destination() {
    let found = resolve(&query().node("10.1.2.3").service("7471"));
    let [info] = &found[..] else {
        panic!("not one answer: {found:?}");
    };
    assert_eq!(info.destination, Some(ip("10.1.2.3:7471")));
    assert_eq!(info.source, None);
    assert_eq!(
        (info.port_space, info.qp_type),
        (PortSpace::Tcp, QpType::Rc)
    );
    assert!(!info.is_passive && info.route.is_empty() && info.connect_data.is_empty());
}

#[test]
fn a_passive_answer_is_a_source() {
    let found = resolve(&query().node("10.1.2.3").service("7471").passive());
    assert_eq!(found[0].source, Some(ip("10.1.2.3:7471")));
    assert_eq!(found[0].destination, None);
    assert!(found[0].is_passive);
}

#[test]
fn without_a_node_it_is_the_wildcard_or_the_loopback_address() {
    for (family, wildcard, loopback) in [
        (AddressFamily::Ipv4, "0.0.0.0:7471", "127.0.0.1:7471"),
        (AddressFamily::Ipv6, "[::]:7471", "[::1]:7471"),
    ] {
        let query = query().service("7471").family(family);
        assert_eq!(resolve(&query)[0].destination, Some(ip(loopback)));
        assert_eq!(resolve(&query.passive())[0].source, Some(ip(wildcard)));
    }
}

#[test]
fn a_source_is_handed_on_and_decides_the_family() {
    let source = ip("[2001:db8::1]:0");
    let found = resolve(&query().service("7471").source(source));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].source, Some(source));
    assert_eq!(found[0].destination, Some(ip("[::1]:7471")));
}

#[test]
fn known_addresses_are_not_looked_up() {
    let (source, destination) = (ip("10.0.0.1:0"), ip("10.0.0.2:7471"));
    let active = resolve(&query().source(source).destination(destination));
    assert_eq!(active[0].source, Some(source));
    assert_eq!(active[0].destination, Some(destination));
    let passive = resolve(&query().source(source).passive());
    assert_eq!(passive[0].source, Some(source));
}

#[test]
fn a_gid_is_an_address_of_its_own_family() {
    let ib = query().family(AddressFamily::Ib).service("7471");
    let found = resolve(&ib.clone().node("fe80::2:c903:0:1"));
    let Some(Address::Ib(address)) = found[0].destination else {
        panic!("not a GID: {found:?}");
    };
    assert_eq!(address.gid.to_string(), "fe80::2:c903:0:1");
    assert_eq!(address.service_id, 0x0106_1d2f);
    assert_eq!(address.pkey, 0xffff);
    let any = resolve(&ib.clone().passive().port_space(PortSpace::Ib));
    let wildcard = IbAddress::for_port(PortSpace::Ib, 7471, Gid([0; 16]));
    assert_eq!(any[0].source, Some(wildcard.into()));
    // Neither names nor IPv4 addresses are GIDs.
    for node in ["localhost", "10.1.2.3"] {
        let error = error(&ib.clone().node(node));
        assert_eq!(error.kind(), ErrorKind::Resolver, "{node}");
    }
}

#[test]
fn queue_pair_and_port_space_follow_each_other() {
    let known = || query().destination(ip("10.0.0.2:7471"));
    let outcome = |query: &AddrInfoQuery| (resolve(query)[0].port_space, resolve(query)[0].qp_type);
    let by_qp = known().qp_type(QpType::Ud);
    assert_eq!(outcome(&by_qp), (PortSpace::Udp, QpType::Ud));
    let by_ps = known().port_space(PortSpace::Ipoib);
    assert_eq!(outcome(&by_ps), (PortSpace::Ipoib, QpType::Ud));
    let both = known().port_space(PortSpace::Ib).qp_type(QpType::Ud);
    assert_eq!(outcome(&both), (PortSpace::Ib, QpType::Ud));
    let xrc = known().qp_type(QpType::XrcSend);
    assert_eq!(outcome(&xrc), (PortSpace::Tcp, QpType::XrcSend));
}

#[test]
fn contradictions_are_refused_before_anybody_is_asked() {
    let address = ip("10.0.0.2:7471");
    for (query, word) in [
        (query(), "destination"),
        (query().passive(), "source"),
        (query().source(address), "destination"),
        (query().destination(address).passive(), "passive"),
        (query().destination(address).node("10.0.0.3"), "place"),
        (query().node("10.0.0.3\0"), "NUL"),
        (query().service("7471\0"), "NUL"),
        (query().service("65536"), "65535"),
        (query().service("99999999999999999999"), "65535"),
        (
            query()
                .destination(address)
                .port_space(PortSpace::Tcp)
                .qp_type(QpType::Ud),
            "Tcp",
        ),
        (
            query()
                .destination(address)
                .port_space(PortSpace::Udp)
                .qp_type(QpType::Rc),
            "Ud",
        ),
    ] {
        let error = error(&query);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{query:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn the_resolvers_refusal_keeps_its_number_and_tells_what_was_asked() {
    let error = error(&query().node("no.such.host").service("7471").numeric_host());
    assert_eq!(error.kind(), ErrorKind::Resolver);
    assert_eq!(error.resolver_code(), Some(libc::EAI_NONAME));
    assert_eq!(error.errno(), None);
    let text = error.to_string();
    assert!(
        text.starts_with("getaddrinfo: ") && text.contains("no.such.host"),
        "{text}"
    );
    assert!(
        text.contains("(EAI -2)") && text.contains("no names"),
        "{text}"
    );
}

/// A machine whose ibacm knows one path, with a source address if so wanted.
fn machine_with_ibacm(tells_source: bool) -> &'static Registry {
    let twin = Twin::new();
    twin.serve(move |_| Ok(ibacm_answer(tells_source)));
    twin.registry()
}

fn ibacm_answer(tells_source: bool) -> Vec<u8> {
    let path = ucma::PathRecord {
        sgid: [1; 16],
        dgid: [2; 16],
        pkey: 0x8001.into(),
        flowlabel_hoplimit: 0x0000_0740.into(),
        ..Default::default()
    };
    let record = |flags: u32, kind: u16, info: &[u8]| {
        let mut record = [&flags.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 2], info].concat();
        record.resize(72, 0);
        record
    };
    let mut records = record(0x2b, 0x10, path.as_bytes());
    if tells_source {
        records.extend(record(1, 2, &[10, 0, 0, 1]));
    }
    let length = (16 + records.len()) as u16;
    let mut answer = vec![1, 1, 0, 0, 0, 0];
    answer.extend(length.to_ne_bytes());
    answer.extend([0; 8]);
    answer.extend(records);
    answer
}

#[test]
fn a_route_of_ibacms_comes_with_the_ports_at_its_ends() {
    let query = query().node("10.0.0.2").service("7471");
    let found = query.resolve_on(machine_with_ibacm(true)).unwrap();
    let [ib, ip_info] = &found[..] else {
        panic!("not two answers: {found:?}");
    };
    assert_eq!(ip_info.source, Some(ip("10.0.0.1:0")));
    assert_eq!(ip_info.destination, Some(ip("10.0.0.2:7471")));
    assert!(ip_info.connect_data.is_empty());
    assert_eq!((ip_info.route.len(), &ib.route), (1, &ip_info.route));
    let end = |port, gid| {
        Some(Address::from(IbAddress {
            pkey: 0x8001,
            flow_info: 7,
            ..IbAddress::for_port(PortSpace::Tcp, port, Gid([gid; 16]))
        }))
    };
    assert_eq!(ib.source, end(0, 1));
    assert_eq!(ib.destination, end(7471, 2));
    assert_eq!(ib.connect_data.len(), 36);
    assert_eq!(ib.connect_data[32..], [10, 0, 0, 2]);
}

#[test]
fn only_the_route_is_added_where_that_is_wanted_or_all_that_is_known() {
    let query = query().node("10.0.0.2").service("7471");
    let wanted = query.clone().route_only();
    for (query, tells_source) in [(wanted, true), (query, false)] {
        let found = query.resolve_on(machine_with_ibacm(tells_source)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].route.len(), 1);
        assert_eq!(found[0].destination, Some(ip("10.0.0.2:7471")));
    }
}

#[test]
fn a_source_that_was_asked_for_stays() {
    let source = ip("10.0.0.9:0");
    let query = query().node("10.0.0.2").source(source).route_only();
    let found = query.resolve_on(machine_with_ibacm(true)).unwrap();
    assert_eq!(found[0].source, Some(source));
}

/// Where names or routes are not to be waited for, ibacm tells only what it knows.
#[test]
fn ibacm_is_told_to_hurry() {
    for (query, is_hurry) in [
        (query().node("10.0.0.2"), false),
        (query().node("10.0.0.2").numeric_host(), true),
        (query().node("10.0.0.2").no_route(), true),
    ] {
        let twin = Twin::new();
        twin.serve(move |request| {
            let flags = u32::from_ne_bytes(request[16..20].try_into().unwrap());
            assert_eq!(flags & 1 << 30 != 0, is_hurry);
            Ok(ibacm_answer(true))
        });
        let found = query.resolve_on(twin.registry()).unwrap();
        assert_eq!(found[0].route.len(), 1);
    }
}

#[test]
fn ibacm_is_not_asked_where_to_listen() {
    let twin = Twin::new();
    twin.serve(|_| -> io::Result<Vec<u8>> { panic!("asked") });
    let query = query().node("10.0.0.2").passive();
    assert_eq!(query.resolve_on(twin.registry()).unwrap().len(), 1);
}
