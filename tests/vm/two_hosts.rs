//! What only two hosts can show: `vm two_hosts [FILTER]` on both of them, with `ci/vm --two`.
//!
//! The hosts run the same tests in the same order. A test is one function with two sides; the hosts
//! talk about where they are over a [`Link`](link::Link).

mod addresses;
mod ends;
mod excuses;
mod host;
mod link;
mod neighbours;
mod programs;
mod streams;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use crate::environment;
use crate::harness::{self, Test};
use crate::siw;

/// The program: runs the tests on one of two hosts.
pub fn run(args: &[String]) -> ExitCode {
    let args = ["vm".to_owned()].into_iter().chain(args.iter().cloned());
    let can_run = environment::is_guest() && environment::is_one_of_two();
    let mut tests = tests();
    if can_run && siw::is_under_test() {
        tests.retain(siw::is_shared);
    }
    harness::run(Arguments::from_iter(args), tests, can_run)
}

fn tests() -> Vec<Test> {
    [
        programs::tests(),
        addresses::tests(),
        neighbours::tests(),
        streams::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
