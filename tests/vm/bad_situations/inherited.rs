//! A forked child has copies of the parent's objects, of every kind, and can do nothing with them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::thread;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rdmacm::{Completion, ErrorKind};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, QUIET};
use crate::verbs::one_of_each::OneOfEach;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![objects_of_every_kind_are_the_parents]
}

/// F100, F101: the child is refused whatever it tries, reads and writes its own memory, and the
/// parent's objects and memory are as they were, while the child lives and after it.
fn objects_of_every_kind_are_the_parents() -> TestResult {
    let output = Command::new("/proc/self/exe")
        .arg("fork_with_objects")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {printed}", output.status);
    Ok(Outcome::Pass)
}

/// The program: `vm fork_with_objects`.
pub fn run(_args: &[String]) -> ExitCode {
    match fork_with_objects() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fork_with_objects() -> Result<(), Box<dyn std::error::Error>> {
    let mut all = OneOfEach::new(&environment::context(), environment::addr())?;
    all.exercise(1)?;
    // An event that nobody has read, and completions that nobody has taken.
    all.cq.arm(false)?;
    all.post_to_itself()?;
    thread::sleep(QUIET);
    let (mut ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(ours);
            try_everything(all, theirs).expect("the parent is there");
            std::process::exit(0)
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            // Up to here the child has tried all that leaves the objects in its hands.
            ours.read_exact(&mut [0])?;
            assert_eq!(all.channel.next_event(Some(PATIENCE))?, all.cq.token());
            all.await_all(&OneOfEach::TO_ITSELF)?;
            // Memory that was registered before the fork is still what the device sees.
            all.exercise(2)?;
            ours.write_all(&[0])?;
            let status = waitpid(child, None)?;
            assert_eq!(status, WaitStatus::Exited(child, 0));
            for seed in 3..20 {
                all.exercise(seed)?;
            }
            for (name, outcome) in all.destroy() {
                assert_eq!(outcome, Ok(()), "{name}");
            }
            Ok(())
        }
    }
}

/// What the child does.
fn try_everything(mut all: OneOfEach, mut parent: UnixStream) -> io::Result<()> {
    let before = all.buffer.read_vec(0, 64).expect("the child has it too");
    all.buffer.write(0, &[0; 64]).expect("and can write to it");
    assert_ne!(before, [0; 64]);
    all.use_heap();
    let polled = all.cq.poll(&mut [Completion::default()]).len();
    assert_eq!(polled, 0, "the completions are the parent's");
    assert_refused(all.ask());
    parent.write_all(&[0])?;
    parent.read_exact(&mut [0])?;
    assert_refused(all.destroy());
    Ok(())
}

fn assert_refused(answers: Vec<(&'static str, rdmacm::Result<()>)>) {
    let complaints: Vec<String> = answers
        .into_iter()
        .filter_map(|(name, answer)| match answer {
            Err(error) if is_clear(&error) => None,
            answer => Some(format!("{name}: {answer:?}")),
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn is_clear(error: &rdmacm::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("fork")
}
