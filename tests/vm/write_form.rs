//! The library on a kernel without the RDMA ioctl: a filter of system calls refuses it as a kernel
//! does that never had it, so that all commands go by `write()`.
//!
//! By hand, any tests can be run so. Those fail that listen to more than one stream of asynchronous
//! events, since there is one only:
//!
//! ```text
//! ci/vm --file VM:/opt/vm -- /opt/vm without_ioctl verbs
//! ```

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use libc::{sock_filter, sock_fprog};
use rdmacm::{ErrorKind, Result};
use rdmacm_kernel_abi::uverbs::ioctl;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::verbs::one_of_each::OneOfEach;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![one_of_each_is_made_and_used, connections_carry_messages]
}

fn one_of_each_is_made_and_used() -> TestResult {
    run_without_ioctl(&["one_of_each"])
}

fn connections_carry_messages() -> TestResult {
    run_without_ioctl(&["traffic::messages"])
}

fn run_without_ioctl(args: &[&str]) -> TestResult {
    let mut program = Command::new("/proc/self/exe");
    let output = program.arg("without_ioctl").args(args).output()?;
    let [printed, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{printed}{errors}");
    Ok(Outcome::Pass)
}

/// Makes and uses one object of each kind: `vm one_of_each`.
pub fn make_one_of_each(_args: &[String]) -> ExitCode {
    match try_one_of_each() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_one_of_each() -> Result<()> {
    let mut all = OneOfEach::new(&environment::context(), environment::addr())?;
    all.exercise(7)?;
    for (name, outcome) in all.ask() {
        match (name, outcome) {
            // This is how the form of the commands is known: the only stream is in use.
            ("async_events", outcome) => {
                let error = outcome.expect_err("a second stream");
                assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
            }
            ("wait" | "next_cq_event" | "next_async_event", Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
            }
            (name, Err(error)) => panic!("{name}: {error}"),
            (_, Ok(())) => {}
        }
    }
    for (name, outcome) in all.destroy() {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    Ok(())
}

/// Runs this program with the arguments where there is no ioctl: `vm without_ioctl ARGUMENTS`.
pub fn run(args: &[String]) -> ExitCode {
    let failed = match refuse_the_ioctl() {
        Ok(()) => Command::new("/proc/self/exe").args(args).exec(),
        Err(error) => error,
    };
    eprintln!("without the ioctl: {failed}");
    ExitCode::FAILURE
}

/// Has the kernel answer `ENOTTY` to the RDMA ioctl in this process and those that come of it.
fn refuse_the_ioctl() -> io::Result<()> {
    // Where `seccomp_data` has the number of the call, and the lower half of its second argument.
    const NUMBER: u32 = 0;
    const REQUEST: u32 = 24;
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let give = |result| statement(libc::BPF_RET | libc::BPF_K, result);
    let mut steps = [
        load(NUMBER),
        unless_equal(libc::SYS_ioctl as u32, 3),
        load(REQUEST),
        unless_equal(ioctl::VERBS_IOCTL, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::ENOTTY as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is as long as it says, and the kernel copies it.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Goes on with the next step, or skips so many.
fn unless_equal(number: u32, skipped: u8) -> sock_filter {
    sock_filter {
        jf: skipped,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number)
    }
}
