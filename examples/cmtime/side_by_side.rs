//! The C program and this one by turns.
//!
//! Times of one run mean little: machines have other things to do. So all contestants run once in
//! each round, and of all rounds the median counts. Each connects to a server of its own kind, so
//! that a whole system is compared with a whole system.

use std::collections::HashMap;
use std::env;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Connection, Connector, ErrorKind};

use crate::Result;
use crate::args::{Args, resolve};
use crate::cpu::Cpu;
use crate::progress::Progress;
use crate::step::Step;
use crate::timing::{self, micros};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The steps in the order of the table.
const STEPS: [Step; 8] = [
    Step::CreateId,
    Step::BindAddr,
    Step::ResolveAddr,
    Step::ResolveRoute,
    Step::CreateQp,
    Step::Connect,
    Step::Disconnect,
    Step::Destroy,
];

/// Runs the contestants and prints what came out.
pub fn run(args: &Args, server: &str, c_program: &Path) -> Result<()> {
    let this = env::current_exe()?;
    let mut contestants = Vec::new();
    for (name, program, flags) in [
        ("C", c_program, &[][..]),
        ("rdmacm", &this, &[]),
        ("own CQs", &this, &["--own-cqs"]),
    ] {
        let offset = u16::try_from(contestants.len())?;
        let port = args
            .port
            .checked_add(offset)
            .ok_or("the port is too high")?;
        let addr = resolve(server, port)?;
        contestants.push(Contestant::new(name, program, flags, addr)?);
    }
    let progress = Progress::new("side by side", args.rounds as usize * contestants.len());
    for _ in 0..args.rounds {
        for contestant in &mut contestants {
            contestant.run_client(args)?;
            progress.advance();
        }
    }
    drop(progress);
    let mut results = Vec::new();
    for contestant in contestants {
        results.push(contestant.finish(args)?);
    }
    print_results(args, &results)
}

/// A program, and what was measured of it.
struct Contestant {
    name: &'static str,
    program: PathBuf,
    flags: &'static [&'static str],
    server: Server,
    runs: Vec<Run>,
}

/// One run of a client.
struct Run {
    /// Milliseconds by the step's name.
    steps: HashMap<String, f64>,
    cpu: Cpu,
}

/// What is printed of a contestant, in microseconds of one connection: of the steps the medians of
/// all rounds, of the processor times, which the kernel measures by the clock tick, the means.
struct Outcome {
    name: &'static str,
    steps: HashMap<&'static str, f64>,
    whole: f64,
    client: [f64; 2],
    server: [f64; 2],
}

impl Contestant {
    fn new(
        name: &'static str,
        program: &Path,
        flags: &'static [&'static str],
        addr: SocketAddr,
    ) -> Result<Self> {
        Ok(Self {
            name,
            program: program.to_owned(),
            flags,
            server: Server::start(program, flags, addr)?,
            runs: Vec::new(),
        })
    }

    fn run_client(&mut self, args: &Args) -> Result<()> {
        let addr = self.server.addr;
        let mut command = Command::new(&self.program);
        command
            .args(["-s", &addr.ip().to_string()])
            .args(["-p", &addr.port().to_string()])
            .args(["-c", &args.connections.to_string()])
            .args(["-r", &args.retries.to_string()])
            .args(["-t", &args.timeout().as_millis().to_string()])
            .args(self.flags);
        if let Some(source) = &args.bind {
            command.args(["-b", source]);
        }
        let before = Cpu::of_ended_children()?;
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let cpu = Cpu::of_ended_children()?.since(before);
        let steps = table(&output).map_err(|what| format!("{command:?}: {what}"))?;
        self.runs.push(Run { steps, cpu });
        Ok(())
    }

    /// Ends the server and sums up.
    fn finish(self, args: &Args) -> Result<Outcome> {
        let connections = f64::from(args.connections);
        let runs = &self.runs;
        let each = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value)) / connections;
        let step = |name: &'static str| {
            let of_run = |run: &Run| run.steps.get(name).map_or(0.0, |millis| millis * 1e3);
            (name, each(&of_run))
        };
        let server = self.server.stop()?;
        let mut client = Cpu::default();
        for run in runs {
            client.user += run.cpu.user;
            client.kernel += run.cpu.kernel;
        }
        let served = connections * f64::from(args.rounds);
        Ok(Outcome {
            name: self.name,
            steps: STEPS.iter().map(|known| step(known.name())).collect(),
            whole: each(&|run| run.steps.values().sum::<f64>() * 1e3),
            client: [client.user, client.kernel].map(|time| micros(time) / served),
            server: [server.user, server.kernel].map(|time| micros(time) / served),
        })
    }
}

