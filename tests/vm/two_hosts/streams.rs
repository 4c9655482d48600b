//! Streams between hosts, also where packets get lost. Host A has the server.

mod reused;

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ::tokio::io::AsyncReadExt;
use ::tokio::runtime::Builder;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{RdmaStream, StreamSettings};

use super::ends::reach;
use super::excuses::Excuses;
use super::host::{Host, Loss};
use super::link::Link;
use super::programs::{run_case, with_all_makers};
use crate::copied::{self, Folder};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::interop::matrix::{self, ADDR, Case, Maker, Side};
use crate::programs::Program;
use crate::siw;
use crate::streams::basics::{listen, pattern, read_pattern, write_pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        rstream_between_hosts: 240 s,
        riostream_between_hosts: 240 s,
        rcopy_between_hosts: 1500 s,
        streams_between_hosts: 600 s,
        rstream_over_loss: 1200 s,
        riostream_over_loss: 1200 s,
        rcopy_over_loss: 3600 s,
        streams_over_loss: 1200 s,
        a_server_that_speaks_first_is_heard: 300 s,
    ]
    .into_iter()
    .chain(reused::tests())
    .collect()
}

/// The way between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Good,
    /// So many of a hundred packets get lost, of each host's.
    Losing(u8),
}

impl Wire {
    /// Makes this host's part of it so, until the result is dropped. Whoever asks for the peer's link
    /// address does so before.
    pub fn prepare(self) -> Result<Option<Loss>, Box<dyn Error>> {
        reach((environment::peer_addr(), 9).into());
        Ok(match self {
            Self::Good => None,
            Self::Losing(percent) => Some(Loss::begin(percent)?),
        })
    }

    /// How long a program may take. A packet that no later one tells the loss of is sent again after
    /// half a second or more.
    fn patience(self) -> Duration {
        match self {
            Self::Good => Duration::from_secs(60),
            Self::Losing(_) => Duration::from_secs(90),
        }
    }

    pub fn loses_packets(self) -> bool {
        matches!(self, Self::Losing(_))
    }
}

fn rstream_between_hosts() -> TestResult {
    run_measured("rstream", 7261, Wire::Good, &MANNERS)
}

fn rstream_over_loss() -> TestResult {
    run_measured("rstream", 7262, Wire::Losing(2), &MANNERS)
}

fn riostream_between_hosts() -> TestResult {
    run_measured("riostream", 7263, Wire::Good, &MANNERS[..2])
}

fn riostream_over_loss() -> TestResult {
    run_measured("riostream", 7264, Wire::Losing(2), &MANNERS[..2])
}

/// Calls that wait, calls that do not, and an event loop as the server of calls that wait: how the server
/// and the client do it, with size, transfers and iterations, and how the line of the result begins.
struct Manner {
    server: &'static [&'static str],
    client: &'static [&'static str],
    counts: [&'static str; 3],
    line: &'static str,
}

const MANNERS: [Manner; 3] = [
    Manner {
        server: &["-T", "b"],
        client: &["-T", "b"],
        counts: ["70000", "20", "3"],
        line: "custom    68k     20      3       8m ",
    },
    Manner {
        server: &["-T", "n"],
        client: &["-T", "n"],
        counts: ["500", "20", "3"],
        line: "custom    500     20      3       58k ",
    },
    Manner {
        server: &["-T", "a", "-T", "b"],
        client: &["-T", "b"],
        counts: ["4000", "20", "3"],
        line: "custom    3.9k    20      3       468k ",
    },
];

/// Runs rstream or riostream between the hosts. Data that come are checked by the programs.
fn run_measured(program: &str, port: u16, wire: Wire, manners: &[Manner]) -> TestResult {
    let text = port.to_string();
    with_all_makers(program, |link, makers| {
        let _loss = wire.prepare()?;
        for manner in manners {
            let [size, transfers, iterations] = manner.counts;
            let common = [
                "-p", &text, "-T", "v", "-S", size, "-C", transfers, "-I", iterations,
            ];
            let server = [&["-b", ADDR], manner.server, &common].concat();
            let client = [&["-s", ADDR], manner.client, &common].concat();
            let says = [manner.line];
            let side = |args| Side {
                program,
                args,
                says: &says,
            };
            let case = Case {
                server: side(&server),
                client: side(&client),
                port,
                server_goes_on: false,
                rust_server_waits: true,
            };
            let start = Instant::now();
            run_case(link, makers, &case, wire, wire.patience())?;
            println!(
                "{program} in {:?}, {size} bytes: {:?}",
                makers.own(),
                start.elapsed()
            );
            link.meet("the end of a manner")?;
        }
        Ok(())
    })
}

fn rcopy_between_hosts() -> TestResult {
    let longest = match environment::is_full_run() {
        true => 100 << 20,
        false => 5 << 20,
    };
    copy(7265, Wire::Good, &[longest, 12_345, 1])
}

fn rcopy_over_loss() -> TestResult {
    let longest = match environment::is_full_run() {
        true => 100 << 20,
        false => 1 << 20,
    };
    copy(7266, Wire::Losing(2), &[longest, 12_345])
}

/// What B says where the server does not answer.
const SERVER_WANTED: &str = "another server, please";

