//! The harness notices what it is there for.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::environment;
use crate::harness::{CLEANUP_TIME, EXIT_HUNG, Outcome, Test, TestResult, Usage, tests};
use crate::raw_cm;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        bound_id_is_counted,
        id_without_device_is_not_counted,
        open_files_are_counted,
        counts_return_after_sigkill,
        outcomes_are_reported,
        watchdog_gives_up,
    ]
}

/// The count of a kind of object of the device under test.
fn count(usage: &Usage, kind: &str) -> u64 {
    usage.count(&format!("{} {kind}", environment::device()))
}

fn bound_id_is_counted() -> TestResult {
    let before = Usage::now()?;
    let id = raw_cm::Id::bound_to(environment::addr())?;
    assert_eq!(count(&Usage::now()?, "cm_id"), count(&before, "cm_id") + 1);
    let noticed = before
        .wait_until_restored(Duration::ZERO)
        .expect_err("an id is left");
    assert!(noticed.contains(" cm_id 0 -> 1"), "{noticed}");

    let channel = id.destroy()?;
    assert_eq!(count(&Usage::now()?, "cm_id"), count(&before, "cm_id"));
    drop(channel);
    before.wait_until_restored(Duration::ZERO)?;
    Ok(Outcome::Pass)
}

fn id_without_device_is_not_counted() -> TestResult {
    let before = Usage::now()?;
    let refused = raw_cm::Id::bound_to(environment::plain_addr()).map(drop);
    assert_eq!(
        refused.expect_err("no device").raw_os_error(),
        Some(libc::ENODEV)
    );

    let _id = raw_cm::Id::bound_to(IpAddr::V4(Ipv4Addr::UNSPECIFIED))?;
    let noticed = before
        .wait_until_restored(Duration::ZERO)
        .expect_err("a file is open");
    assert!(
        noticed.contains("open /dev/infiniband/rdma_cm 0 -> 1"),
        "{noticed}"
    );
    assert!(!noticed.contains("cm_id"), "{noticed}");
    Ok(Outcome::Pass)
}

fn open_files_are_counted() -> TestResult {
    let before = Usage::now()?;
    let _context = environment::context();
    let noticed = before
        .wait_until_restored(Duration::ZERO)
        .expect_err("a file is open");
    assert!(
        noticed.contains("open /dev/infiniband/uverbs0 0 -> 1"),
        "{noticed}"
    );
    assert!(noticed.contains(" ctx 0 -> 1"), "{noticed}");
    Ok(Outcome::Pass)
}

fn counts_return_after_sigkill() -> TestResult {
    let before = Usage::now()?;
    let mut child = start_holding()?;
    let during = Usage::now()?;
    child.kill()?;
    assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
    drop(child);
    for kind in ["cm_id", "pd"] {
        assert_eq!(count(&during, kind), count(&before, kind) + 1, "{kind}");
    }
    before.wait_until_restored(CLEANUP_TIME)?;
    Ok(Outcome::Pass)
}

/// Starts the subcommand `hold` and waits until it holds what it is to hold.
fn start_holding() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    let mut child = command
        .arg("hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    Ok(child)
}

fn outcomes_are_reported() -> TestResult {
    let (code, printed) = run_sample(&["--skip", "hangs"])?;
    assert_eq!(code, Some(101), "{printed}");
    assert!(
        printed.contains("sample::skips  ... ignored (the kernel is too new)"),
        "{printed}"
    );
    assert!(
        printed.contains("sample::fails ----\nthe answer is 41\n"),
        "{printed}"
    );
    assert!(
        printed.contains("sample::panics ----\npanicked: the answer is 43\n"),
        "{printed}"
    );
    let leak = "sample::leaks ----\nresources before and after: ";
    assert!(
        printed.contains(leak) && printed.contains(" cm_id 0 -> 1"),
        "{printed}"
    );
    assert!(
        printed.ends_with("1 passed, 3 failed, 1 skipped\n"),
        "{printed}"
    );
    Ok(Outcome::Pass)
}

fn watchdog_gives_up() -> TestResult {
    let (code, printed) = run_sample(&["hangs"])?;
    assert_eq!(code, Some(EXIT_HUNG), "{printed}");
    assert!(
        printed.contains("test sample::hangs hangs: no result after 1 s"),
        "{printed}"
    );
    Ok(Outcome::Pass)
}

/// Runs the harness on its samples; returns the exit code and what was printed, errors first.
fn run_sample(args: &[&str]) -> io::Result<(Option<i32>, String)> {
    let output = Command::new("/proc/self/exe")
        .arg("sample")
        .args(args)
        .output()?;
    let printed = [output.stderr, output.stdout].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&printed).into_owned(),
    ))
}
