//! Streams between hosts, also where packets get lost. Host A has the server.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{RdmaStream, StreamSettings};

use super::ends::reach;
use super::host::{Host, Loss};
use super::link::Link;
use super::programs::{run_case, with_all_makers};
use crate::copied::{self, Folder};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::interop::matrix::{ADDR, Case, Side};
use crate::programs::Program;
use crate::streams::basics::{listen, pattern, read_pattern, write_pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        rstream_between_hosts: 240 s,
        riostream_between_hosts: 240 s,
        rcopy_between_hosts: 1500 s,
        streams_between_hosts: 600 s,
        rstream_over_loss: 600 s,
        riostream_over_loss: 600 s,
        rcopy_over_loss: 3600 s,
        streams_over_loss: 1200 s,
    ]
}

/// The way between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Good,
    /// Two of a hundred packets get lost, of each host's.
    Lossy,
}

impl Wire {
    /// Makes this host's part of it so, until the result is dropped. Whoever asks for the peer's link
    /// address does so before.
    fn prepare(self) -> Result<Option<Loss>, Box<dyn Error>> {
        reach((environment::peer_addr(), 9).into());
        Ok(match self {
            Self::Good => None,
            Self::Lossy => Some(Loss::begin(2)?),
        })
    }

    /// How long a program may take. A packet that no later one tells the loss of is sent again after
    /// half a second or more.
    fn patience(self) -> Duration {
        match self {
            Self::Good => Duration::from_secs(60),
            Self::Lossy => Duration::from_secs(150),
        }
    }
}

fn rstream_between_hosts() -> TestResult {
    run_measured("rstream", 7261, Wire::Good, &MANNERS)
}

fn rstream_over_loss() -> TestResult {
    run_measured("rstream", 7262, Wire::Lossy, &MANNERS)
}

fn riostream_between_hosts() -> TestResult {
    run_measured("riostream", 7263, Wire::Good, &MANNERS[..2])
}

fn riostream_over_loss() -> TestResult {
    run_measured("riostream", 7264, Wire::Lossy, &MANNERS[..2])
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
    with_all_makers(program, |link, maker| {
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
            run_case(link, maker, &case, wire.patience())?;
            println!(
                "{program} in {maker:?}, {size} bytes: {:?}",
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
    copy(7266, Wire::Lossy, &[longest, 12_345])
}

/// B copies files of these sizes to A, one after the other, over one server.
fn copy(port: u16, wire: Wire, sizes: &[usize]) -> TestResult {
    const PATIENCE: Duration = Duration::from_secs(800);
    with_all_makers("rcopy", |link, maker| {
        let folder = Folder::new("rcopy")?;
        let (from, to) = (folder.file("from"), folder.file("to"));
        let mut server = match Host::own() {
            Host::A => Some(Program::serve(&maker.path("rcopy"), port, &[])?),
            Host::B => None,
        };
        let _loss = wire.prepare()?;
        link.meet("listening")?;
        for (round, size) in sizes.iter().enumerate() {
            let bytes = pattern(round, *size);
            if Host::own() == Host::B {
                let address = (environment::peer_addr(), port);
                copied::send(maker, address, (&from, &to), &bytes, PATIENCE)?;
                link.tell("copied")?;
                link.hear()?;
            } else {
                link.hear_within(PATIENCE)?;
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
    exchange(Wire::Lossy, length, 100)
}

/// Much in both directions at once, messages and their answers, and the end of both directions.
fn exchange(wire: Wire, length: usize, answers: usize) -> TestResult {
    let mut link = Link::open("streams")?;
    let loss = wire.prepare()?;
    let stream = connect(&mut link)?;
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
fn connect(link: &mut Link) -> Result<RdmaStream, Box<dyn Error>> {
    let settings = StreamSettings::new().connect_timeout(Duration::from_secs(60));
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