/// B copies files of these sizes to A, one after the other, over one server.
fn copy(port: u16, wire: Wire, sizes: &[usize]) -> TestResult {
    let patience = match environment::is_full_run() {
        true => Duration::from_secs(800),
        false => Duration::from_secs(120),
    };
    with_all_makers("rcopy", |link, makers| {
        let folder = Folder::new("rcopy")?;
        let (from, to) = (folder.file("from"), folder.file("to"));
        let mut server = match Host::own() {
            Host::A => Some(Program::serve(&makers.a.path("rcopy"), port, &[])?),
            Host::B => None,
        };
        let _loss = wire.prepare()?;
        let excuses = Excuses::new(makers, makers.a == Maker::C, wire.loses_packets());
        link.meet("listening")?;
        for (round, size) in sizes.iter().enumerate() {
            let bytes = pattern(round, *size);
            if Host::own() == Host::B {
                let address = (environment::peer_addr(), port);
                let mut is_again = false;
                let run = || {
                    if std::mem::replace(&mut is_again, true) {
                        link.tell(SERVER_WANTED)?;
                        link.meet("listening")?;
                    }
                    copied::send(makers.b, address, (&from, &to), &bytes, patience)
                };
                matrix::retry(|said| excuses.hold(said), run)?;
                link.tell("copied")?;
                link.hear()?;
            } else {
                // A C server may wait for ever for the client before.
                while link.hear_within(2 * patience)? == SERVER_WANTED {
                    drop(server.take());
                    server = Some(Program::serve(&makers.a.path("rcopy"), port, &[])?);
                    link.meet("listening")?;
                }
                copied::compare(&bytes, &to)?;
                link.tell("compared")?;
            }
        }
        match server.as_mut().map(Program::is_running).transpose()? {
            Some(false) => Err("the server ended".into()),
            _ => Ok(()),
        }
    })
}

fn streams_between_hosts() -> TestResult {
    let length = match environment::is_full_run() {
        true => 100 << 20,
        false => 5 << 20,
    };
    exchange(Wire::Good, length, 500)
}

fn streams_over_loss() -> TestResult {
    let length = match environment::is_full_run() {
        true => 10 << 20,
        false => 1 << 20,
    };
    exchange(Wire::Losing(2), length, 100)
}

/// Over iWARP it may speak as soon as it has heard of the client, which siw at times leaves unread.
fn a_server_that_speaks_first_is_heard() -> TestResult {
    let mut link = Link::open("speaks first")?;
    let _loss = Wire::Good.prepare()?;
    let ways: [fn(RdmaStream) -> io::Result<u8>; 3] = [hear, hear_in_event_loop, hear_in_task];
    let rounds = match siw::is_under_test() {
        true => 120,
        false => 12,
    };
    for round in 0..rounds {
        let mut stream = connect(&mut link, StreamSettings::new())?;
        match Host::own() {
            Host::A => {
                stream.write_all(&[round])?;
                link.meet("heard")?;
            }
            Host::B => {
                let start = Instant::now();
                let heard = ways[usize::from(round) % 3](stream);
                let took = start.elapsed();
                assert_eq!(heard.map_err(|error| format!("{round}: {error}"))?, round);
                if took > Duration::from_secs(1) {
                    println!("connection {round}: {took:?}");
                }
                link.meet("heard")?;
            }
        }
    }
    Ok(Outcome::Pass)
}

/// How long the first byte may take.
const SILENCE: Duration = Duration::from_secs(5);

fn hear(mut stream: RdmaStream) -> io::Result<u8> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn hear_in_event_loop(mut stream: RdmaStream) -> io::Result<u8> {
    stream.set_nonblocking(true)?;
    let end = Instant::now() + SILENCE;
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(1) => return Ok(byte[0]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            outcome => return Err(io::Error::other(format!("{outcome:?}"))),
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, left)? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

fn hear_in_task(stream: RdmaStream) -> io::Result<u8> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stream = rdmacm::tokio::RdmaStream::from_std(stream);
        ::tokio::time::timeout(SILENCE, stream.read_u8()).await?
    })
}

/// Much in both directions at once, messages and their answers, and the end of both directions.
fn exchange(wire: Wire, length: usize, answers: usize) -> TestResult {
    let mut link = Link::open("streams")?;
    let loss = wire.prepare()?;
    let stream = connect(&mut link, StreamSettings::new())?;
    let start = Instant::now();
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_pattern(&stream, length, 100_000));
        read_pattern(&stream, length)?;
        writer.join().expect("the writer does not panic")
    })?;
    println!("{length} bytes each way: {:?}", start.elapsed());
    let start = Instant::now();
    answer(&stream, answers)?;
    println!("{answers} answers: {:?}", start.elapsed());
    (&stream).write_all(b"last")?;
    stream.shutdown(Shutdown::Write)?;
    let mut last = Vec::new();
    (&stream).read_to_end(&mut last)?;
    assert_eq!(last, b"last");
    drop(stream);
    link.meet("closed")?;
    drop(loss);
    Ok(Outcome::Pass)
}

/// A stream between the hosts, which B connects.
pub fn connect(link: &mut Link, settings: StreamSettings) -> Result<RdmaStream, Box<dyn Error>> {
    let settings = settings.connect_timeout(Duration::from_secs(60));
    match Host::own() {
        Host::A => {
            let (listener, address) = listen(&settings)?;
            link.tell_address(address)?;
            Ok(listener.accept_timeout(Duration::from_secs(60))?.0)
        }
        Host::B => {
            let address = link.hear_address()?;
            Ok(RdmaStream::connect_with(address, &settings)?)
        }
    }
}

/// Messages of B's, each of which A answers.
fn answer(mut stream: &RdmaStream, count: usize) -> io::Result<()> {
    let mut bytes = [0; 64];
    for number in 0..count {
        let message = [number as u8; 64];
        if Host::own() == Host::B {
            stream.write_all(&message)?;
        }
        stream.read_exact(&mut bytes)?;
        assert_eq!(bytes, message);
        if Host::own() == Host::A {
            stream.write_all(&message)?;
        }
    }
    Ok(())
}
