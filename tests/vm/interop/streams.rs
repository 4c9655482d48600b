//! Programs that stream bytes.

use std::error::Error;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use rdmacm::{RdmaListener, RdmaStream, RegisteredBuffer};

use super::matrix::{self, ADDR, Case, Maker, PAIRS, Side};
use crate::copied::{self, Folder};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::{Ended, Program};
use crate::streams::basics::pattern;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        rstream_with_calls_that_wait: 100 s,
        rstream_with_calls_that_do_not_wait: 200 s,
        rstream_in_an_event_loop: 200 s,
        rstream_with_sizes_of_all_kinds: 200 s,
        rstream_with_all_sizes: 1500 s,
        rstream_as_it_measures: 8000 s,
        rstream_with_small_buffers: 100 s,
        rstream_with_keepalive: 100 s,
        rstream_over_tcp: 100 s,
        riostream_with_calls_that_wait: 200 s,
        riostream_with_calls_that_do_not_wait: 100 s,
        riostream_in_an_event_loop: 200 s,
        riostream_with_sizes_of_all_kinds: 200 s,
        riostream_with_all_sizes: 1500 s,
        riostream_as_it_measures: 8000 s,
        rcopy: 1500 s,
        rstream_of_c_with_a_stream_without_copies: 200 s,
    ]
}

fn run_rstream(port: u16, options: &[&str], begins: &[&str]) -> TestResult {
    run("rstream", port, options, begins)
}

fn run_riostream(port: u16, options: &[&str], begins: &[&str]) -> TestResult {
    run("riostream", port, options, begins)
}

/// Runs a program with these options on both sides. Both print what `begins` a line.
fn run(program: &str, port: u16, options: &[&str], begins: &[&str]) -> TestResult {
    run_pairs(program, port, [options, options], begins, &PAIRS)
}

/// As [`run`], with the options of server and client.
fn run_pairs(
    program: &str,
    port: u16,
    [of_server, of_client]: [&[&str]; 2],
    begins: &[&str],
    pairs: &[(Maker, Maker)],
) -> TestResult {
    let text = port.to_string();
    let server = [&["-b", ADDR, "-p", &text], of_server].concat();
    let client = [&["-s", ADDR, "-p", &text], of_client].concat();
    let side = |args| Side {
        program,
        args,
        says: begins,
    };
    let case = Case {
        server: side(&server),
        client: side(&client),
        port,
        server_goes_on: false,
        rust_server_waits: true,
    };
    let patience = match of_client.contains(&"-C") {
        true => matrix::PATIENCE,
        // The series: some minutes where the machine does nothing else.
        false => Duration::from_secs(1900),
    };
    case.run_pairs(pairs, patience)
}

const HEADING: &str = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer";

fn rstream_with_calls_that_wait() -> TestResult {
    run_rstream(
        7211,
        &["-T", "b", "-T", "v", "-S", "70000", "-C", "50", "-I", "3"],
        &[HEADING, "custom    68k     50      3       20m  "],
    )
}

fn rstream_with_calls_that_do_not_wait() -> TestResult {
    run_rstream(
        7212,
        &["-T", "n", "-T", "v", "-S", "5000", "-C", "30", "-I", "5"],
        &[HEADING, "custom    4.8k    30      5       1.4m  "],
    )
}

/// One that asks again and again, and one that sleeps. The C program's takes the end of a stream for a
/// loss, even if the last transfer is still to be read: as client it needs a server that waits for its
/// end, as ours does and its own does not.
fn rstream_in_an_event_loop() -> TestResult {
    let begins = [HEADING, "custom    3.9k    40      5       1.5m  "];
    let counts = ["-T", "v", "-S", "4000", "-C", "40", "-I", "5"];
    let [asking, sleeping, blocking] = [&["a"][..], &["a", "b"], &["b"]].map(|test| {
        let test = test.iter().flat_map(|option| ["-T", *option]);
        test.chain(counts).collect::<Vec<_>>()
    });
    let in_rust = [(Maker::Rust, Maker::C), (Maker::Rust, Maker::Rust)];
    run_pairs("rstream", 7213, [&asking, &blocking], &begins, &PAIRS)?;
    run_pairs("rstream", 7214, [&sleeping, &blocking], &begins, &PAIRS)?;
    run_pairs("rstream", 7229, [&asking, &asking], &begins, &in_rust)?;
    run_pairs("rstream", 7230, [&blocking, &sleeping], &begins, &in_rust)
}

/// Sizes of the series, a few transfers each, and what begins their lines.
const SIZES: [(&str, &str, &str, &str); 7] = [
    ("64", "300", "2", "custom    64      300     2  "),
    ("1536", "300", "2", "custom    1.5k    300     2  "),
    ("4096", "300", "1", "custom    4k      300     1  "),
    ("65536", "50", "2", "custom    64k     50      2  "),
    ("98304", "20", "2", "custom    96k     20      2  "),
    ("1048576", "3", "2", "custom    1m      3       2  "),
    ("6291456", "1", "1", "custom    6m      1       1  "),
];

