//! Goes through the calls of one side, and judges what became of each failure.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::time::Instant;

use nix::errno::Errno;
use rdmacm::{ErrorKind, Result as Answer};

use super::calls::{self, ERRNOS, Outcome, Side};
use crate::environment;
use crate::exchange::FAILED;
use crate::harness::{self, CLEANUP_TIME, TestResult, Usage};
use crate::teardown::order;
use crate::tracer::{Trace, Tracer};

/// A call, and the errno with which it fails.
#[derive(Clone, Debug)]
pub struct Case {
    /// The call's name.
    pub name: String,
    /// Which of the calls with this name, counted from 1.
    pub n: usize,
    /// The errno.
    pub errno: i32,
}

impl Case {
    /// Makes the call of a program fail.
    fn inject(self, tracer: Tracer) -> Tracer {
        let Self { name, n, errno } = self;
        tracer.inject(n, errno, move |event| {
            event.is_device() && calls::name(event) == name
        })
    }
}

/// Both sides of an exchange, one of which fails.
pub trait Bench {
    /// Runs the exchange, and returns the trace of the side that fails; `fail` is to be applied to
    /// its tracer.
    fn run(&mut self, fail: impl FnOnce(Tracer) -> Tracer) -> io::Result<Trace>;

    /// How the other side's connections ended.
    fn ends_of_peer(&mut self) -> Vec<Answer<()>>;
}

/// After so many faults the rest would only repeat them.
const ENOUGH: usize = 12;

/// Fails each call of a side: with a signal, which some calls outlast, and with one of the other
/// errnos, which take turns. In a full run each call fails with each errno, which takes more than
/// twice as long.
///
/// # Errors
///
/// What was wrong in which case, and calls that never failed.
pub fn sweep(side: Side, bench: &mut impl Bench) -> TestResult {
    let mut findings = Findings::default();
    let calls = calls_to_fail(side, bench)?;
    let turns: Vec<&[i32]> = match environment::is_full_run() {
        true => ERRNOS.chunks(1).collect(),
        false => vec![&ERRNOS[..1], &ERRNOS[1..]],
    };
    for errnos in turns {
        let start = Instant::now();
        for ((name, n), errno) in calls.iter().cloned().zip(errnos.iter().copied().cycle()) {
            findings.add(bench, Case { name, n, errno })?;
        }
        let names: Vec<Errno> = errnos.iter().copied().map(Errno::from_raw).collect();
        let (count, seconds) = (calls.len(), start.elapsed().as_secs_f32());
        println!("{side:?}: {count} calls with {names:?} in {seconds:.1} s");
    }
    findings.conclude(side)
}

/// The calls of an undisturbed exchange: each name as often as it comes, with its number.
fn calls_to_fail(
    side: Side,
    bench: &mut impl Bench,
) -> Result<Vec<(String, usize)>, Box<dyn Error>> {
    let before = Usage::now()?;
    let trace = bench.run(|tracer| tracer)?;
    before.wait_until_restored(CLEANUP_TIME)?;
    judge(&trace, None, 0, &bench.ends_of_peer())?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut calls = Vec::new();
    for name in trace
        .events
        .iter()
        .filter(|event| event.is_device())
        .map(calls::name)
    {
        if calls::is_to_fail(side, &name) {
            let n = counts.entry(name.clone()).or_default();
            *n += 1;
            calls.push((name, *n));
        }
    }
    Ok(calls)
}

/// What was found.
#[derive(Default)]
struct Findings {
    /// The calls that failed in some case, by their names in the table.
    hit: BTreeSet<String>,
    faults: Vec<String>,
}

impl Findings {
    /// Runs a case. It is an error to go on when there are so many faults.
    fn add(&mut self, bench: &mut impl Bench, case: Case) -> Result<(), Box<dyn Error>> {
        let errno = case.errno;
        let before = Usage::now()?;
        let trace = bench.run(|tracer| case.inject(tracer))?;
        let left = before.wait_until_restored(CLEANUP_TIME);
        let call = trace
            .injected()
            .map(|event| calls::name_in_table(&trace, event));
        let peer = bench.ends_of_peer();
        let judged = left.and_then(|()| judge(&trace, call.as_deref(), errno, &peer));
        if let Err(fault) = judged {
            let call = call.as_deref().unwrap_or("undisturbed");
            let errno = Errno::from_raw(errno);
            self.faults
                .push(format!("{call}, {errno:?}: {fault}\n{trace}"));
        }
        self.hit.extend(call);
        match self.faults.len() < ENOUGH {
            true => Ok(()),
            false => Err(self.faults.join("\n").into()),
        }
    }

    fn conclude(mut self, side: Side) -> TestResult {
        let missed = calls::all_of(side).filter(|call| !self.hit.contains(*call));
        let missed: Vec<String> = missed.map(|call| format!("{call} never failed")).collect();
        self.faults.extend(missed);
        match self.faults.is_empty() {
            true => Ok(harness::Outcome::Pass),
            false => Err(self.faults.join("\n").into()),
        }
    }
}

/// Checks how both sides ended. If no call failed, both must have done their work.
fn judge(trace: &Trace, call: Option<&str>, errno: i32, peer: &[Answer<()>]) -> Result<(), String> {
    judge_end(trace)?;
    peer.iter().try_for_each(judge_peer)?;
    let succeeded = trace.status.success();
    let Some(call) = call else {
        let all = succeeded && peer.iter().all(Answer::is_ok);
        return all.then_some(()).ok_or(format!("{peer:?}"));
    };
    match calls::outcome(call, errno)? {
        Outcome::Success(_) if succeeded => Ok(()),
        Outcome::Success(why) => Err(format!("expected was no consequence: {why}")),
        Outcome::Failure(operations) => judge_message(&trace.output, operations, errno),
        Outcome::Text(text) if trace.output.contains(text) => Ok(()),
        Outcome::Text(text) => Err(format!("expected was an error with {text:?}")),
    }
}

/// No hang, no panic, no signal, and the right order of teardown.
fn judge_end(trace: &Trace) -> Result<(), String> {
    if trace.timed_out {
        return Err("hangs".to_owned());
    }
    if !matches!(trace.status.code(), Some(0 | 1)) {
        return Err(format!("ended with {}", trace.status));
    }
    let checked = order::check_trace(trace);
    checked.map(drop).map_err(|faults| faults.join(", "))
}

/// The other side did its work, or learned that the connection is no more.
fn judge_peer(outcome: &Answer<()>) -> Result<(), String> {
    use ErrorKind::{Disconnected, Rejected, Unreachable};
    match outcome.as_ref().map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((Disconnected | Rejected | Unreachable, _)) => Ok(()),
        Err((kind, error)) => Err(format!("the peer says {kind:?}: {error}")),
    }
}

/// The message names one of the operations, and the errno.
fn judge_message(output: &str, operations: &[&str], errno: i32) -> Result<(), String> {
    let message = output
        .trim()
        .strip_prefix(FAILED)
        .ok_or("there is no error")?;
    let is_named = |operation: &&str| message.contains(&format!("{operation}: "));
    let tells = message.contains(&format!("(errno {errno})"));
    match tells && operations.iter().any(is_named) {
        true => Ok(()),
        false => Err(format!("expected was errno {errno} of {operations:?}")),
    }
}
