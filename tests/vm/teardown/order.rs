//! Checks the order of teardown in a trace: the queue pair of an id goes before the id, and nothing
//! is left to the kernel.
//!
//! No command of the kernel's says which id a new queue pair is for. The checked programs make it
//! easy: a queue pair belongs to the id that the same thread made or got last, listeners aside.

use std::fmt;
use std::mem;

use rdmacm_kernel_abi::ucma;
use rdmacm_kernel_abi::uverbs::ioctl::object;

use crate::tracer::{Event, Trace};

/// What happens in a trace, as far as the order of teardown is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thread made an id, or got one with a connection request.
    NewId { thread: i32, id: u32 },
    /// The id became a listener.
    Listen { id: u32 },
    /// The kernel is asked to destroy the id, and does so or not.
    DestroyId { id: u32, done: bool },
    /// A thread made a queue pair.
    NewQp { thread: i32, qp: Object },
    /// The kernel is asked to destroy the queue pair, and does so or not.
    DestroyQp { qp: Object, done: bool },
    /// Something else was made.
    New(Object),
    /// Something else was destroyed.
    Destroyed(Object),
    /// The device behind a descriptor is closed.
    Close { device: u64 },
}

/// A kernel object of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    /// Descriptor of the device, without which the handle has no meaning.
    pub device: u64,
    pub handle: u32,
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    QueuePair,
    CompletionQueue,
    MemoryRegion,
    ProtectionDomain,
}

impl Kind {
    /// Those that are made and destroyed without regard to ids.
    const OTHERS: [(Self, u16); 3] = [
        (Self::CompletionQueue, object::CQ),
        (Self::MemoryRegion, object::MR),
        (Self::ProtectionDomain, object::PD),
    ];
}

/// How much was checked, so that a test can see that it was not nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Ids made and destroyed, listeners among them.
    pub ids: usize,
    /// Queue pairs made and destroyed.
    pub qps: usize,
}

/// Checks the trace of a process that came to its end: each queue pair was destroyed once and
/// before its id, and nothing is left, except the protection domain that a device's users share.
///
/// # Panics
///
/// With all that is wrong, and the end of the trace.
pub fn assert_orderly(trace: &Trace) -> Checked {
    check_trace(trace).unwrap_or_else(|faults| panic!("{}\n{}", faults.join("\n"), excerpt(trace)))
}

/// Checks that a traced program ended well, however long its trace.
///
/// # Panics
///
/// With the end of the trace.
pub fn assert_success(trace: &Trace) {
    let ended_well = trace.status.success() && !trace.timed_out;
    assert!(ended_well, "{}", excerpt(trace));
}

/// The last of the calls that matter here, and of the output.
fn excerpt(trace: &Trace) -> String {
    const LINES: usize = 40;
    let calls = trace
        .events
        .iter()
        .rev()
        .filter(|event| step(event).is_some());
    let mut lines: Vec<String> = calls.take(LINES).map(|event| event.to_string()).collect();
    lines.reverse();
    lines.push(format!("{}, timed out: {}", trace.status, trace.timed_out));
    let output: Vec<&str> = trace.output.lines().collect();
    let last = output.len().saturating_sub(LINES / 8);
    lines.extend(output[last..].iter().map(|line| (*line).to_owned()));
    lines.join("\n")
}

/// As [`assert_orderly`], for those who have more to say.
pub fn check_trace(trace: &Trace) -> Result<Checked, Vec<String>> {
    check(trace.events.iter().filter_map(step))
}

/// Checks steps in their order.
pub fn check(steps: impl IntoIterator<Item = Step>) -> Result<Checked, Vec<String>> {
    let mut state = State::default();
    steps.into_iter().for_each(|step| state.take(step));
    state.finish()
}

/// The part of a call that matters here.
fn step(event: &Event) -> Option<Step> {
    step_of_qp(event)
        .or_else(|| step_of_other(event))
        .or_else(|| step_of_id(event))
}

fn step_of_qp(event: &Event) -> Option<Step> {
    let qp = |handle| Object {
        kind: Kind::QueuePair,
        device: event.args[0],
        handle,
    };
    if let Some(handle) = event.created(object::QP) {
        return Some(Step::NewQp {
            thread: event.tid,
            qp: qp(handle),
        });
    }
    let carried_out = Event {
        result: Some(Ok(0)),
        ..event.clone()
    };
    let handle = carried_out.destroyed(object::QP)?;
    Some(Step::DestroyQp {
        qp: qp(handle),
        done: event.succeeded(),
    })
}

fn step_of_other(event: &Event) -> Option<Step> {
    if event.syscall == libc::SYS_close {
        let device = event.args[0];
        return Some(Step::Close { device });
    }
    Kind::OTHERS.into_iter().find_map(|(kind, number)| {
        let object = |handle| Object {
            kind,
            device: event.args[0],
            handle,
        };
        let made = event
            .created(number)
            .map(|handle| Step::New(object(handle)));
        let destroyed = event.destroyed(number);
        made.or(destroyed.map(|handle| Step::Destroyed(object(handle))))
    })
}

