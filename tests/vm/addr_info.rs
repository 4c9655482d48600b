//! Names and addresses in text, through the guest's resolver, and on to the kernel.

use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::Path;

use rdmacm::{AddrInfo, AddrInfoQuery, AddressFamily, ErrorKind, EventChannel, PortSpace, Result};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{listen, resolve};
use crate::traffic::interface::Interface;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        addresses_in_text_connect,
        a_link_local_address_keeps_its_interface,
        a_passive_query_without_a_node_listens_everywhere,
        an_active_query_without_a_node_is_the_loopback_address,
        a_query_for_nothing_is_refused,
        an_unknown_host_is_told_in_the_resolvers_words,
        a_service_has_a_name,
        a_host_has_a_name,
    ]
}

fn only(found: Vec<AddrInfo>) -> AddrInfo {
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("there is one")
}

fn destination(info: &AddrInfo) -> SocketAddr {
    let address = info.destination.expect("an active answer has one");
    address.ip().expect("there is no ibacm here")
}

fn source(info: &AddrInfo) -> SocketAddr {
    let address = info.source.expect("a passive answer has one");
    address.ip().expect("only IP addresses were asked for")
}

/// The kernel resolves what the text stands for.
fn resolve_text(ip: IpAddr) -> Result<()> {
    let query = AddrInfoQuery::new().node(ip.to_string()).service("7471");
    let info = only(query.numeric_host().resolve()?);
    assert_eq!(destination(&info), (ip, 7471).into());
    let id = resolve(&EventChannel::open()?, destination(&info))?;
    assert_eq!(id.peer_addr(), Some((ip, 7471).into()));
    Ok(())
}

fn addresses_in_text_connect() -> TestResult {
    resolve_text(environment::addr())?;
    resolve_text(environment::addr6())?;
    Ok(Outcome::Pass)
}

/// F56: the interface of the text is the scope of the address.
fn a_link_local_address_keeps_its_interface() -> TestResult {
    let interface = Interface::under_test()?;
    let ip = interface.link_local()?;
    let node = format!("{ip}%{}", interface.name);
    let query = AddrInfoQuery::new().node(node).service("7471");
    let found = destination(&only(query.resolve()?));
    assert_eq!(
        found,
        SocketAddrV6::new(ip, 7471, 0, interface.index).into()
    );
    resolve(&EventChannel::open()?, found)?;
    Ok(Outcome::Pass)
}

/// F63.
fn a_passive_query_without_a_node_listens_everywhere() -> TestResult {
    for (family, wildcard) in [
        (AddressFamily::Ipv4, "0.0.0.0:7471"),
        (AddressFamily::Ipv6, "[::]:7471"),
    ] {
        let query = AddrInfoQuery::new()
            .service("7471")
            .passive()
            .family(family);
        let info = only(query.resolve()?);
        assert!(info.is_passive && info.destination.is_none());
        assert_eq!(source(&info), wildcard.parse()?);
        let listener = listen(&EventChannel::open()?, source(&info))?;
        assert_eq!(listener.local_addr(), Some(source(&info)));
    }
    // The resolver of glibc takes a star for no node.
    let query = AddrInfoQuery::new().node("*").service("7471");
    let found = query.clone().passive().resolve()?;
    assert!(source(&found[0]).ip().is_unspecified(), "{found:?}");
    let found = query.resolve()?;
    assert!(destination(&found[0]).ip().is_loopback(), "{found:?}");
    Ok(Outcome::Pass)
}

/// F63.
fn an_active_query_without_a_node_is_the_loopback_address() -> TestResult {
    let query = AddrInfoQuery::new()
        .service("7471")
        .port_space(PortSpace::Udp);
    let found = query.resolve()?;
    assert!(!found.is_empty());
    for info in &found {
        assert!(destination(info).ip().is_loopback(), "{info:?}");
        assert_eq!(info.port_space, PortSpace::Udp);
    }
    Ok(Outcome::Pass)
}

/// F63.
fn a_query_for_nothing_is_refused() -> TestResult {
    for query in [AddrInfoQuery::new(), AddrInfoQuery::new().passive()] {
        let error = query.resolve().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    Ok(Outcome::Pass)
}

/// F64.
fn an_unknown_host_is_told_in_the_resolvers_words() -> TestResult {
    let query = AddrInfoQuery::new()
        .node("no.such.host.invalid")
        .service("7471");
    let error = query.resolve().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resolver, "{error}");
    let code = error.resolver_code().expect("the resolver failed");
    assert!(code < 0, "{code} is no number of the resolver's");
    let text = error.to_string();
    assert!(text.contains("no.such.host.invalid"), "{text}");
    assert!(text.contains(&format!("(EAI {code})")), "{text}");
    let words = [
        "Name or service not known",
        "Temporary failure in name resolution",
    ];
    assert!(words.iter().any(|word| text.contains(word)), "{text}");
    Ok(Outcome::Pass)
}

/// A list of services while it exists; the guest has none of its own.
struct Services(&'static Path);

impl Services {
    fn new() -> Result<Self, std::io::Error> {
        let path = Path::new("/etc/services");
        assert!(!path.exists(), "the guest has got a list of services");
        fs::write(path, "rdma-test 7471/tcp\nrdma-test 7472/udp\n")?;
        Ok(Self(path))
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        fs::remove_file(self.0).expect("the list can be removed");
    }
}

fn a_service_has_a_name() -> TestResult {
    let query = AddrInfoQuery::new()
        .node(environment::addr().to_string())
        .service("rdma-test");
    let error = query.resolve().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resolver, "{error}");
    assert!(error.to_string().contains("rdma-test"), "{error}");
    let _services = Services::new()?;
    for (port_space, port) in [(PortSpace::Tcp, 7471), (PortSpace::Udp, 7472)] {
        let info = only(query.clone().port_space(port_space).resolve()?);
        assert_eq!(destination(&info).port(), port);
    }
    Ok(Outcome::Pass)
}

fn a_host_has_a_name() -> TestResult {
    let query = AddrInfoQuery::new()
        .node("localhost")
        .service("1")
        .canonical_name();
    let info = only(query.clone().family(AddressFamily::Ipv4).resolve()?);
    assert_eq!(destination(&info), "127.0.0.1:1".parse()?);
    assert_eq!(info.canonical_name.as_deref(), Some("localhost"));
    let error = query.numeric_host().resolve().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resolver, "{error}");
    Ok(Outcome::Pass)
}
