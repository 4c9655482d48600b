//! `kill -9` of either side in each phase: the kernel cleans up, and the survivor gets an error.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdmacm::{ErrorKind, Result as Answer};
use rdmacm_kernel_abi::ucma::Command;
use rdmacm_kernel_abi::uverbs;

use super::address;
use crate::exchange::{self, End, Server, Work};
use crate::harness::{CLEANUP_TIME, Outcome, Test, TestResult, Usage, tests};
use crate::pair;
use crate::tracer::{Event, Tracer, Tracing};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        clients: 120 s,
        servers: 120 s,
        client_in_a_flood,
        server_in_a_flood,
        both_at_once,
    ]
}

const REJECTED: Option<ErrorKind> = Some(ErrorKind::Rejected);
const DISCONNECTED: Option<ErrorKind> = Some(ErrorKind::Disconnected);

/// How soon the survivor must know.
const SOON: Duration = Duration::from_secs(2);

/// A few messages, each after a pause in which the other side sleeps.
const SLOW: Work = Work {
    rounds: 3,
    length: 1000,
    pause: Duration::from_millis(100),
};

/// Long messages without a pause and without an end, so that something is always in flight.
const FLOOD: Work = Work {
    rounds: u32::MAX,
    length: 1 << 16,
    pause: Duration::ZERO,
};

/// A moment in the life of a connection.
struct Phase {
    name: &'static str,
    /// The victim dies when it is about to make the n-th such call.
    n: usize,
    call: fn(&Event) -> bool,
    /// What the survivor is told, if there is one.
    told: Option<ErrorKind>,
}

const fn phase(
    name: &'static str,
    n: usize,
    call: fn(&Event) -> bool,
    told: Option<ErrorKind>,
) -> Phase {
    Phase {
        name,
        n,
        call,
        told,
    }
}

fn sends(event: &Event) -> bool {
    event.is_verbs(uverbs::Command::POST_SEND)
}

/// What a side does before it sleeps.
fn sleeps(event: &Event) -> bool {
    event.is_verbs(uverbs::Command::REQ_NOTIFY_CQ)
}

const OF_CLIENT: &[Phase] = &[
    phase("with an id", 1, |e| e.is_cm(Command::ResolveRoute), None),
    phase("with a queue pair", 1, |e| e.is_cm(Command::Connect), None),
    phase(
        "in the handshake",
        1,
        |e| e.is_cm(Command::Accept),
        REJECTED,
    ),
    phase("connected", 1, sends, DISCONNECTED),
    phase("waiting", 1, sleeps, DISCONNECTED),
    phase("after messages", 3, sends, DISCONNECTED),
];

const OF_SERVER: &[Phase] = &[
    phase("with an id", 1, |e| e.is_cm(Command::Listen), REJECTED),
    phase(
        "with a request",
        1,
        |e| e.is_cm(Command::GetEvent),
        REJECTED,
    ),
    phase(
        "with the request's id",
        1,
        |e| e.is_cm(Command::MigrateId),
        REJECTED,
    ),
    phase(
        "with a queue pair",
        1,
        |e| e.is_cm(Command::Accept),
        REJECTED,
    ),
    phase("receiving", 1, sleeps, DISCONNECTED),
    phase("answering", 1, sends, DISCONNECTED),
    phase("after messages", 3, sends, DISCONNECTED),
];

fn clients() -> TestResult {
    let server = Server::start(SLOW)?;
    for phase in OF_CLIENT {
        let before = Usage::now()?;
        let victim = victim("client", &server.address().to_string(), phase).start()?;
        let died = wait_for_death(victim, phase)?;
        let survivor = phase.told.and_then(|_| server.next_end(SOON));
        assert_told(phase.name, died, phase.told, survivor);
        before.wait_until_restored(CLEANUP_TIME)?;
    }
    // The server is none the worse for it.
    exchange::client(server.address(), SLOW)?;
    Ok(Outcome::Pass)
}

