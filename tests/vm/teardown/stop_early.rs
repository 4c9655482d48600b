//! Connecting ends early, at each step: by an early return, by a panic, by the end of the thread.

use std::panic;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::kit::{Kit, Plan, Stopped, Then};
use super::order::{self, Checked};
use crate::harness::{CLEANUP_TIME, Outcome, Test, TestResult, Usage, tests};
use crate::tracer::Tracer;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![returns_at_each_step: 120 s, panics_at_each_step: 120 s, panics_in_main]
}

fn returns_at_each_step() -> TestResult {
    stop_at_each_step("return")
}

fn panics_at_each_step() -> TestResult {
    stop_at_each_step("panic")
}

fn stop_at_each_step(how: &str) -> TestResult {
    let trace = Tracer::own("stop_early")
        .args([how])
        .timeout(Duration::from_secs(110))
        .run()?;
    order::assert_success(&trace);
    let checked = order::assert_orderly(&trace);
    assert_eq!(trace.output.trim(), summary(checked));
    assert!(checked.qps > 30, "{checked:?}");
    Ok(Outcome::Pass)
}

fn panics_in_main() -> TestResult {
    let trace = Tracer::own("stop_early").args(["main"]).run()?;
    assert_eq!(trace.status.code(), Some(101), "{trace}");
    assert!(trace.output.contains(" parts"), "{trace}");
    let checked = order::assert_orderly(&trace);
    assert_eq!(checked, Checked { ids: 3, qps: 2 }, "{trace}");
    Ok(Outcome::Pass)
}

/// What the program says in the end.
fn summary(made: Checked) -> String {
    format!("{} ids, {} queue pairs", made.ids, made.qps)
}

/// The program: `stop_early return|panic|main`.
pub fn run(args: &[String]) -> ExitCode {
    let attempt: Attempt = match args.first().map(String::as_str) {
        Some("return") => return_early,
        Some("panic") => panic_early,
        Some("main") => panic_when_connected(),
        _ => return ExitCode::from(64),
    };
    println!("{}", summary(stop_everywhere(attempt)));
    ExitCode::SUCCESS
}

/// Builds a connection as planned and lets it go. Tells whether it was complete.
type Attempt = fn(Plan, &mut Checked) -> bool;

/// Builds connections with one step more each time, and checks that nothing of them stays.
fn stop_everywhere(attempt: Attempt) -> Checked {
    let before = Usage::now().expect("the counts");
    let mut made = Checked::default();
    let mut attempt_cleanly = |plan| {
        let complete = attempt(plan, &mut made);
        if let Err(left) = before.wait_until_restored(CLEANUP_TIME) {
            panic!("{plan:?}: {left}");
        }
        complete
    };
    let mut plan = Plan::default();
    while !attempt_cleanly(plan) {
        plan.steps += 1;
    }
    // A rejected connection differs in its last steps only.
    plan.rejects = true;
    attempt_cleanly(plan);
    made
}

fn return_early(plan: Plan, made: &mut Checked) -> bool {
    match Kit::new(plan, made).build() {
        Ok(()) => true,
        Err(Stopped::Planned) => false,
        Err(Stopped::Failed(error)) => panic!("{plan:?}: {error}"),
    }
}

/// The thread panics, and the kit is dropped while its stack unwinds.
fn panic_early(mut plan: Plan, made: &mut Checked) -> bool {
    plan.then = Then::Panic;
    let outcome = thread::scope(|scope| scope.spawn(|| return_early(plan, made)).join());
    outcome.unwrap_or_else(|payload| match payload.downcast::<Stopped>() {
        Ok(_planned) => false,
        Err(other) => panic::resume_unwind(other),
    })
}

/// A program that panics while it holds a connection.
fn panic_when_connected() -> ! {
    let mut made = Checked::default();
    let kit = Kit::complete(&mut made).expect("a connection");
    panic!("with {} parts", kit.parts.len());
}
