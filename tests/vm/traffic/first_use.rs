//! Many threads use the library for the first time at the same moment.

use std::fs;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::thread;

use rdmacm::{CmId, EventChannel, PortSpace, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![first_use_by_many_threads_at_once]
}

const THREADS: usize = 32;

/// F92, F93: in a fresh process, since there is only one first time.
fn first_use_by_many_threads_at_once() -> TestResult {
    for _ in 0..3 {
        let output = Command::new("/proc/self/exe").arg("first_use").output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
    }
    Ok(Outcome::Pass)
}

/// Resolves and binds in many threads at once and counts how often the device is open:
/// `vm first_use`.
pub fn run(_args: &[String]) -> ExitCode {
    let start = Barrier::new(THREADS);
    let ids: Result<Vec<CmId>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    match number % 2 {
                        0 => bound(),
                        _ => resolved(),
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect()
    });
    match ids.and_then(|ids| check(&ids)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bound() -> Result<CmId> {
    let id = EventChannel::open()?.create_id(PortSpace::Tcp)?;
    id.bind_addr(any_port())?;
    Ok(id)
}

fn resolved() -> Result<CmId> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, any_port(), PATIENCE)?;
    expect(&channel, "ADDR_RESOLVED")?;
    Ok(id)
}

fn check(ids: &[CmId]) -> Result<()> {
    let context = ids[0].context()?;
    for id in ids {
        assert!(id.context()?.same_as(&context));
    }
    let open = fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().contains("uverbs"));
    assert_eq!(open.count(), 1, "one context for all");
    Ok(())
}
