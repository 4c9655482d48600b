//! Runs a server and a client of two makers against each other.

use std::error::Error;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::environment;
use crate::harness::{Outcome, TestResult};
use crate::programs::{Ended, Program};
use crate::siw;

/// How long a client may take, and a server to end after its client, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// In a command line: the server's address.
pub const ADDR: &str = "ADDR";

/// Two programs that belong together.
pub struct Case<'a> {
    pub server: Side<'a>,
    pub client: Side<'a>,
    /// Where the server listens.
    pub port: u16,
    /// Whether the server goes on when its client has ended.
    pub server_goes_on: bool,
    /// Whether the Rust server lets its client speak first, where the C one may not.
    pub rust_server_waits: bool,
}

/// One program of a case.
pub struct Side<'a> {
    pub program: &'a str,
    pub args: &'a [&'a str],
    /// Lines that it prints, in this order, with others between them. Of each the end, because some
    /// programs print how they were called, or the beginning, because some measure.
    pub says: &'a [&'a str],
}

/// Who wrote a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    C,
    Rust,
}

/// The makers of server and client. The first pair shows that the case itself is right.
pub const PAIRS: [(Maker, Maker); 4] = [
    (Maker::C, Maker::C),
    (Maker::C, Maker::Rust),
    (Maker::Rust, Maker::C),
    (Maker::Rust, Maker::Rust),
];

impl Maker {
    /// Where the guest has this maker's program.
    pub fn path(self, program: &str) -> String {
        match self {
            Self::C => format!("/usr/bin/{program}"),
            Self::Rust => format!("/opt/{program}"),
        }
    }
}

impl Case<'_> {
    /// Runs the case with all pairs of makers, and reports all pairs that failed.
    pub fn run(&self) -> TestResult {
        self.run_pairs(&PAIRS, PATIENCE)
    }

    /// As [`Case::run`] with these pairs only, and each program may take so long.
    pub fn run_pairs(&self, pairs: &[(Maker, Maker)], patience: Duration) -> TestResult {
        let mut failures = String::new();
        for &(server, client) in pairs {
            let run = || self.run_pair(server, client, patience);
            if let Err(error) = until_heard(self.may_interrupt(server), run) {
                let _ = write!(failures, "\n{server:?} server, {client:?} client: {error}");
            }
        }
        assert!(failures.is_empty(), "{failures}");
        Ok(Outcome::Pass)
    }

    /// Whether a server of this maker may speak before its client does.
    pub fn may_interrupt(&self, server: Maker) -> bool {
        server == Maker::C || !self.rust_server_waits
    }

    fn run_pair(
        &self,
        server: Maker,
        client: Maker,
        patience: Duration,
    ) -> Result<(), Box<dyn Error>> {
        let address = environment::addr();
        let server = self.server.start(server, address)?;
        let mut server = server.until_listening(self.port)?;
        let client = self.client.start(client, address)?.wait(patience)?;
        self.client.check(&client)?;
        if !self.server_goes_on {
            return self.server.check(&server.wait(patience)?);
        }
        match server.is_running()? {
            true => Ok(()),
            false => Err(format!("the server ended: {}", server.wait(patience)?).into()),
        }
    }
}

/// Runs a server and its client. Over siw a server that speaks first is not always understood: a
/// client's kernel that finds the server's first message right behind its answer takes it for a breach
/// of the protocol (iWARP lets the client speak first), and gives up. The C programs meet with it among
/// themselves as well. So with a server that may interrupt they may try again there.
pub fn until_heard(
    may_interrupt: bool,
    run: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let may_interrupt = may_interrupt && siw::is_under_test();
    retry(|said| may_interrupt && is_interrupted(said), run)
}

/// How often programs may run that are excused.
pub const ATTEMPTS: usize = 6;

/// Runs something again while it fails with what is excused.
pub fn retry(
    is_excused: impl Fn(&str) -> bool,
    mut run: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for _ in 1..ATTEMPTS {
        match run() {
            Err(error) if is_excused(&error.to_string()) => println!("once more: {error}"),
            outcome => return outcome,
        }
    }
    run()
}

/// What clients say that were interrupted: those that print events, C streams, and ours.
const INTERRUPTED: [&str; 4] = [
    "RDMA_CM_EVENT_CONNECT_ERROR, error: -22",
    "rconnect: Invalid argument",
    "rconnect failed\n: Invalid argument",
    "connect: Invalid argument (errno 22): the connection could not be completed",
];

/// Whether this is what a client says that was interrupted: see [`until_heard`].
pub fn is_interrupted(said: &str) -> bool {
    INTERRUPTED.iter().any(|words| said.contains(words))
}

impl Side<'_> {
    /// Starts the program of a maker, with the server's address.
    pub fn start(&self, maker: Maker, address: IpAddr) -> Result<Program, Box<dyn Error>> {
        let addr = address.to_string();
        let args: Vec<&str> = self
            .args
            .iter()
            .map(|arg| if *arg == ADDR { &addr } else { *arg })
            .collect();
        Program::start(&maker.path(self.program), &args)
    }

    /// Checks that it succeeded and said what it should.
    pub fn check(&self, ended: &Ended) -> Result<(), Box<dyn Error>> {
        let mut lines = ended.output.lines();
        let unsaid = self
            .says
            .iter()
            .find(|said| !lines.any(|line| line.ends_with(**said) || line.starts_with(**said)));
        match unsaid {
            None if ended.status.success() => Ok(()),
            None => Err(ended.to_string().into()),
            Some(unsaid) => Err(format!("{unsaid:?} is missing: {ended}").into()),
        }
    }
}
