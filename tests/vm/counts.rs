//! How many system calls it takes, next to the C library's programs in the same guest.
//!
//! `vm counts` prints the table; the test holds the numbers to their limits.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;

use crate::connections::{self, EchoServer};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::interop::matrix::Maker;
use crate::programs::Program;
use crate::tracer::{Event, Trace, Tracer};

/// The example of that name, the counterpart of the C library's `rdma_client`.
const ONE_MESSAGE: &str = "/opt/one_message";

/// All system calls of a client that exchanges one message.
const MOST_OF_A_CLIENT: usize = 80;

/// Device writes, ioctls and mmaps of one connection more on the active side.
const MOST_OF_A_CONNECTION: f64 = 22.0;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        counts_stay_within_their_limits: 120 s,
        cmtime_stays_within_the_limit: 200 s,
    ]
}

fn counts_stay_within_their_limits() -> TestResult {
    let client = one_message_client()?.events.len();
    assert!(
        client <= MOST_OF_A_CLIENT,
        "{client} system calls of a one-message client"
    );
    let connection = per_connection(&|count| our_connections(count))?;
    let total: f64 = connection.values().sum();
    assert!(
        total <= MOST_OF_A_CONNECTION,
        "{total} of a connection: {connection:?}"
    );
    assert_eq!(doorbells_of_32_sends()?, 1);
    Ok(Outcome::Pass)
}

/// The whole client, beside the C program.
fn cmtime_stays_within_the_limit() -> TestResult {
    let counts = |maker| per_connection(&|count| cmtime(maker, count));
    let sum = |counts: &Counts| counts.values().sum::<f64>();
    let (theirs, ours) = (counts(Maker::C)?, counts(Maker::Rust)?);
    assert!(
        sum(&ours) <= MOST_OF_A_CONNECTION,
        "{:.1} of a connection: {ours:?}",
        sum(&ours)
    );
    assert!(sum(&ours) < sum(&theirs), "{ours:?}, in C {theirs:?}");
    Ok(Outcome::Pass)
}

/// Prints the table.
pub fn run(_args: &[String]) -> ExitCode {
    match print_table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_table() -> Result<(), Box<dyn Error>> {
    println!("{:>8} {:>8}", "C", "rdmacm");
    let (theirs, ours) = (c_client()?.events.len(), one_message_client()?.events.len());
    println!("{theirs:>8} {ours:>8}  system calls of a client that exchanges one message");
    let theirs = per_connection(&|count| c_connections(count))?;
    let ours = per_connection(&|count| our_connections(count))?;
    println!(
        "{:>8.1} {:>8.1}  device writes, ioctls and mmaps of one more connection (active side):",
        theirs.values().sum::<f64>(),
        ours.values().sum::<f64>()
    );
    let names = theirs
        .keys()
        .chain(ours.keys())
        .collect::<std::collections::BTreeSet<_>>();
    for name in names {
        let of = |counts: &Counts| {
            counts
                .get(name)
                .map_or(String::new(), |n| format!("{n:.1}"))
        };
        println!(
            "{:>8} {:>8}    {name}: {}",
            of(&theirs),
            of(&ours),
            reason(name)
        );
    }
    println!(
        "{:>8} {:>8}  doorbells of 32 sends in one batch",
        "",
        doorbells_of_32_sends()?
    );
    Ok(())
}

/// Why a connection needs the call.
fn reason(name: &str) -> &'static str {
    match name {
        "CREATE_ID" | "DESTROY_ID" => "the id's life",
        "RESOLVE_ADDR" | "RESOLVE_ROUTE" => "the kernel finds the device and the path",
        "GET_EVENT" => "address, route, handshake, disconnect",
        "QUERY" => "which device and local address were found",
        "CONNECT" | "ACCEPT" => "the handshake: request, and readiness to use",
        "BIND" => "done by resolving",
        "INIT_QP_ATTR" => "the attributes that the handshake agreed on, per state",
        "invoke MODIFY_QP" | "MODIFY_QP" => "to INIT, RTR, RTS, and to the error state at the end",
        "DISCONNECT" => "tells the peer",
        "QP.CREATE" | "QP.DESTROY" | "CREATE_QP" | "DESTROY_QP" => "the queue pair's life",
        "mmap" => "send ring and receive ring",
        _ => "",
    }
}

