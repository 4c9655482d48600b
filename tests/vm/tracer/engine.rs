//! The loop that follows a command and all its children and threads.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::decode::{Answer, Decoder};
use super::event::Event;
use super::ptrace::{self, Position, Stop};
use super::remote;
use super::rule::{Action, Rule};

/// Results below 0 and not below its negative are errors.
const MAX_ERRNO: i64 = 4095;

/// The traced processes, as the thread that waits for the trace sees them.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<ProcessSet>>);

#[derive(Default)]
struct ProcessSet {
    alive: BTreeSet<i32>,
    killed: bool,
}

impl Processes {
    /// Kills them, and those that they start meanwhile.
    pub fn kill(&self) {
        let mut set = self.lock();
        set.killed = true;
        set.alive.iter().copied().for_each(ptrace::kill);
    }

    fn add(&self, pid: i32) {
        let mut set = self.lock();
        set.alive.insert(pid);
        if set.killed {
            ptrace::kill(pid);
        }
    }

    fn remove(&self, pid: i32) {
        self.lock().alive.remove(&pid);
    }

    fn lock(&self) -> MutexGuard<'_, ProcessSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread of a traced process.
struct Task {
    pid: i32,
    /// The call it is in.
    call: Option<(Event, Answer)>,
}

/// Traces one command.
pub struct Engine {
    root: i32,
    tasks: HashMap<i32, Task>,
    processes: Processes,
    decoder: Decoder,
    rules: Vec<Rule>,
    events: Sender<Event>,
    next_seq: u64,
}

impl Engine {
    /// Starts a command, to be traced by the calling thread.
    pub fn start(
        mut command: Command,
        rules: Vec<Rule>,
        processes: Processes,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        ptrace::stay_on_this_processor();
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(ptrace::trace_me) };
        // The child waits behind its exec. It is reaped by `run`, which waits for all tracees.
        let root = command.spawn()?.id() as i32;
        let mut engine = Self {
            root,
            tasks: HashMap::new(),
            processes,
            decoder: Decoder::default(),
            rules,
            events,
            next_seq: 0,
        };
        engine.take_over_root()?;
        Ok(engine)
    }

    fn take_over_root(&mut self) -> io::Result<()> {
        let stop = ptrace::wait()?;
        if stop != Some((self.root, Stop::Signal(libc::SIGTRAP))) {
            return Err(io::Error::other(format!("tracing began with {stop:?}")));
        }
        ptrace::follow_all(self.root)?;
        self.add_task(self.root);
        ptrace::resume(self.root, 0)
    }

    /// Follows the command until all its processes are gone; returns its wait status.
    pub fn run(mut self) -> io::Result<i32> {
        let mut root_status = None;
        while let Some(first) = ptrace::wait()? {
            // All that have stopped, before any is resumed: the kernel may always tell of the same
            // thread first, and one that spins would keep the others stopped.
            let mut stops = vec![first];
            while let Some(another) = ptrace::try_wait()? {
                stops.push(another);
            }
            for (tid, stop) in stops {
                if let Stop::Ended(status) = stop {
                    root_status = root_status.or((tid == self.root).then_some(status));
                    self.remove_task(tid);
                } else {
                    self.go_on(tid, stop)?;
                }
            }
        }
        root_status.ok_or_else(|| io::Error::other("the traced command did not end"))
    }

    /// Handles a stop, and resumes the thread.
    fn go_on(&mut self, tid: i32, stop: Stop) -> io::Result<()> {
        match self
            .stopped(tid, stop)
            .and_then(|signal| ptrace::resume(tid, signal))
        {
            // A killed thread is gone from under the request; its end is reported next.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            outcome => outcome,
        }
    }

    /// Handles a stop, and returns the signal that the thread is to get.
    fn stopped(&mut self, tid: i32, stop: Stop) -> io::Result<i32> {
        let is_new = !self.tasks.contains_key(&tid);
        if is_new {
            self.add_task(tid);
        }
        match stop {
            Stop::Syscall => match ptrace::position(tid)? {
                Position::Entry(number, args) => self.entered(tid, number, args)?,
                Position::Exit(result) => self.left(tid, result)?,
                Position::Outside => {}
            },
            Stop::Event(libc::PTRACE_EVENT_EXEC) => self.renamed(ptrace::event_message(tid)?, tid),
            // A new thread or process begins with a stop of its own.
            Stop::Signal(libc::SIGSTOP) if is_new => {}
            Stop::Signal(signal) => return Ok(signal),
            Stop::Event(_) | Stop::Ended(_) => {}
        }
        Ok(0)
    }

    fn entered(&mut self, tid: i32, syscall: i64, args: [u64; 6]) -> io::Result<()> {
        let (kind, answer) = self.decoder.enter(tid, syscall, args);
        let pid = self.tasks[&tid].pid;
        let seq = self.next_seq;
        self.next_seq += 1;
        let mut event = Event {
            pid,
            tid,
            seq,
            syscall,
            args,
            kind,
            result: None,
            injected: false,
        };
        let mut action = None;
        for rule in &mut self.rules {
            // Every rule counts the call, whatever another one does to it.
            action = rule.apply(&event).or(action);
        }
        event.injected = action.is_some();
        match action {
            Some(Action::Fail(errno)) => {
                event.result = Some(Err(errno));
                ptrace::skip_call(tid)?;
            }
            Some(Action::Kill) => ptrace::kill(pid),
            None => {}
        }
        self.tasks
            .entry(tid)
            .and_modify(|task| task.call = Some((event, answer)));
        Ok(())
    }

    fn left(&mut self, tid: i32, result: i64) -> io::Result<()> {
        let Some((mut event, answer)) = self.tasks.get_mut(&tid).and_then(|task| task.call.take())
        else {
            return Ok(());
        };
        match event.result {
            Some(Err(errno)) => ptrace::set_result(tid, -i64::from(errno))?,
            _ if (-MAX_ERRNO..0).contains(&result) => event.result = Some(Err(-result as i32)),
            _ => {
                event.result = Some(Ok(result));
                self.decoder.leave(&mut event, answer);
            }
        }
        self.report(event);
        Ok(())
    }

    /// A thread that does exec takes over the id of its process.
    fn renamed(&mut self, former: i32, tid: i32) {
        if former != tid
            && let Some(task) = self.tasks.remove(&former)
        {
            self.tasks.insert(tid, task);
        }
    }

    fn add_task(&mut self, tid: i32) {
        let pid = remote::process_of(tid).unwrap_or(tid);
        self.tasks.insert(tid, Task { pid, call: None });
        self.processes.add(pid);
    }

    fn remove_task(&mut self, tid: i32) {
        if let Some((event, _)) = self.tasks.remove(&tid).and_then(|task| task.call) {
            self.report(event);
        }
        self.processes.remove(tid);
    }

    fn report(&self, event: Event) {
        // Nobody listens any more when the trace was dropped; the command still has to end.
        let _ = self.events.send(event);
    }
}
