//! Tests that end in every way a test can end, for the harness to be tested on.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use libtest_mimic::Arguments;

use crate::environment;
use crate::harness::{self, Outcome, Test, TestResult, tests};
use crate::raw_cm;

/// Runs them as the whole binary's tests are run, with the same options.
pub fn run(args: &[String]) -> ExitCode {
    let command = ["sample".to_owned()];
    harness::run(
        Arguments::from_iter(command.iter().chain(args)),
        samples(),
        true,
    )
}

fn samples() -> Vec<Test> {
    tests![passes, skips, fails, panics, leaks, hangs: 1 s]
}

fn passes() -> TestResult {
    Ok(Outcome::Pass)
}

fn skips() -> TestResult {
    Ok(Outcome::Skip("the kernel is too new".into()))
}

fn fails() -> TestResult {
    Err("the answer is 41".into())
}

fn panics() -> TestResult {
    panic!("the answer is {}", 43)
}

fn leaks() -> TestResult {
    std::mem::forget(raw_cm::Id::bound_to(environment::addr())?);
    Ok(Outcome::Pass)
}

fn hangs() -> TestResult {
    thread::sleep(Duration::from_secs(30));
    Ok(Outcome::Pass)
}
