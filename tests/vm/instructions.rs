//! How many instructions a call of the data path takes in user space, next to the C library's with
//! its provider for rxe.
//!
//! `vm instructions` prints the table; the test holds our numbers to their limits. Both need the
//! programs of `benches/data_path` in the guest.

mod mlx5;
mod split;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::tracer::steps::{self, Calls, Steps};

/// Our program, built as for release.
const OURS: &str = "/opt/instructions";

/// The C program.
const THEIRS: &str = "/opt/c/instructions";

/// What the programs count of the marks themselves.
const NOTHING: &str = "nothing";

/// What is counted, and the most instructions of ours: half of those of libibverbs 44, of several
/// segments as many.
const CALLS: [(&str, u64); 10] = [
    ("send of 64 bytes inline", 101),
    ("send of 1 segment", 93),
    (SEVERAL, 197),
    ("write of 1 segment", 95),
    ("read into 1 segment", 95),
    (LIST, 1752),
    ("receive into 1 segment", 63),
    ("poll of 1 completion", 32),
    ("poll of 16 completions", 197),
    ("poll of nothing", 23),
];

const SEVERAL: &str = "send of 4 segments";
const LIST: &str = "a list of 32 sends";

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![instructions_stay_within_their_limits: 120 s]
}

fn instructions_stay_within_their_limits() -> TestResult {
    if !Path::new(OURS).exists() {
        return Ok(Outcome::Skip(format!("{OURS} is not in the guest")));
    }
    let ours = count(OURS)?;
    for (name, limit) in CALLS {
        let instructions = ours[name].instructions;
        // The table is exact; here a tenth is left for other compilers than the one it was made with.
        let limit = limit + limit / 10;
        assert!(instructions <= limit, "{instructions} of a {name}");
    }
    assert_eq!(ours[LIST].syscalls, 1, "doorbells of a list");
    Ok(Outcome::Pass)
}

/// Prints the table. Fails where ours is more than half of C's, of several segments more than C's.
///
/// `vm instructions mlx5 PROGRAM LIBRARY`: of mlx5, over the device made of software that is in the
/// library.
pub fn run(args: &[String]) -> ExitCode {
    let printed = match args {
        [mlx5, program, library] if mlx5 == "mlx5" => mlx5::print_table(program, library),
        _ => print_table(),
    };
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_table() -> Result<bool, Box<dyn Error>> {
    let (theirs, ours) = (count(THEIRS)?, count(OURS)?);
    println!(
        "instructions in user space of one call, system calls as one each\n\
         {:>8} {:>8} {:>8}",
        "C", "rdmacm", "ratio"
    );
    let mut is_half = true;
    for (name, _) in CALLS {
        let (theirs, ours) = (theirs[name], ours[name]);
        let ratio = ours.instructions as f64 / theirs.instructions as f64;
        is_half &= ratio <= if name == SEVERAL { 1.0 } else { 0.5 };
        println!(
            "{:>8} {:>8} {ratio:>8.2}  {name}{}",
            theirs.instructions,
            ours.instructions,
            match (theirs.syscalls, ours.syscalls) {
                (0, 0) => String::new(),
                (theirs, ours) => format!(" (system calls: {theirs}, {ours})"),
            }
        );
    }
    Ok(is_half)
}

/// How many instructions of the program's and system calls one call takes, without the marks.
#[derive(Clone, Copy)]
struct Count {
    instructions: u64,
    syscalls: u64,
}

fn count(program: &str) -> Result<BTreeMap<String, Count>, Box<dyn Error>> {
    let mut command = Command::new(program);
    command.arg(environment::addr().to_string());
    let calls = steps::count(command).map_err(|error| format!("{program}: {error}"))?;
    let marks = marks_of(&calls)?;
    let count = |steps: &Steps| Count {
        instructions: (steps.addresses.len() - marks.addresses.len()) as u64,
        syscalls: steps.syscalls,
    };
    let counts = calls.steps.iter().filter(|(name, _)| *name != NOTHING);
    Ok(counts
        .map(|(name, steps)| (name.clone(), count(steps)))
        .collect())
}

/// What is executed of the marks themselves.
fn marks_of(calls: &Calls) -> Result<&Steps, &'static str> {
    calls.steps.get(NOTHING).ok_or("no marks")
}