fn servers() -> TestResult {
    for phase in OF_SERVER {
        let before = Usage::now()?;
        let mut victim = victim("server", &address().to_string(), phase).start()?;
        // One that dies earlier is not there when the client comes.
        let _listens = victim.wait_for(|e| e.is_cm(Command::Listen) && e.succeeded());
        let client = thread::spawn(|| End::now(exchange::client(address(), SLOW)));
        let died = wait_for_death(victim, phase)?;
        let survivor = client.join().expect("the client does not panic");
        assert_told(phase.name, died, phase.told, Some(survivor));
        before.wait_until_restored(CLEANUP_TIME)?;
    }
    Ok(Outcome::Pass)
}

/// A victim: one side of the exchange, killed in a phase.
fn victim(side: &str, address: &str, phase: &Phase) -> Tracer {
    Tracer::own("exchange")
        .args([side, address])
        .args(SLOW.to_args())
        .kill_at(phase.n, phase.call)
}

/// Waits until the victim is killed; returns when that was.
fn wait_for_death(victim: Tracing, phase: &Phase) -> io::Result<Instant> {
    let trace = victim.wait()?;
    let died = Instant::now();
    let killed = trace.injected().is_some() && trace.status.signal() == Some(libc::SIGKILL);
    assert!(killed && !trace.timed_out, "{}: {trace}", phase.name);
    Ok(died)
}

/// Checks what the survivor was told, if anything, and when.
fn assert_told(phase: &str, died: Instant, told: Option<ErrorKind>, survivor: Option<End>) {
    let kind = survivor.as_ref().map(|end| kind_of(&end.outcome));
    assert_eq!(kind, told.map(Some), "{phase}: {survivor:?}");
    let took = survivor.map_or(Duration::ZERO, |end| end.at.saturating_duration_since(died));
    assert!(took < SOON, "{phase}: told after {took:?}");
}

/// The kind of an error, if it is one.
fn kind_of(outcome: &Answer<()>) -> Option<ErrorKind> {
    outcome.as_ref().err().map(|error| error.kind())
}

fn client_in_a_flood() -> TestResult {
    let listener = exchange::listen(pair::any_port())?;
    let address = listener.local_addr().expect("it listens");
    let survivor = thread::spawn(move || {
        let request = listener.incoming(Some(SOON));
        End::now(request.and_then(|request| exchange::serve(request, FLOOD)))
    });
    kill_in_a_flood(flood("client", address).start()?, survivor)
}

fn server_in_a_flood() -> TestResult {
    let mut victim = flood("server", address()).start()?;
    victim.wait_for(|e| e.is_cm(Command::Listen) && e.succeeded())?;
    let survivor = thread::spawn(|| End::now(exchange::client(address(), FLOOD)));
    kill_in_a_flood(victim, survivor)
}

/// One side of an exchange without an end.
fn flood(side: &str, address: SocketAddr) -> Tracer {
    Tracer::own("exchange")
        .args([side, &address.to_string()])
        .args(FLOOD.to_args())
}

/// Kills the victim after some messages, wherever it is just then.
fn kill_in_a_flood(mut victim: Tracing, survivor: JoinHandle<End>) -> TestResult {
    const MESSAGES: usize = 10;
    let sent = Cell::new(0);
    victim.wait_for(|event| {
        sent.set(sent.get() + usize::from(sends(event)));
        sent.get() == MESSAGES
    })?;
    victim.kill();
    assert_eq!(victim.wait()?.status.signal(), Some(libc::SIGKILL));
    let died = Instant::now();
    let survivor = survivor.join().expect("the survivor does not panic");
    assert_told("in a flood", died, DISCONNECTED, Some(survivor));
    Ok(Outcome::Pass)
}

/// Nobody survives: what is left is the kernel's to clean up.
fn both_at_once() -> TestResult {
    let mut server = flood("server", address()).start()?;
    server.wait_for(|e| e.is_cm(Command::Listen) && e.succeeded())?;
    let mut client = flood("client", address()).start()?;
    client.wait_for(|e| sends(e) && e.succeeded())?;
    client.kill();
    server.kill();
    for victim in [client, server] {
        assert_eq!(victim.wait()?.status.signal(), Some(libc::SIGKILL));
    }
    Ok(Outcome::Pass)
}