/// What begins the lines of the series.
const SERIES: [&str; 9] = [
    HEADING,
    "64_lat    64      1       100k  ",
    "4k_lat    4k      1       10k  ",
    "64k_lat   64k     1       1k  ",
    "1m_lat    1m      1       100  ",
    "64_bw     64      100k    1  ",
    "4k_bw     4k      10k     1  ",
    "64k_bw    64k     1k      1  ",
    "1m_bw     1m      100     1  ",
];

/// Some sizes of the series, with few transfers.
fn run_sizes(program: &str, ports: u16) -> TestResult {
    for (port, (size, count, iterations, line)) in (ports..).zip(SIZES) {
        let options = ["-T", "b", "-S", size, "-C", count, "-I", iterations];
        run(program, port, &options, &[HEADING, line])?;
    }
    Ok(Outcome::Pass)
}

/// The sizes of `-S all`: each power of two, and from the second on each half more.
fn run_all_sizes(program: &str, ports: u16) -> TestResult {
    if !environment::is_full_run() {
        return only_in_a_full_run();
    }
    let others = (7..=22).flat_map(|power| [1 << power, 3 << (power - 1)]);
    for (port, size) in (ports..).zip([64u32].into_iter().chain(others)) {
        let size = size.to_string();
        let options = ["-T", "b", "-T", "v", "-S", &size, "-C", "3", "-I", "2"];
        run(program, port, &options, &[HEADING, "custom  "])?;
    }
    Ok(Outcome::Pass)
}

/// The series with all its transfers: some minutes for each pair, where the machine does nothing else.
fn run_series(program: &str, port: u16) -> TestResult {
    match environment::is_full_run() {
        true => run(program, port, &["-T", "b", "-T", "v"], &SERIES),
        false => only_in_a_full_run(),
    }
}

fn only_in_a_full_run() -> TestResult {
    Ok(Outcome::Skip("it takes long: ci/full runs it".to_owned()))
}

fn rstream_with_sizes_of_all_kinds() -> TestResult {
    run_sizes("rstream", 7215)
}

fn rstream_with_all_sizes() -> TestResult {
    run_all_sizes("rstream", 7500)
}

fn rstream_as_it_measures() -> TestResult {
    run_series("rstream", 7222)
}

fn riostream_with_sizes_of_all_kinds() -> TestResult {
    run_sizes("riostream", 7245)
}

fn riostream_with_all_sizes() -> TestResult {
    run_all_sizes("riostream", 7540)
}

fn riostream_as_it_measures() -> TestResult {
    run_series("riostream", 7252)
}

fn riostream_with_calls_that_wait() -> TestResult {
    run_riostream(
        7241,
        &["-T", "b", "-T", "v", "-S", "70000", "-C", "20", "-I", "3"],
        &[HEADING, "custom    68k     20      3       8m      "],
    )
}

fn riostream_with_calls_that_do_not_wait() -> TestResult {
    run_riostream(
        7242,
        &["-T", "n", "-T", "v", "-S", "5000", "-C", "30", "-I", "5"],
        &[HEADING, "custom    4.8k    30      5       1.4m  "],
    )
}

fn riostream_in_an_event_loop() -> TestResult {
    run_riostream(
        7243,
        &["-T", "a", "-T", "b", "-T", "v", "-S", "4000", "-C", "40"],
        &[HEADING, "custom    3.9k    40      1       312k  "],
    )
}

fn rstream_with_small_buffers() -> TestResult {
    run_rstream(
        7225,
        &[
            "-T", "b", "-T", "v", "-B", "4096", "-S", "100000", "-C", "5",
        ],
        &[HEADING, "custom    97k     5       1       976k  "],
    )
}

fn rstream_with_keepalive() -> TestResult {
    run_rstream(
        7226,
        &["-k", "1", "-T", "b", "-S", "100", "-C", "100", "-I", "10"],
        &[
            HEADING,
            "Keepalive: ON",
            "  time: 1",
            "custom    100     100     10  ",
        ],
    )
}

/// A server of each kind has its client served by somebody else: a process, a thread.
fn rstream_over_tcp() -> TestResult {
    run_rstream(
        7227,
        &["-T", "f", "-T", "b", "-T", "v", "-S", "9000", "-C", "20"],
        &[HEADING, "custom    8.7k    20      1       351k  "],
    )
}

/// One side of `rstream -T v` that sends out of registered memory and reads where the peer wrote.
struct WithoutCopies<'s> {
    stream: &'s RdmaStream,
    buffer: RegisteredBuffer,
    /// The next bytes, each one more than the one before.
    sent: u8,
    received: u8,
}

