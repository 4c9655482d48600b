//! Registered memory and forked children, in processes of their own: `vm fork_with_memory WHAT`.

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rdmacm::Result;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::ANY_ACCESS;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_child_has_the_neighbours_of_registered_memory,
        half_of_the_memory_is_gone_before_it_is_deregistered,
    ]
}

const PAGE: usize = 4096;

/// F101: registering a hundred bytes takes nothing from a child, not even what is beside them.
fn a_child_has_the_neighbours_of_registered_memory() -> TestResult {
    in_a_process_of_its_own("neighbours")
}

/// F103: deregistering works, and the other half is as it was, in a child as well.
fn half_of_the_memory_is_gone_before_it_is_deregistered() -> TestResult {
    in_a_process_of_its_own("half")
}

/// The tests have more than one thread, and such a process should not fork.
fn in_a_process_of_its_own(what: &str) -> TestResult {
    let output = Command::new("/proc/self/exe")
        .args(["fork_with_memory", what])
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {printed}", output.status);
    Ok(Outcome::Pass)
}

/// The program.
pub fn run(args: &[String]) -> ExitCode {
    let outcome = match args.first().map(String::as_str) {
        Some("neighbours") => neighbours(),
        _ => half(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn neighbours() -> Result<()> {
    let pages = map_two_pages();
    let pd = environment::context().alloc_pd()?;
    // SAFETY: the pages stay mapped until the process ends, and nothing is ever posted.
    let region = unsafe { pd.register_raw(pages.as_ptr().wrapping_add(100), 100, ANY_ACCESS)? };
    assert_child_can_use(pages, 2 * PAGE);
    region.deregister()?;
    assert_child_can_use(pages, 2 * PAGE);
    Ok(())
}

fn half() -> Result<()> {
    let pages = map_two_pages();
    let pd = environment::context().alloc_pd()?;
    // SAFETY: nothing is ever posted, so that nothing reaches the half that goes.
    let region = unsafe { pd.register_raw(pages.as_ptr(), 2 * PAGE, ANY_ACCESS)? };
    let second = NonNull::new(pages.as_ptr().wrapping_add(PAGE)).expect("not at address 0");
    // SAFETY: nobody uses the second page.
    unsafe { munmap(second.cast(), PAGE) }.expect("it was mapped");
    region.deregister()?;
    assert_child_can_use(pages, PAGE);
    Ok(())
}

fn map_two_pages() -> NonNull<u8> {
    let length = NonZeroUsize::new(2 * PAGE).expect("not zero");
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping touches no other memory.
    let mapped = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) };
    mapped.expect("two pages can be had").cast()
}

/// Forks a child that reads and writes each byte, and waits for it.
fn assert_child_can_use(start: NonNull<u8>, length: usize) {
    // SAFETY: this process has one thread.
    match unsafe { fork() }.expect("a child can be made") {
        ForkResult::Child => {
            for offset in 0..length {
                // SAFETY: the bytes are mapped, and nobody else in this process uses them.
                unsafe {
                    let byte = start.as_ptr().add(offset);
                    byte.write_volatile(byte.read_volatile().wrapping_add(1));
                }
            }
            std::process::exit(0)
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).expect("the child ends");
            assert_eq!(status, WaitStatus::Exited(child, 0));
        }
    }
}
