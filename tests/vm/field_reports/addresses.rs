//! Ports that are free although they do not look so.

use std::net::TcpListener;

use rdmacm::Listener;

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::Plan;
use crate::pair::any_port;
use crate::peers::{Peer, Role};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_port_that_tcp_uses_is_free,
        a_killed_server_starts_again_at_once,
    ]
}

/// F59: on RoCE the connection manager has ports of its own.
fn a_port_that_tcp_uses_is_free() -> TestResult {
    let tcp = TcpListener::bind(any_port())?;
    let ours = Listener::bind(tcp.local_addr()?)?;
    assert_eq!(ours.local_addr(), Some(tcp.local_addr()?));
    let other = Listener::bind(any_port())?;
    TcpListener::bind(other.local_addr().expect("it listens"))?;
    Ok(Outcome::Pass)
}

/// F60: also when it was connected.
fn a_killed_server_starts_again_at_once() -> TestResult {
    let (server, address) = Peer::listening(Role::Accept)?;
    let client = Plan::default().ask(address)?;
    crate::pair::expect(&client.channel, "ESTABLISHED")?;
    server.kill()?;
    let again = Listener::bind(address)?;
    assert_eq!(again.local_addr(), Some(address));
    Ok(Outcome::Pass)
}
