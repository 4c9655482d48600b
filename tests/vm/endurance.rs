//! The same again and again, everything at any moment, and devices that go: what does not show in
//! one round.
//!
//! With [`environment::is_full_run`] the long tests run in their full length, else a tenth of it.

mod blocked;
mod churn;
mod endings;
mod failures;
pub mod first_use;
pub mod removal;
mod rounds;
mod sync;

use std::error::Error;
use std::fs;
use std::thread;

use crate::environment;
use crate::harness::{CLEANUP_TIME, Outcome, Test, TestResult, Usage};
use crate::pair::QUIET;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        rounds::tests(),
        failures::tests(),
        endings::tests(),
        blocked::tests(),
        churn::tests(),
        first_use::tests(),
        removal::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How often something is done that a full run does `full` times.
fn times(full: usize) -> usize {
    match environment::is_full_run() {
        true => full,
        false => full / 10,
    }
}

/// How much larger the process may become: the allocator's, not a leak's, which grows with the
/// number of rounds.
const SLACK_KIB: u64 = 256;

/// What the process and the kernel hold.
struct Level {
    usage: Usage,
    resident_kib: u64,
}

impl Level {
    fn now() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            usage: settled()?,
            resident_kib: resident_kib()?,
        })
    }

    /// Checks that it is no more now.
    fn check_kept(&self, when: &str) -> Result<(), Box<dyn Error>> {
        self.usage
            .wait_until_restored(CLEANUP_TIME)
            .map_err(|difference| format!("{when}: {difference}"))?;
        let now = resident_kib()?;
        println!("resident {when}: {} KiB -> {now} KiB", self.resident_kib);
        if now > self.resident_kib + SLACK_KIB {
            let before = self.resident_kib;
            return Err(format!("{when}: resident memory {before} KiB -> {now} KiB").into());
        }
        Ok(())
    }
}

/// The counts when they do not change any more: another thread may be about to clean up.
fn settled() -> Result<Usage, Box<dyn Error>> {
    let mut usage = Usage::now()?;
    loop {
        thread::sleep(QUIET);
        let later = Usage::now()?;
        if later == usage {
            return Ok(usage);
        }
        usage = later;
    }
}

/// Memory of this process.
pub fn resident_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmRSS in /proc/self/status")?.parse()?)
}

/// As [`go_rounds`], of as many rounds as a run of this length has.
fn endure(full: usize, round: impl FnMut(usize) -> Result<(), Box<dyn Error>>) -> TestResult {
    go_rounds(times(full), round)
}

/// Goes many rounds. In the middle and in the end the process and the kernel must hold no more than
/// after the first tenth, which fills what is kept for reuse.
pub fn go_rounds(
    rounds: usize,
    mut round: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> TestResult {
    let mut level = None;
    for number in 0..rounds {
        if number == rounds / 10 {
            level = Some(Level::now()?);
        }
        if let Some(level) = level.as_ref().filter(|_| number == rounds / 2) {
            level.check_kept("in the middle")?;
        }
        round(number).map_err(|error| format!("round {number} of {rounds}: {error}"))?;
    }
    level.ok_or("too few rounds")?.check_kept("in the end")?;
    Ok(Outcome::Pass)
}
