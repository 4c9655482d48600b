//! Counts the instructions that a program executes between marks.
//!
//! A mark is a write to the descriptor −1, which does nothing: of a name at the beginning of what
//! is to be counted, of nothing at its end. In between the program is led from instruction to
//! instruction. A system call is one instruction, and so is one that repeats itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::ptrace::{self, Position, Registers, Stop};
use super::remote;

/// What a program executed from one mark to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The address of each instruction in user space.
    pub addresses: Vec<u64>,
    /// How many of them are system calls.
    pub syscalls: u64,
}

/// What a program executed between its marks, by their names.
#[derive(Debug, Default)]
pub struct Calls {
    pub steps: BTreeMap<String, Steps>,
    /// `/proc/PID/maps` as of the last mark: what the addresses lie in.
    pub maps: String,
}

/// Runs a command and counts what is between its marks. Of a name that comes again the last count
/// is returned: the first time symbols are looked up.
pub fn count(mut command: Command) -> io::Result<Calls> {
    ptrace::stay_on_this_processor();
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(ptrace::trace_me) };
    let tid = command.spawn()?.id() as i32;
    let mut calls = Calls::default();
    expect_trap(ptrace::wait()?)?;
    ptrace::follow_alone(tid)?;
    while let Some(name) = next_mark(tid)? {
        calls.maps = fs::read_to_string(format!("/proc/{tid}/maps"))?;
        calls.steps.insert(name, steps_to_next_mark(tid)?);
    }
    Ok(calls)
}

/// Lets the program run behind its next mark with a name. None when it ended before that.
fn next_mark(tid: i32) -> io::Result<Option<String>> {
    let mut name = None;
    loop {
        ptrace::resume(tid, 0)?;
        match ptrace::wait()? {
            Some((_, Stop::Syscall)) => {}
            Some((_, Stop::Ended(0))) => return Ok(None),
            other => return Err(unexpected(other)),
        }
        match ptrace::position(tid)? {
            Position::Entry(libc::SYS_write, [fd, address, length, ..])
                if fd as i32 == -1 && length > 0 =>
            {
                let bytes = remote::bytes(tid, address, length);
                name = Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            Position::Exit(_) if name.is_some() => return Ok(name),
            _ => {}
        }
    }
}

/// Counts the instructions up to the mark that comes next, which is not made yet then.
fn steps_to_next_mark(tid: i32) -> io::Result<Steps> {
    let mut steps = Steps::default();
    let mut at = ptrace::registers(tid)?;
    loop {
        let is_syscall = is_syscall(tid, &at)?;
        if is_syscall && is_mark(&at) {
            return Ok(steps);
        }
        ptrace::step(tid)?;
        expect_trap(ptrace::wait()?)?;
        let before = std::mem::replace(&mut at, ptrace::registers(tid)?);
        // One that repeats itself stops after each time.
        if at.rip != before.rip {
            steps.addresses.push(before.rip);
            steps.syscalls += u64::from(is_syscall);
        }
    }
}

/// Whether the next instruction is a system call.
fn is_syscall(tid: i32, at: &Registers) -> io::Result<bool> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    Ok(remote::bytes(tid, at.rip, 2) == SYSCALL)
}

fn is_mark(at: &Registers) -> bool {
    at.rax as i64 == libc::SYS_write && at.rdi as i32 == -1
}

fn expect_trap(stop: Option<(i32, Stop)>) -> io::Result<()> {
    match stop {
        Some((_, Stop::Signal(libc::SIGTRAP))) => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(stop: Option<(i32, Stop)>) -> io::Error {
    io::Error::other(format!("the program that is counted stopped: {stop:?}"))
}
