//! Attempts that fail, one after the other: 10,000 in a full run.

use std::net::{Ipv4Addr, SocketAddr};

use rdmacm::{
    CmId, ConnParam, Connector, Cq, ErrorKind, Event, EventChannel, Pd, PortSpace, Qp, QpAttr,
    Result,
};

use super::endure;
use crate::environment;
use crate::harness::{Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, listen};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![attempts_that_fail: 400 s]
}

/// How an attempt fails.
struct Failure {
    name: &'static str,
    attempt: fn(&Bench) -> Result<()>,
    kind: ErrorKind,
}

/// They take turns.
const FAILURES: &[Failure] = &[
    Failure {
        name: "nobody listens",
        attempt: |bench| bench.connect(bench.deaf),
        kind: ErrorKind::Rejected,
    },
    Failure {
        name: "more private data than fits",
        attempt: |bench| {
            let too_much = ConnParam::new().private_data(&[0; 57])?;
            bench.ask(bench.deaf, &too_much).map(drop)
        },
        kind: ErrorKind::InvalidInput,
    },
    Failure {
        name: "no route",
        attempt: |bench| bench.id()?.resolve_addr(None, NOWHERE, PATIENCE),
        kind: ErrorKind::Unreachable,
    },
    Failure {
        name: "connect before anything is resolved",
        attempt: |bench| bench.id()?.connect(&ConnParam::new()),
        kind: ErrorKind::InvalidState,
    },
    Failure {
        name: "the listener rejects",
        attempt: |bench| {
            let asking = bench.ask(bench.address(), &ConnParam::new())?;
            bench.request()?.reject(b"full")?;
            bench.answer(&asking)
        },
        kind: ErrorKind::Rejected,
    },
    Failure {
        name: "a port in use",
        attempt: |bench| bench.id()?.bind_addr(bench.address()),
        kind: ErrorKind::Kernel,
    },
    Failure {
        name: "an address of another machine",
        attempt: |bench| bench.id()?.bind_addr(NOWHERE),
        kind: ErrorKind::Kernel,
    },
    Failure {
        name: "the request is dropped",
        attempt: |bench| {
            let asking = bench.ask(bench.address(), &ConnParam::new())?;
            drop(bench.request()?);
            bench.answer(&asking)
        },
        kind: ErrorKind::Rejected,
    },
    Failure {
        name: "resolve the address twice",
        attempt: |bench| {
            let id = bench.id()?;
            id.resolve_addr(None, bench.address(), PATIENCE)?;
            id.resolve_addr(None, bench.address(), PATIENCE)
        },
        kind: ErrorKind::Kernel,
    },
    Failure {
        name: "a queue pair without end",
        attempt: |bench| {
            let id = bench.resolved(bench.address())?;
            let attr = bench.attr().max_send_wr(u32::MAX);
            id.create_qp(&attr).map(drop)
        },
        kind: ErrorKind::InvalidInput,
    },
    Failure {
        name: "the client gave up before it is accepted",
        attempt: |bench| {
            let asking = bench.ask(bench.address(), &ConnParam::new())?;
            let id = bench.request()?;
            let _qp = id.create_qp(&bench.attr())?;
            drop(asking);
            id.accept(&ConnParam::new())?;
            bench.answer_to(&id)
        },
        kind: ErrorKind::Rejected,
    },
    Failure {
        name: "an endpoint to a port without a listener",
        attempt: |bench| Connector::new().connect(bench.deaf).map(drop),
        kind: ErrorKind::Rejected,
    },
];

/// A network for documentation, to which no route leads.
const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7471);

fn attempts_that_fail() -> TestResult {
    let bench = Bench::new()?;
    endure(10_000, |number| {
        let failure = &FAILURES[number % FAILURES.len()];
        let error = (failure.attempt)(&bench).expect_err(failure.name);
        assert_eq!(error.kind(), failure.kind, "{}: {error}", failure.name);
        Ok(())
    })
}

/// A listener, and what clients need.
struct Bench {
    listening: EventChannel,
    listener: CmId,
    asking: EventChannel,
    pd: Pd,
    cq: Cq,
    /// Where nobody listens.
    deaf: SocketAddr,
}

impl Bench {
    fn new() -> Result<Self> {
        let listening = EventChannel::open()?;
        let pd = environment::context().alloc_pd()?;
        Ok(Self {
            listener: listen(&listening, any_port())?,
            listening,
            asking: EventChannel::open()?,
            cq: pd.context().completion_queue(16).build()?,
            pd,
            deaf: (environment::addr(), 1).into(),
        })
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it listens")
    }

    fn attr(&self) -> QpAttr<'_> {
        QpAttr::new(&self.pd).send_cq(&self.cq).recv_cq(&self.cq)
    }

    fn id(&self) -> Result<CmId> {
        self.asking.create_id(PortSpace::Tcp)
    }

    fn resolved(&self, peer: SocketAddr) -> Result<CmId> {
        let id = self.id()?;
        id.resolve_addr(None, peer, PATIENCE)?;
        self.next(|event| matches!(event, Event::AddressResolved(_)))?;
        id.resolve_route(PATIENCE)?;
        self.next(|event| matches!(event, Event::RouteResolved(_)))?;
        Ok(id)
    }

    fn next(&self, wanted: fn(&Event) -> bool) -> Result<Event> {
        self.asking.expect("attempt", Some(PATIENCE), wanted)
    }

    /// A client that has asked for a connection.
    fn ask(&self, peer: SocketAddr, param: &ConnParam) -> Result<(CmId, Qp)> {
        let id = self.resolved(peer)?;
        let qp = id.create_qp(&self.attr())?;
        id.connect(param)?;
        Ok((id, qp))
    }

    fn connect(&self, peer: SocketAddr) -> Result<()> {
        let asking = self.ask(peer, &ConnParam::new())?;
        self.answer(&asking)
    }

    /// The id of the request that comes.
    fn request(&self) -> Result<CmId> {
        let wanted = |event: &Event| matches!(event, Event::ConnectRequest(_));
        match self.listening.expect("request", Some(PATIENCE), wanted)? {
            Event::ConnectRequest(request) => Ok(request.into_id()),
            other => unreachable!("{other:?}"),
        }
    }

    /// What becomes of a client.
    fn answer(&self, (id, _): &(CmId, Qp)) -> Result<()> {
        let event = self.next(|event| matches!(event, Event::Established(_)))?;
        assert_eq!(event.id(), id);
        Ok(())
    }

    /// What becomes of an id that has accepted.
    fn answer_to(&self, id: &CmId) -> Result<()> {
        let wanted = |event: &Event| matches!(event, Event::Established(_));
        let event = self.listening.expect("accept", Some(PATIENCE), wanted)?;
        assert_eq!(event.id(), id);
        Ok(())
    }
}
