//! Threads that destroy the same id and queue pair at once: one of them does it, the others are
//! told.

use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rdmacm::{CmId, ErrorKind, Qp};

use super::kit::Kit;
use super::order::{self, Checked};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::tracer::Tracer;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![destroys_once: 120 s]
}

/// Races that are run.
const ROUNDS: usize = 15;

fn destroys_once() -> TestResult {
    let trace = Tracer::own("race")
        .timeout(Duration::from_secs(110))
        .run()?;
    order::assert_success(&trace);
    let checked = order::assert_orderly(&trace);
    let expected = Checked {
        ids: 3 * ROUNDS,
        qps: 2 * ROUNDS,
    };
    assert_eq!(checked, expected);
    Ok(Outcome::Pass)
}

/// The program.
pub fn run(_args: &[String]) -> ExitCode {
    let mut made = Checked::default();
    for _ in 0..ROUNDS {
        let mut kit = Kit::complete(&mut made).expect("a connection");
        let (id, qp) = kit.take_active();
        race(&id, &qp);
    }
    ExitCode::SUCCESS
}

fn race(id: &CmId, qp: &Qp) {
    let start = Barrier::new(4);
    let destroy_id = || {
        start.wait();
        id.destroy().map_err(|error| error.kind())
    };
    let destroy_qp = || {
        start.wait();
        id.destroy_qp().expect("no call fails")
    };
    let (ids, qps) = thread::scope(|scope| {
        let ids = [scope.spawn(destroy_id), scope.spawn(destroy_id)];
        let by_id = scope.spawn(destroy_qp);
        start.wait();
        let by_handle = qp.destroy().expect("no call fails");
        let ids = ids.map(|thread| thread.join().expect("no panic"));
        (ids, [by_id.join().expect("no panic"), by_handle])
    });
    let winners = ids.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(winners, 1, "{ids:?}");
    assert!(ids.contains(&Err(ErrorKind::Destroyed)), "{ids:?}");
    // None of the two, if the queue pair went with the id.
    assert!(qps != [true, true], "{qps:?}");
}
