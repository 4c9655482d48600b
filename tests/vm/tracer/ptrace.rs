//! The system calls that a tracer is made of.
//!
//! Tracing is a matter of threads: a tracee belongs to the thread that started it, and only that
//! thread may use this module on it.

use std::io;
use std::mem::{MaybeUninit, offset_of};

/// What `waitpid` said of a thread of the tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the entry or the exit of a system call.
    Syscall,
    /// At an event such as `PTRACE_EVENT_EXEC`.
    Event(i32),
    /// Before the delivery of a signal.
    Signal(i32),
    /// Gone, with this wait status.
    Ended(i32),
}

/// Where in a system call a stopped thread is.
pub enum Position {
    /// Before it, with its number and arguments.
    Entry(i64, [u64; 6]),
    /// After it, with its result: a negative errno on failure.
    Exit(i64),
    /// In none.
    Outside,
}

/// Makes the calling process a tracee of its parent. Safe between fork and exec.
pub fn trace_me() -> io::Result<()> {
    request(libc::PTRACE_TRACEME, 0, 0, 0)
}

/// Makes children and threads of the tracee tracees as well, and lets none outlive the tracer.
pub fn follow_all(tid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Stops the tracee alone at its system calls; its threads and children go their own ways.
pub fn follow_alone(tid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Keeps this thread, and the processes that it starts, on the processor it is on. Each request to
/// a tracee on another one would wait until that one has come to rest.
pub fn stay_on_this_processor() {
    // SAFETY: the set is made of integers, for which zero is valid; both calls take it as it is.
    // Where they fail, tracing is slower.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Waits for any tracee of this thread; `None` when there are no more.
pub fn wait() -> io::Result<Option<(i32, Stop)>> {
    wait_with(0)
}

/// As [`wait`], but returns at once when no tracee has stopped.
pub fn try_wait() -> io::Result<Option<(i32, Stop)>> {
    wait_with(libc::WNOHANG)
}

fn wait_with(flags: i32) -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    // Without __WNOTHREAD, children of other threads would be taken away from them.
    let flags = flags | libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: `status` lives across the call.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        if tid > 0 {
            return Ok(Some((tid, stop(status))));
        }
        if tid == 0 {
            return Ok(None);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

fn stop(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        (signal, 0) => Stop::Signal(signal),
        (_, event) => Stop::Event(event),
    }
}

/// Lets a stopped thread run to its next system call, with a signal if one is to be delivered.
pub fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Lets a stopped thread execute one instruction.
pub fn step(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, 0)
}

/// A thread's registers.
pub type Registers = libc::user_regs_struct;

/// The registers of a stopped thread.
pub fn registers(tid: i32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    request(
        libc::PTRACE_GETREGS,
        tid,
        0,
        registers.as_mut_ptr().expose_provenance(),
    )?;
    // SAFETY: it is made of integers, which the zeros and the kernel both leave valid.
    Ok(unsafe { registers.assume_init() })
}

/// Where the thread, stopped at a system call, is.
pub fn position(tid: i32) -> io::Result<Position> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of_val(&info);
    request(
        libc::PTRACE_GET_SYSCALL_INFO,
        tid,
        size,
        info.as_mut_ptr().expose_provenance(),
    )?;
    // SAFETY: it is made of integers, which the zeros and the kernel both leave valid.
    let info = unsafe { info.assume_init() };
    match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says that the kernel filled in this member.
            let entry = unsafe { info.u.entry };
            Ok(Position::Entry(entry.nr as i64, entry.args))
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: as above.
            Ok(Position::Exit(unsafe { info.u.exit.sval }))
        }
        _ => Ok(Position::Outside),
    }
}

/// The number that comes with an event: a new thread, or the former id of one that did exec.
pub fn event_message(tid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    request(
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        (&raw mut message).expose_provenance(),
    )?;
    Ok(message as i32)
}

/// At the entry: makes the system call one that does not exist, so that it does nothing.
pub fn skip_call(tid: i32) -> io::Result<()> {
    set_register(tid, offset_of!(libc::user_regs_struct, orig_rax), -1)
}

/// At the exit: sets what the system call returns.
pub fn set_result(tid: i32, result: i64) -> io::Result<()> {
    set_register(tid, offset_of!(libc::user_regs_struct, rax), result)
}

fn set_register(tid: i32, offset: usize, value: i64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, tid, offset, value as usize)
}

/// Kills a process; one that is gone already is no error.
pub fn kill(pid: i32) {
    // SAFETY: sends a signal, and touches no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

fn request(request: u32, tid: i32, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests of this module store into `data` only, which then is the exposed
    // address of a variable of the size the request asks for. All others change the tracee.
    match unsafe { libc::ptrace(request, tid, addr, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