impl WithoutCopies<'_> {
    fn send(&mut self, size: usize) -> io::Result<()> {
        for byte in &mut self.buffer.as_mut_slice()?[..size] {
            *byte = self.sent;
            self.sent = self.sent.wrapping_add(1);
        }
        self.stream.write_all_registered(&self.buffer, ..size)
    }

    fn receive(&mut self, size: usize) -> io::Result<()> {
        let mut left = size;
        while left > 0 {
            let mut lent = self.stream.lend()?;
            assert!(!lent.is_empty(), "the end, {left} bytes early");
            let mut bytes = vec![0; left.min(lent.len())];
            lent.copy_to(&mut bytes);
            for byte in &bytes {
                assert_eq!(*byte, self.received, "{left} bytes before the end");
                self.received = self.received.wrapping_add(1);
            }
            lent.consume(bytes.len());
            left -= bytes.len();
        }
        Ok(())
    }

    fn both_ways(&mut self, sends_first: bool, size: usize, transfers: u32) -> io::Result<()> {
        for sends in [sends_first, !sends_first] {
            for _ in 0..transfers {
                match sends {
                    true => self.send(size)?,
                    false => self.receive(size)?,
                }
            }
        }
        Ok(())
    }

    /// A measurement of 2 iterations with 20 transfers of 100000 bytes, each way.
    fn play(stream: &RdmaStream, is_client: bool) -> io::Result<()> {
        let mut side = WithoutCopies {
            stream,
            buffer: stream.register(100_000)?,
            sent: 0,
            received: 0,
        };
        side.both_ways(is_client, 16, 1)?;
        for _ in 0..2 {
            side.both_ways(is_client, 100_000, 20)?;
        }
        Ok(())
    }
}

/// The messages are those of any stream: the C program checks what comes, and so does this side.
fn rstream_of_c_with_a_stream_without_copies() -> TestResult {
    let (address, path) = (environment::addr(), Maker::C.path("rstream"));
    let text = address.to_string();
    let counts = ["-T", "b", "-T", "v", "-S", "100000", "-C", "20", "-I", "2"];
    let heard = |ended: Ended| match ended.status.success() && ended.output.contains("custom") {
        true => Ok(()),
        false => Err(ended.to_string().into()),
    };

    let args = [&["-b", &text, "-p", "7232"], &counts[..]].concat();
    matrix::until_heard(true, || {
        let mut server = Program::start(&path, &args)?.until_listening(7232)?;
        let stream = RdmaStream::connect((address, 7232))?;
        WithoutCopies::play(&stream, true)?;
        heard(server.wait(matrix::PATIENCE)?)
    })?;

    let listener = RdmaListener::bind((address, 7233))?;
    let args = [&["-s", &text, "-p", "7233"], &counts[..]].concat();
    let mut client = Program::start(&path, &args)?;
    let (stream, _) = listener.accept_timeout(matrix::PATIENCE)?;
    WithoutCopies::play(&stream, false)?;
    heard(client.wait(matrix::PATIENCE)?)?;
    Ok(Outcome::Pass)
}

/// Copies files of these sizes, one after the other, over one server. Those that come are compared.
fn copy(server: Maker, client: Maker, port: u16, sizes: &[usize]) -> Result<(), Box<dyn Error>> {
    let folder = Folder::new("rcopy")?;
    let (from, to) = (folder.file("from"), folder.file("to"));
    let mut server = Program::serve(&server.path("rcopy"), port, &[])?;
    for (round, size) in sizes.iter().enumerate() {
        let bytes = pattern(round, *size);
        let address = (environment::addr(), port);
        copied::send(client, address, (&from, &to), &bytes, COPY_PATIENCE)?;
        copied::compare(&bytes, &to)?;
        if !server.is_running()? {
            return Err(format!("the server ended: {}", server.wait(Duration::ZERO)?).into());
        }
    }
    Ok(())
}

const COPY_PATIENCE: Duration = Duration::from_secs(300);

fn copy_with_all_pairs(port: u16, sizes: &[usize]) -> TestResult {
    let mut failures = String::new();
    for (server, client) in PAIRS {
        // A C server that interrupted waits for its client for ever: the next one needs another.
        let run = || copy(server, client, port, sizes);
        if let Err(error) = matrix::until_heard(server == Maker::C, run) {
            let _ = write!(failures, "\n{server:?} server, {client:?} client: {error}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    Ok(Outcome::Pass)
}

/// Several files over one server, and one of 100 MiB in a full run.
fn rcopy() -> TestResult {
    let longest = match environment::is_full_run() {
        true => 100 << 20,
        false => 5 << 20,
    };
    copy_with_all_pairs(7231, &[longest, 12_345, 1])
}
