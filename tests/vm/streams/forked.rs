//! A process with streams forks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rdmacm::{RdmaListener, RdmaStream, StreamSettings};

use super::basics::{listen, pattern};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![a_forked_child_takes_nothing]
}

const LENGTH: usize = 1 << 20;

fn a_forked_child_takes_nothing() -> TestResult {
    let output = Command::new("/proc/self/exe")
        .arg("fork_with_streams")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    Ok(Outcome::Pass)
}

/// Forks with a listener and two ends of a stream, which the child tries to use, and goes on: `vm
/// fork_with_streams`.
pub fn fork_with_streams(_args: &[String]) -> ExitCode {
    match try_fork() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_fork() -> io::Result<()> {
    let (listener, address) = listen(&StreamSettings::new())?;
    let mut one = RdmaStream::connect(address)?;
    let (mut other, _) = listener.accept()?;
    other.write_all(b"for the parent")?;
    // SAFETY: the child uses what is its own, and what refuses to be used there.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let are_refused = try_all(&listener, &mut one, &mut other);
            drop((listener, one, other));
            // The heap is the child's own.
            let bytes = pattern(1, LENGTH);
            let is_intact = bytes.len() == LENGTH && bytes == pattern(1, LENGTH);
            std::process::exit(if are_refused && is_intact { 0 } else { 7 });
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None)?;
            assert_eq!(ended, WaitStatus::Exited(child, 0));
        }
    }
    let mut bytes = [0; 14];
    one.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"for the parent");
    exchange(&mut one, &mut other)?;
    // The listener is as it was, too.
    let mut another = RdmaStream::connect(address)?;
    let (mut accepted, _) = listener.accept()?;
    exchange(&mut another, &mut accepted)
}

/// Whether each call is refused, at once.
fn try_all(listener: &RdmaListener, one: &mut RdmaStream, other: &mut RdmaStream) -> bool {
    let refusals = [
        one.read(&mut [0; 20]).map(drop),
        one.peek(&mut [0; 20]).map(drop),
        one.lend().map(drop),
        other.write(b"of the child").map(drop),
        one.register(4096).map(drop),
        other.shutdown(Shutdown::Both),
        listener.accept_timeout(Duration::from_secs(5)).map(drop),
    ];
    refusals.iter().enumerate().all(|(call, refusal)| {
        let kind = refusal.as_ref().err().map(io::Error::kind);
        if kind != Some(ErrorKind::PermissionDenied) {
            eprintln!("call {call} of the child: {refusal:?}");
        }
        kind == Some(ErrorKind::PermissionDenied)
    })
}

/// Data one way and then the other.
fn exchange(one: &mut RdmaStream, other: &mut RdmaStream) -> io::Result<()> {
    let bytes = pattern(3, LENGTH);
    for (from, to) in [(&*one, &*other), (&*other, &*one)] {
        let (mut from, mut to) = (from, to);
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || from.write_all(&pattern(3, LENGTH)));
            let mut heard = vec![0; LENGTH];
            to.read_exact(&mut heard)?;
            assert!(heard == bytes, "other bytes");
            sender.join().expect("no panic")
        })?;
    }
    Ok(())
}