type Counts = BTreeMap<String, f64>;

/// The calls of one more connection, from the difference of two runs.
fn per_connection(
    run: &dyn Fn(usize) -> Result<Trace, Box<dyn Error>>,
) -> Result<Counts, Box<dyn Error>> {
    let (few, many) = (10, 60);
    let before = device_calls(&run(few)?);
    let mut counts = device_calls(&run(many)?);
    for (name, count) in &mut counts {
        *count = (*count - before.get(name).unwrap_or(&0.0)) / (many - few) as f64;
    }
    counts.retain(|_, count| *count > 0.05);
    Ok(counts)
}

/// Writes, ioctls and mmaps of RDMA devices, by command.
fn device_calls(trace: &Trace) -> Counts {
    let mut counts = Counts::new();
    for event in trace.events.iter().filter(|event| is_counted(event)) {
        *counts.entry(event.name()).or_default() += 1.0;
    }
    counts
}

fn is_counted(event: &Event) -> bool {
    let counted = [libc::SYS_write, libc::SYS_ioctl, libc::SYS_mmap];
    event.is_device() && counted.contains(&event.syscall)
}

fn one_message_client() -> Result<Trace, Box<dyn Error>> {
    let server = EchoServer::start(environment::addr())?;
    traced(Tracer::new(ONE_MESSAGE).args([server.addr().to_string()]))
}

fn our_connections(count: usize) -> Result<Trace, Box<dyn Error>> {
    let server = EchoServer::start(environment::addr())?;
    let args = [server.addr().to_string(), count.to_string()];
    traced(
        Tracer::own("connections")
            .args(args)
            .timeout(Duration::from_secs(60)),
    )
}

/// The sends of a process that does nothing else.
fn doorbells_of_32_sends() -> Result<usize, Box<dyn Error>> {
    let server = EchoServer::start(environment::addr())?;
    let trace = traced(Tracer::own("batch_of_sends").args([server.addr().to_string()]))?;
    Ok(trace.count(|event| event.is_verbs(uverbs::Command::POST_SEND)))
}

fn c_client() -> Result<Trace, Box<dyn Error>> {
    let addr = environment::addr().to_string();
    let _server = Program::serve("rdma_server", 7481, &["-s", &addr])?;
    traced(Tracer::new("rdma_client").args(["-s", &addr, "-p", "7481"]))
}

fn c_connections(count: usize) -> Result<Trace, Box<dyn Error>> {
    let addr = environment::addr().to_string();
    let _server = Program::serve("cmtime", 7482, &["-b", &addr])?;
    let (port, count) = ("7482", count.to_string());
    let args = ["-s", &addr, "-b", &addr, "-p", port, "-c", &count];
    traced(
        Tracer::new("cmtime")
            .args(args)
            .timeout(Duration::from_secs(60)),
    )
}

/// The program of that name, against a server of the same maker.
fn cmtime(maker: Maker, count: usize) -> Result<Trace, Box<dyn Error>> {
    let (program, addr) = (maker.path("cmtime"), environment::addr().to_string());
    let _server = Program::serve(&program, 7483, &["-b", &addr])?;
    let count = count.to_string();
    let args = ["-s", &addr, "-p", "7483", "-c", &count];
    traced(
        Tracer::new(&program)
            .args(args)
            .timeout(Duration::from_secs(60)),
    )
    .map_err(|error| format!("{program} with {count} connections: {error}").into())
}

fn traced(tracer: Tracer) -> Result<Trace, Box<dyn Error>> {
    let trace = tracer.run()?;
    match trace.status.success() {
        true => Ok(trace),
        false => Err(format!("{}: {}", trace.status, trace.output).into()),
    }
}

/// A client that makes connections, all of them before it ends the first, with one completion
/// queue: what the C library's `cmtime` does.
pub fn many_connections(args: &[String]) -> ExitCode {
    connections::program(args, |server, rest| {
        let count = rest
            .first()
            .and_then(|count| count.parse().ok())
            .unwrap_or(1);
        connections::connect_many(server, count)
    })
}

/// A client that posts 32 sends in one batch.
pub fn batch_of_sends(args: &[String]) -> ExitCode {
    connections::program(args, |server, _| connections::send_batch(server, 32))
}
