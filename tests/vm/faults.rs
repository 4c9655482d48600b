//! Each system call of a connection fails once, on either side, and either side is killed in each
//! phase. The error surfaces, the other side notices, and nothing is left.

mod calls;
mod kill;
mod sweep;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rdmacm_kernel_abi::ucma;

use crate::environment;
use crate::exchange::{self, ONE_ROUND, Server, Work};
use crate::harness::{Test, TestResult, tests};
use crate::tracer::{Event, Trace, Tracer};
use calls::Side;
use sweep::{Bench, sweep};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    let mut all = tests![
        each_call_of_the_client: 600 s,
        each_call_of_the_server: 600 s,
        each_sleep_of_the_client: 120 s,
        each_sleep_of_the_server: 120 s,
    ];
    all.extend(kill::tests());
    all
}

/// No exchange takes as long, not even one that fails.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Where traced servers listen.
fn address() -> SocketAddr {
    const PORT: u16 = 7510;
    (environment::addr(), PORT).into()
}

/// An exchange in which both sides have to sleep until a message comes. In [`ONE_ROUND`] that is a
/// matter of chance.
const WITH_SLEEP: Work = Work {
    pause: Duration::from_millis(200),
    ..ONE_ROUND
};

fn each_call_of_the_client() -> TestResult {
    sweep(Side::Client, &mut OfClient::new(ONE_ROUND)?)
}

fn each_sleep_of_the_client() -> TestResult {
    sweep(Side::SleepingClient, &mut OfClient::new(WITH_SLEEP)?)
}

fn each_call_of_the_server() -> TestResult {
    sweep(Side::Server, &mut OfServer::new(ONE_ROUND))
}

fn each_sleep_of_the_server() -> TestResult {
    sweep(Side::SleepingServer, &mut OfServer::new(WITH_SLEEP))
}

/// The client fails, a thread of this process serves it.
struct OfClient {
    server: Server,
    work: Work,
}

impl OfClient {
    fn new(work: Work) -> rdmacm::Result<Self> {
        let server = Server::start(work)?;
        Ok(Self { server, work })
    }
}

impl Bench for OfClient {
    fn run(&mut self, fail: impl FnOnce(Tracer) -> Tracer) -> io::Result<Trace> {
        fail(program("client", self.server.address(), self.work)).run()
    }

    fn ends_of_peer(&mut self) -> Vec<rdmacm::Result<()>> {
        self.server
            .ends()
            .into_iter()
            .map(|end| end.outcome)
            .collect()
    }
}

/// The server fails, this process connects to it.
struct OfServer {
    work: Work,
    peer: Option<rdmacm::Result<()>>,
}

impl OfServer {
    fn new(work: Work) -> Self {
        Self { work, peer: None }
    }
}

impl Bench for OfServer {
    fn run(&mut self, fail: impl FnOnce(Tracer) -> Tracer) -> io::Result<Trace> {
        let mut server = fail(program("server", address(), self.work)).start()?;
        let listens = |event: &Event| event.is_cm(ucma::Command::Listen) && event.succeeded();
        // It may have ended before.
        if server.wait_for(listens).is_ok() {
            self.peer = Some(exchange::client(address(), self.work));
        }
        server.wait()
    }

    fn ends_of_peer(&mut self) -> Vec<rdmacm::Result<()>> {
        self.peer.take().into_iter().collect()
    }
}

/// The side of the exchange that is to fail.
fn program(side: &str, address: SocketAddr, work: Work) -> Tracer {
    Tracer::own("exchange")
        .args([side, &address.to_string()])
        .args(work.to_args())
        .timeout(TOO_LONG)
}
