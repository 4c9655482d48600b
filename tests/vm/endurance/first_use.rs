//! The first use of each part of the library by many threads at once, in fresh processes, since
//! there is only one first time.

use std::any::Any;
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::thread;

use rdmacm::{AddrInfoQuery, EventChannel, PortSpace, QpAttr, Result, SyncId};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{any_port, endpoints, listen, resolve};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![first_use_of_everything: 300 s]
}

/// F92, F93.
fn first_use_of_everything() -> TestResult {
    for _ in 0..super::times(50) {
        let mut program = Command::new("/proc/self/exe");
        let output = program.arg("first_use_of_everything").output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {printed}", output.status);
    }
    Ok(Outcome::Pass)
}

const THREADS: usize = 32;

/// What was made, to be kept until all have made theirs.
type Made = Box<dyn Any + Send>;

/// Ways to use the library for the first time. They take turns over the threads.
const USES: [fn() -> Result<Made>; 8] = [
    || Ok(Box::new(rdmacm::devices()?)),
    || {
        let context = environment::context();
        let entries = context.attr()?.max_cqe();
        Ok(Box::new((context, entries)))
    },
    || {
        Ok(Box::new(
            environment::context()
                .default_pd()?
                .alloc(100, crate::pair::ANY_ACCESS)?,
        ))
    },
    || Ok(Box::new(listen(&EventChannel::open()?, any_port())?)),
    || Ok(Box::new(resolve(&EventChannel::open()?, any_port())?)),
    || Ok(Box::new(endpoints()?)),
    || Ok(Box::new(query(false)?)),
    || {
        let id = SyncId::create_ep(&query(true)?[0], Some(QpAttr::default()))?;
        id.listen(0)?;
        assert_eq!(id.id().port_space(), PortSpace::Tcp);
        Ok(Box::new(id))
    },
];

fn query(is_passive: bool) -> Result<Vec<rdmacm::AddrInfo>> {
    let query = AddrInfoQuery::new()
        .node(environment::addr().to_string())
        .service("0");
    match is_passive {
        true => query.passive().resolve(),
        false => query.resolve(),
    }
}

/// Uses the library in many threads at once, and counts how often the device is open then:
/// `vm first_use_of_everything`.
pub fn run(_args: &[String]) -> ExitCode {
    let start = Barrier::new(THREADS);
    let made: Result<Vec<Made>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    USES[number % USES.len()]()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|made| made.expect("no thread panics")).collect()
    });
    match made {
        Ok(made) => {
            assert_eq!(open_devices(), 1, "one context for all");
            drop(made);
            assert_eq!(open_devices(), 0, "nobody uses it any more");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Descriptors that are devices.
fn open_devices() -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let targets = open
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().contains("uverbs"))
        .count()
}
