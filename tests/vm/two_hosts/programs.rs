//! Programs that talk to each other over the wire. Host A has the server, or the receiver.

use std::error::Error;
use std::thread;
use std::time::Duration;

use super::excuses::Excuses;
use super::host::{Host, ip};
use super::link::Link;
use super::streams::Wire;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::interop::matrix::{ADDR, ATTEMPTS, Case, Maker, PAIRS, Side};
use crate::programs::{Ended, Program};
use crate::traffic::interface::Interface;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        ucmatose_between_hosts: 240 s,
        udaddy_between_hosts: 240 s,
        mckey_delivers: 240 s,
        mckey_delivers_what_a_send_only_member_sends: 240 s,
    ]
}

const PATIENCE: Duration = Duration::from_secs(40);

/// Who made the programs of the hosts.
#[derive(Debug, Clone, Copy)]
pub struct Makers {
    pub a: Maker,
    pub b: Maker,
}

impl Makers {
    /// Who made the program of this host.
    pub fn own(self) -> Maker {
        match Host::own() {
            Host::A => self.a,
            Host::B => self.b,
        }
    }
}

/// Runs `exchange` for all pairs of makers.
pub fn with_all_makers(
    test: &str,
    exchange: impl Fn(&mut Link, Makers) -> Result<(), Box<dyn Error>>,
) -> TestResult {
    let mut link = Link::open(test)?;
    for (a, b) in PAIRS {
        exchange(&mut link, Makers { a, b })
            .map_err(|error| format!("{a:?} on A, {b:?} on B: {error}"))?;
        link.meet("the end of a pair")?;
    }
    Ok(Outcome::Pass)
}

/// A server on A, which B's client waits for, and then a client on B. Once more while that fails with
/// what is excused on either host.
pub fn run_case(
    link: &mut Link,
    makers: Makers,
    case: &Case<'_>,
    wire: Wire,
    patience: Duration,
) -> Result<(), Box<dyn Error>> {
    let may_interrupt = case.may_interrupt(makers.a);
    let excuses = Excuses::new(makers, may_interrupt, wire.loses_packets());
    for is_last in (0..ATTEMPTS).map(|attempt| attempt + 1 == ATTEMPTS) {
        let outcome = match Host::own() {
            Host::A => serve(link, makers.a, case, patience),
            Host::B => ask(link, makers.b, case, patience),
        };
        let said = outcome.as_ref().err().map(ToString::to_string);
        let is_own = said.is_some_and(|said| excuses.hold(&said));
        link.tell(if is_own { ONCE_MORE } else { "done" })?;
        let is_others = link.hear_within(2 * patience)? == ONCE_MORE;
        if is_last || !(is_own || is_others) {
            return outcome;
        }
        println!("once more: {outcome:?}");
    }
    unreachable!("the last attempt returns")
}

const ONCE_MORE: &str = "once more";
const CLIENT_IS_DONE: &str = "the client is done";

fn serve(
    link: &mut Link,
    maker: Maker,
    case: &Case<'_>,
    patience: Duration,
) -> Result<(), Box<dyn Error>> {
    let server = case.server.start(maker, environment::addr())?;
    let mut server = server.until_listening(case.port)?;
    link.meet("listening")?;
    match link.hear_within(2 * patience)? == CLIENT_IS_DONE {
        true => case.server.check(&server.wait(patience)?),
        // It may wait for its client for ever, and is not at fault.
        false => Ok(()),
    }
}

fn ask(
    link: &mut Link,
    maker: Maker,
    case: &Case<'_>,
    patience: Duration,
) -> Result<(), Box<dyn Error>> {
    link.meet("listening")?;
    let mut client = case.client.start(maker, environment::peer_addr())?;
    let outcome = client
        .wait(patience)
        .and_then(|ended| case.client.check(&ended));
    link.tell(match outcome.is_ok() {
        true => CLIENT_IS_DONE,
        false => "the client failed",
    })?;
    outcome
}

/// What programs with "data transfers" say when they are done.
const COMPLETE: [&str; 2] = ["data transfers complete", "return status 0"];

fn transfers_between_hosts(program: &str, port: u16, count: &str) -> TestResult {
    let [server, client] = ["-b", "-s"].map(|address| ["-c", count, address, ADDR]);
    let side = |args| Side {
        program,
        args,
        says: &COMPLETE,
    };
    let case = Case {
        server: side(&server),
        client: side(&client),
        port,
        server_goes_on: false,
        rust_server_waits: false,
    };
    with_all_makers(program, |link, makers| {
        run_case(link, makers, &case, Wire::Good, PATIENCE)
    })
}

fn complete(ended: &Ended) -> Result<(), Box<dyn Error>> {
    let said = |line: &&str| ended.output.lines().any(|said| said == *line);
    let complete = COMPLETE.iter().all(said);
    match complete && ended.status.success() {
        true => Ok(()),
        false => Err(ended.to_string().into()),
    }
}

fn ucmatose_between_hosts() -> TestResult {
    transfers_between_hosts("ucmatose", 7471, "4")
}

fn udaddy_between_hosts() -> TestResult {
    transfers_between_hosts("udaddy", 7174, "3")
}

fn mckey_delivers() -> TestResult {
    multicast("mckey", "239.1.2.3", &[])
}

fn mckey_delivers_what_a_send_only_member_sends() -> TestResult {
    multicast("mckey send-only", "239.1.2.4", &["-o"])
}

/// The receiver ends when ten messages have come.
fn multicast(test: &str, group: &str, sender: &[&str]) -> TestResult {
    let _route = GroupRoute::add()?;
    with_all_makers(test, |link, makers| {
        let maker = makers.own();
        let own = environment::addr().to_string();
        let args = ["-b", &own, "-m", group];
        match Host::own() {
            Host::A => {
                let mut receiver = Program::start(&maker.path("mckey"), &args)?;
                // It joins at once, and listens three seconds later.
                thread::sleep(Duration::from_secs(2));
                link.meet("joined")?;
                complete(&receiver.wait(PATIENCE)?)
            }
            Host::B => {
                link.meet("joined")?;
                // Many: the C sender destroys its queue pair while most of them are still queued.
                let args = [&args, sender, &["-s", "-C", "2000"]].concat();
                complete(&Program::start(&maker.path("mckey"), &args)?.wait(PATIENCE)?)
            }
        }
    })
}

/// The route to multicast groups, which the guest lacks.
struct GroupRoute;

impl GroupRoute {
    fn add() -> Result<Self, Box<dyn Error>> {
        change_route("add")?;
        Ok(Self)
    }
}

impl Drop for GroupRoute {
    fn drop(&mut self) {
        let _ = change_route("del");
    }
}

fn change_route(what: &str) -> Result<(), Box<dyn Error>> {
    let interface = Interface::under_test()?.name;
    ip(&["route", what, "224.0.0.0/4", "dev", &interface])
}