fn step_of_id(event: &Event) -> Option<Step> {
    let command = event.cm()?;
    if command.is(ucma::Command::DestroyId) {
        return Some(Step::DestroyId {
            id: command.id?,
            done: event.succeeded(),
        });
    }
    if !event.succeeded() {
        return None;
    }
    if command.is(ucma::Command::Listen) {
        return command.id.map(|id| Step::Listen { id });
    }
    let request = command.event.as_ref();
    let request = request.filter(|event| event.kind == ucma::EventType::CONNECT_REQUEST);
    let created = command
        .created
        .filter(|_| command.is(ucma::Command::CreateId));
    let id = created.or(request.map(|event| event.id))?;
    let thread = event.tid;
    Some(Step::NewId { thread, id })
}

/// An id that exists.
struct Id {
    number: u32,
    thread: i32,
    listens: bool,
    qp: Option<Object>,
}

/// What exists at a moment, and what was wrong before.
#[derive(Default)]
struct State {
    /// In the order in which they were made.
    ids: Vec<Id>,
    /// Queue pairs that outlive their id.
    orphans: Vec<Object>,
    /// What is not a queue pair.
    others: Vec<Object>,
    checked: Checked,
    faults: Vec<String>,
}

impl State {
    fn take(&mut self, step: Step) {
        match step {
            Step::NewId { thread, id } => self.add_id(thread, id),
            Step::Listen { id } => {
                for known in self.ids.iter_mut().filter(|known| known.number == id) {
                    known.listens = true;
                }
            }
            Step::DestroyId { id, done } => self.destroy_id(id, done),
            Step::NewQp { thread, qp } => self.add_qp(thread, qp),
            Step::DestroyQp { qp, done } => self.destroy_qp(qp, done),
            Step::New(object) => self.others.push(object),
            Step::Destroyed(object) => self.others.retain(|other| *other != object),
            Step::Close { device } => self.close(device),
        }
    }

    fn add_id(&mut self, thread: i32, number: u32) {
        if self.ids.iter().any(|id| id.number == number) {
            self.faults.push(format!("id {number} was made twice"));
        }
        self.checked.ids += 1;
        self.ids.push(Id {
            number,
            thread,
            listens: false,
            qp: None,
        });
    }

    fn add_qp(&mut self, thread: i32, qp: Object) {
        self.checked.qps += 1;
        let mut candidates = self.ids.iter_mut().rev();
        match candidates.find(|id| id.thread == thread && !id.listens) {
            Some(Id { qp: own @ None, .. }) => *own = Some(qp),
            Some(Id {
                number,
                qp: Some(other),
                ..
            }) => self
                .faults
                .push(format!("{qp} was made for id {number}, which has {other}")),
            None => self.faults.push(format!("{qp} was made for no id")),
        }
    }

    fn destroy_qp(&mut self, qp: Object, done: bool) {
        let owner = self.ids.iter_mut().find(|id| id.qp == Some(qp));
        let orphan = self.orphans.iter().position(|orphan| *orphan == qp);
        match (owner, orphan) {
            (Some(id), _) if done => id.qp = None,
            (None, Some(place)) if done => drop(self.orphans.remove(place)),
            (None, None) => self
                .faults
                .push(format!("{qp} is to be destroyed, but does not exist")),
            _ => {}
        }
    }

    fn destroy_id(&mut self, number: u32, done: bool) {
        let Some(place) = self.ids.iter().position(|id| id.number == number) else {
            let text = format!("id {number} is to be destroyed, but does not exist");
            return self.faults.push(text);
        };
        if let Some(qp) = self.ids[place].qp {
            let text = format!("id {number} is to be destroyed before its {qp}");
            self.faults.push(text);
        }
        if done {
            self.orphans.extend(self.ids.remove(place).qp);
        }
    }

    /// All that is left of the device goes now, one protection domain as it should.
    fn close(&mut self, device: u64) {
        let others = mem::take(&mut self.others).into_iter();
        let (mut left, others): (Vec<Object>, _) = others.partition(|o| o.device == device);
        self.others = others;
        let shared = left.iter().position(|o| o.kind == Kind::ProtectionDomain);
        shared.map(|place| left.remove(place));
        let texts = left.iter().map(|object| format!("{object} was left"));
        self.faults.extend(texts);
    }

    fn finish(mut self) -> Result<Checked, Vec<String>> {
        while let Some(object) = self.others.first() {
            self.close(object.device);
        }
        let ids = self.ids.iter();
        let qps = ids.clone().filter_map(|id| id.qp).chain(self.orphans);
        let left = qps.map(|qp| format!("{qp} was left"));
        self.faults.extend(left);
        let left = ids.map(|id| format!("id {} was left", id.number));
        self.faults.extend(left);
        if self.faults.is_empty() {
            Ok(self.checked)
        } else {
            Err(self.faults)
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::QueuePair => "queue pair",
            Kind::CompletionQueue => "completion queue",
            Kind::MemoryRegion => "memory region",
            Kind::ProtectionDomain => "protection domain",
        };
        write!(f, "{kind} {} of device {}", self.handle, self.device)
    }
}
