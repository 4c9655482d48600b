//! Addresses that lead nowhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rdmacm::{Connector, ErrorKind, EventChannel, Listener, Result};

use super::{Situation, bound_id, check, fresh_id};
use crate::environment;
use crate::harness::{Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![local_addresses, peers_addresses, ports]
}

/// An address that is nobody's here, and to which no route leads.
const FOREIGN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

fn bind(address: impl Into<SocketAddr>) -> Result<()> {
    fresh_id()?.bind_addr(address.into())
}

fn resolve(source: Option<SocketAddr>, peer: impl Into<SocketAddr>) -> Result<()> {
    fresh_id()?.resolve_addr(source.map(Into::into), peer.into(), PATIENCE)
}

fn connect(ip: IpAddr) -> Result<()> {
    Connector::new()
        .timeout(PATIENCE)
        .connect((ip, 7471))
        .map(drop)
}

/// F115, F56: local addresses.
const LOCAL: &[Situation] = &[
    Situation {
        name: "bind to an address that no RDMA device has",
        make: || bind((environment::plain_addr(), 0)),
        kind: ErrorKind::NoDevice,
        words: &["no RDMA device serves", "RDMA devices of this machine: "],
    },
    Situation {
        name: "listen on an address that no RDMA device has",
        make: || Listener::bind((environment::plain_addr(), 0)).map(drop),
        kind: ErrorKind::NoDevice,
        words: &["no RDMA device serves", "RDMA devices of this machine: "],
    },
    Situation {
        name: "bind to another machine's address",
        make: || bind((FOREIGN, 0)),
        kind: ErrorKind::Kernel,
        words: &[
            "192.0.2.1 is not an address of this machine",
            "RDMA devices of this machine: ",
        ],
    },
    Situation {
        name: "bind to a link-local address without a scope",
        make: || bind((LINK_LOCAL, 0)),
        kind: ErrorKind::Kernel,
        words: &["link-local", "index of its interface as scope id"],
    },
    Situation {
        name: "listen on a name without addresses",
        make: || Listener::bind("no.such.host.invalid:7471").map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["the address does not resolve"],
    },
    Situation {
        name: "listen on an address without a port",
        make: || Listener::bind("10.10.0.1").map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["the address does not resolve"],
    },
    Situation {
        name: "connect from another machine's address",
        make: || resolve(Some((FOREIGN, 0).into()), any_port()),
        kind: ErrorKind::Kernel,
        words: &["192.0.2.1 is not an address of this machine"],
    },
    Situation {
        name: "connect from an address of another family",
        make: || resolve(Some((environment::addr6(), 0).into()), any_port()),
        kind: ErrorKind::Kernel,
        words: &["of different families"],
    },
];

fn local_addresses() -> TestResult {
    check(LOCAL)
}

/// F53, F55, F64, F67: peers' addresses.
const PEERS: &[Situation] = &[
    Situation {
        name: "connect where no RDMA device leads",
        make: || connect(environment::plain_addr()),
        kind: ErrorKind::NoDevice,
        words: &[
            "is not reached through an RDMA device",
            "RDMA devices of this machine: ",
        ],
    },
    Situation {
        name: "connect where no route leads",
        make: || connect(FOREIGN),
        kind: ErrorKind::Unreachable,
        words: &["no route leads to 192.0.2.1"],
    },
    Situation {
        name: "connect where nobody listens",
        make: || connect(environment::addr()),
        kind: ErrorKind::Rejected,
        words: &["connect: ", "nobody listens on that port"],
    },
    Situation {
        name: "connect to a loopback address",
        make: || connect(Ipv4Addr::LOCALHOST.into()),
        kind: ErrorKind::NoDevice,
        words: &[
            "RDMA does not go through loopback addresses",
            "the address of the interface",
        ],
    },
    Situation {
        name: "connect to the IPv6 loopback address",
        make: || connect(Ipv6Addr::LOCALHOST.into()),
        kind: ErrorKind::NoDevice,
        words: &[
            "RDMA does not go through loopback addresses",
            "the address of the interface",
        ],
    },
    Situation {
        name: "connect to no address in particular",
        make: || connect(Ipv4Addr::UNSPECIFIED.into()),
        kind: ErrorKind::NoDevice,
        words: &["the address of the interface"],
    },
    Situation {
        name: "connect to a name without addresses",
        make: || {
            Connector::new()
                .connect("no.such.host.invalid:7471")
                .map(drop)
        },
        kind: ErrorKind::InvalidInput,
        words: &["the address does not resolve"],
    },
    Situation {
        name: "resolve a route in no time",
        make: || {
            let channel = EventChannel::open()?;
            let id = channel.create_id(rdmacm::PortSpace::Tcp)?;
            id.resolve_addr(None, any_port(), PATIENCE)?;
            expect(&channel, "ADDR_RESOLVED")?;
            id.resolve_route(Duration::ZERO)
        },
        kind: ErrorKind::InvalidInput,
        words: &["longer than zero"],
    },
    Situation {
        name: "connect in no time",
        make: || {
            let listener = Listener::bind(any_port())?;
            let peer = listener.local_addr().expect("it listens");
            Connector::new()
                .timeout(Duration::ZERO)
                .connect(peer)
                .map(drop)
        },
        kind: ErrorKind::TimedOut,
        words: &["within 0ns"],
    },
];

fn peers_addresses() -> TestResult {
    check(PEERS)
}

/// F59: ports.
const PORTS: &[Situation] = &[
    Situation {
        name: "bind to a port that is in use",
        make: || {
            let first = bound_id()?;
            bind(first.local_addr().expect("it is bound"))
        },
        kind: ErrorKind::Kernel,
        words: &["is in use on 10.10.0.1"],
    },
    Situation {
        name: "listen on a port that another listener has",
        make: || {
            let first = Listener::bind(any_port())?;
            Listener::bind(first.local_addr().expect("it listens")).map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &["is in use on 10.10.0.1"],
    },
    Situation {
        name: "listen on a port that a listener on all addresses has",
        make: || {
            let first = Listener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let port = first.local_addr().expect("it listens").port();
            Listener::bind((environment::addr(), port)).map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &["is in use on a wildcard address"],
    },
];

fn ports() -> TestResult {
    check(PORTS)
}
