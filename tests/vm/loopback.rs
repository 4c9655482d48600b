//! The example `verbs_loopback` on the device under test: random requests between two queue pairs of
//! one process, which checks every byte itself.

use std::time::Duration;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::{Ended, Program};
use crate::siw;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        random_requests_of_all_kinds: 300 s,
        each_service_alone: 120 s,
        what_is_not_there_is_named,
    ]
}

const PROGRAM: &str = "/opt/verbs_loopback";

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(args: &[&str]) -> Result<Ended, Box<dyn std::error::Error>> {
    let device = environment::context().device().name().to_owned();
    let args = [&["--device", &device][..], args].concat();
    Program::start(PROGRAM, &args)?.wait(PATIENCE)
}

/// Runs the program, which must succeed, and returns the numbers of its last line: of operations and
/// of checks.
fn succeed(args: &[&str]) -> Result<[u64; 2], Box<dyn std::error::Error>> {
    let ended = run(args)?;
    let last = ended.output.lines().last().unwrap_or_default();
    let device = environment::context().device().name().to_owned();
    let is_right = ended.status.success()
        && last.starts_with(&format!("verbs_loopback: OK device={device} seed="));
    assert!(is_right, "{ended}");
    let number = |name: &str| -> Result<u64, Box<dyn std::error::Error>> {
        let word = last.split(' ').find_map(|word| word.strip_prefix(name));
        Ok(word.ok_or("the line has no such number")?.parse()?)
    };
    Ok([number("operations=")?, number("checks=")?])
}

fn random_requests_of_all_kinds() -> TestResult {
    for seed in ["1", "2", "3", "4"] {
        for more in [
            &[][..],
            &["--events"],
            &["--srq"],
            &["--srq", "--events", "--depth", "7"],
            &["--depth", "200"],
        ] {
            let args = [
                &["--quiet", "--operations", "500", "--seed", seed][..],
                more,
            ]
            .concat();
            let [operations, checks] = succeed(&args)?;
            assert!(operations >= 500 && checks > operations / 2, "{args:?}");
        }
    }
    Ok(Outcome::Pass)
}

fn each_service_alone() -> TestResult {
    for (service, kinds) in [
        ("rc", &["read", "fetch and add", "invalidate window"][..]),
        ("uc", &["write with immediate"]),
        ("ud", &["send with immediate"]),
    ] {
        let ended = run(&["--type", service, "--seed", "9", "--operations", "1500"])?;
        assert!(ended.status.success(), "{ended}");
        for kind in kinds {
            assert!(ended.output.contains(kind), "{ended}");
        }
        assert!(ended.output.contains("provoked, 0 others"), "{ended}");
    }
    Ok(Outcome::Pass)
}

fn what_is_not_there_is_named() -> TestResult {
    for (args, words) in [
        (&["--port", "9"][..], "port"),
        (&["--gid-index", "200"], "no GID of the index 200"),
        (&["--device", "nothing0"], "there is no device nothing0"),
    ] {
        // The last of two devices counts.
        let ended = run(args)?;
        let is_told = ended.errors.starts_with("verbs_loopback: FAILED: ");
        assert!(is_told && ended.errors.contains(words), "{ended}");
        assert!(!ended.status.success(), "{ended}");
    }
    if siw::is_under_test() {
        let ended = run(&["--type", "ud"])?;
        assert!(
            ended.errors.contains("is an iWARP device, which has no UD"),
            "{ended}"
        );
    }
    Ok(Outcome::Pass)
}
