//! Runs a command and records the system calls that it and its children make, decoded as far as
//! they concern RDMA. It can make single calls fail, and kill a process at a call.
//!
//! ```ignore
//! let trace = Tracer::new("rping").args(["-c", "-a", "10.10.0.1", "-C", "1"])
//!     .inject(1, libc::ENOMEM, |call| call.is_cm(ucma::Command::Connect))
//!     .run()?;
//! assert!(!trace.status.success(), "{trace}");
//! ```

mod cm;
mod decode;
mod engine;
mod event;
mod ptrace;
mod remote;
mod rule;
pub mod steps;
mod summary;
mod syscalls;
mod target;
mod verbs;

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};

use engine::{Engine, Processes};
pub use event::{Event, Kind};
use rule::{Action, Rule};
pub use summary::Summary;

/// How long a command may take if nothing else is said.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A command to be traced.
pub struct Tracer {
    command: Command,
    rules: Vec<Rule>,
    timeout: Duration,
    shows_output: bool,
}

impl Tracer {
    /// Traces a program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let command = Command::new(program);
        Self {
            command,
            rules: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            shows_output: false,
        }
    }

    /// Traces a subcommand of this test binary.
    pub fn own(subcommand: &str) -> Self {
        Self::new("/proc/self/exe").args([subcommand])
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Kills the command when it takes longer than this, from its start.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Lets the command print instead of collecting its output.
    pub fn show_output(mut self) -> Self {
        self.shows_output = true;
        self
    }

    /// Makes the n-th call that the filter chooses fail, counted from 1. The call does nothing.
    pub fn inject(
        self,
        n: usize,
        errno: i32,
        filter: impl FnMut(&Event) -> bool + Send + 'static,
    ) -> Self {
        self.rule(Rule::new(n, Action::Fail(errno), Box::new(filter)))
    }

    /// Kills the process that is about to make the n-th call that the filter chooses.
    pub fn kill_at(self, n: usize, filter: impl FnMut(&Event) -> bool + Send + 'static) -> Self {
        self.rule(Rule::new(n, Action::Kill, Box::new(filter)))
    }

    fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Runs the command to its end.
    pub fn run(self) -> io::Result<Trace> {
        self.start()?.wait()
    }

    /// Starts the command.
    pub fn start(mut self) -> io::Result<Tracing> {
        let output = File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC)?);
        if !self.shows_output {
            self.command
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?);
        }
        self.command.stdin(Stdio::null());
        let processes = Processes::default();
        let (sender, events) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let of_engine = processes.clone();
        // Tracees belong to the thread that started them; this one has no other children.
        let engine = thread::spawn(move || {
            let engine = Engine::start(self.command, self.rules, of_engine, sender)?;
            let _ = start.send(());
            engine.run()
        });
        if started.recv().is_err() {
            return Err(join(engine).expect_err("an engine that did not start has an error"));
        }
        let deadline = Instant::now() + self.timeout;
        let engine = Some(engine);
        Ok(Tracing {
            events,
            seen: Vec::new(),
            engine,
            processes,
            deadline,
            output,
        })
    }
}

fn join(engine: JoinHandle<io::Result<i32>>) -> io::Result<i32> {
    engine
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the tracer panicked")))
}

/// A command that runs and is traced; dropping it kills the command.
pub struct Tracing {
    events: Receiver<Event>,
    seen: Vec<Event>,
    engine: Option<JoinHandle<io::Result<i32>>>,
    processes: Processes,
    deadline: Instant,
    output: File,
}

impl Tracing {
    /// Waits until a call that the condition holds for has returned, now or earlier. An error if
    /// the command ends or its time is over before that.
    pub fn wait_for(&mut self, condition: impl Fn(&Event) -> bool) -> io::Result<Event> {
        if let Some(event) = self.seen.iter().find(|event| condition(event)) {
            return Ok(event.clone());
        }
        loop {
            let event = self.receive().map_err(|error| {
                let output = self.output();
                io::Error::other(format!("waiting for a call: {error}; output: {output}"))
            })?;
            if condition(&event) {
                return Ok(event);
            }
        }
    }

    /// Waits for the end of the command and of all its children.
    pub fn wait(mut self) -> io::Result<Trace> {
        let timed_out = loop {
            match self.receive() {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => break true,
            }
        };
        if timed_out {
            self.kill();
        }
        self.seen.extend(self.events.iter());
        let status = self.engine.take().map_or(Ok(0), join)?;
        let mut events = std::mem::take(&mut self.seen);
        events.sort_by_key(|event| event.seq);
        let status = ExitStatus::from_raw(status);
        Ok(Trace {
            events,
            status,
            timed_out,
            output: self.output(),
        })
    }

    /// Kills the command and its children.
    pub fn kill(&self) {
        self.processes.kill();
    }

    fn receive(&mut self) -> Result<Event, RecvTimeoutError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let event = self.events.recv_timeout(left)?;
        self.seen.push(event.clone());
        Ok(event)
    }

    /// What the command has printed so far.
    fn output(&self) -> String {
        let length = self.output.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; length as usize];
        match self.output.read_exact_at(&mut bytes, 0) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(unreadable: {error})"),
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            self.kill();
            let _ = join(engine);
        }
    }
}

/// What a command did.
pub struct Trace {
    /// Its system calls, in the order in which they were entered.
    pub events: Vec<Event>,
    /// How the command itself ended.
    pub status: ExitStatus,
    /// Whether it had to be killed because its time was over.
    pub timed_out: bool,
    /// What it and its children printed.
    pub output: String,
}

impl Trace {
    /// How many calls the condition holds for.
    pub fn count(&self, condition: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| condition(event)).count()
    }

    /// Place in [`events`](Self::events) of the first call that the condition holds for.
    pub fn position(&self, condition: impl Fn(&Event) -> bool) -> Option<usize> {
        self.events.iter().position(condition)
    }

    /// The first call that a rule acted on.
    pub fn injected(&self) -> Option<&Event> {
        self.events.iter().find(|event| event.injected)
    }

    /// The calls counted by kind.
    pub fn summary(&self) -> Summary {
        Summary::new(&self.events)
    }
}

/// The calls that concern RDMA, the end, and the output: what a failed assertion should show.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in self.events.iter().filter(|event| event.kind != Kind::Other) {
            writeln!(f, "{event}")?;
        }
        let timed_out = if self.timed_out {
            ", killed: its time was over"
        } else {
            ""
        };
        writeln!(f, "{}{timed_out}", self.status)?;
        f.write_str(&self.output)
    }
}