/// The table that a client printed. The C program ends well whatever happened, so that its words
/// count.
fn table(output: &Output) -> std::result::Result<HashMap<String, f64>, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let steps: HashMap<String, f64> = text
        .lines()
        .filter_map(timing::parse)
        .map(|(name, millis)| (name.to_owned(), millis))
        .collect();
    // Binding is a step only where a source address was given.
    let is_complete = steps.len() + 1 >= STEPS.len();
    let has_failed = text.contains("error") || !errors.trim().is_empty();
    match output.status.success() && is_complete && !has_failed {
        true => Ok(steps),
        false => Err(format!("{}\n{text}{errors}", output.status)),
    }
}

/// A server, killed when it is dropped.
struct Server {
    addr: SocketAddr,
    child: Child,
    /// Kept open. A C server's queue pairs all use the completion queues of its first connection,
    /// which go with that connection.
    connection: Option<Connection>,
}

impl Server {
    fn start(program: &Path, flags: &[&str], addr: SocketAddr) -> Result<Self> {
        let child = Command::new(program)
            .args(["-b", &addr.ip().to_string()])
            .args(["-p", &addr.port().to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut server = Self {
            addr,
            child,
            connection: None,
        };
        server.connection = Some(server.connect_when_it_listens()?);
        Ok(server)
    }

    /// The servers say nothing, but a first connection tells. It also finds everything for the
    /// first time, before anything is measured.
    fn connect_when_it_listens(&self) -> Result<Connection> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Connector::new().connect(self.addr) {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == ErrorKind::Rejected && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends it and says what it took.
    fn stop(mut self) -> Result<Cpu> {
        let before = Cpu::of_ended_children()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(Cpu::of_ended_children()?.since(before))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The middle one; of an even number the upper of the two.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn print_results(args: &Args, results: &[Outcome]) -> Result<()> {
    let mut out = stdout().lock();
    let Args {
        connections,
        rounds,
        ..
    } = args;
    writeln!(
        out,
        "{connections} connections, {rounds} rounds by turns; medians, in microseconds of one \
         connection.\n\
         Processor times are what the kernel's clock ticks found, of whole processes, their start \
         included.\n\
         \"own CQs\" is rdmacm with two completion queues and channels for each connection. The \
         others share theirs.\n"
    )?;
    let mut row = |what: &str, value: &dyn Fn(&Outcome) -> String| -> Result<()> {
        write!(out, "{what:<42}")?;
        for result in results {
            write!(out, "{:>11}", value(result))?;
        }
        Ok(writeln!(out)?)
    };
    row("", &|result| result.name.to_owned())?;
    for step in STEPS {
        let name = step.name();
        if step != Step::BindAddr || args.bind.is_some() {
            row(name, &|result| one_digit(result.steps[name]))?;
        }
    }
    row("all steps", &|result| one_digit(result.whole))?;
    row("client's processor time in the program", &|result| {
        one_digit(result.client[0])
    })?;
    row("client's processor time in the kernel", &|result| {
        one_digit(result.client[1])
    })?;
    row("server's processor time in the program", &|result| {
        one_digit(result.server[0])
    })?;
    row("server's processor time in the kernel", &|result| {
        one_digit(result.server[1])
    })?;
    row("connections per second", &|result| {
        one_digit(1e6 / result.whole)
    })?;
    let c = &results[0];
    row("... times as many as C", &|result| {
        format!("{:.2}", c.whole / result.whole)
    })?;
    // What nobody can save in user space. On one processor times add up.
    row("... if programs took no time themselves", &|result| {
        let in_kernel = result.whole - result.client[0] - result.server[0];
        format!("{:.2}", c.whole / in_kernel)
    })
}

fn one_digit(number: f64) -> String {
    format!("{number:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 100.0].into_iter()), 3.0);
        assert_eq!(median([2.0, 1.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
