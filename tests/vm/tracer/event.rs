//! What a trace consists of.

use std::fmt;
use std::io;

use rdmacm_kernel_abi::{ucma, uverbs};

use super::cm::CmCommand;
use super::syscalls;
use super::target::Target;
use super::verbs::{Action, VerbsCommand};

/// One system call of a traced process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Place in the order in which the calls were entered, from 0.
    pub seq: u64,
    /// The call's number.
    pub syscall: i64,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it is about.
    pub kind: Kind,
    /// What it returned; `None` if it never did.
    pub result: Option<Result<i64, i32>>,
    /// Whether the tracer made it fail.
    pub injected: bool,
}

/// What a system call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command to the connection manager.
    Cm(CmCommand),
    /// A command to a verbs device.
    Verbs(VerbsCommand),
    /// Any other call that reaches the RDMA part of the kernel, or netlink.
    Device(Target),
    /// Anything else.
    Other,
}

impl Event {
    /// Whether the call talks to an RDMA device or to netlink: all that can fail because of them.
    /// Closing a file is not among them.
    pub fn is_device(&self) -> bool {
        self.kind != Kind::Other && self.syscall != libc::SYS_close
    }

    /// The command to the connection manager, if it is one.
    pub fn cm(&self) -> Option<&CmCommand> {
        match &self.kind {
            Kind::Cm(command) => Some(command),
            _ => None,
        }
    }

    /// Whether it is this command to the connection manager.
    pub fn is_cm(&self, command: ucma::Command) -> bool {
        self.cm().is_some_and(|given| given.is(command))
    }

    /// The command to a verbs device, if it is one.
    pub fn verbs(&self) -> Option<&VerbsCommand> {
        match &self.kind {
            Kind::Verbs(command) => Some(command),
            _ => None,
        }
    }

    /// Whether it is this command to a verbs device, by `write()` or inside an `ioctl()`. An
    /// extended command's number has its flag set.
    pub fn is_verbs(&self, command: uverbs::Command) -> bool {
        self.verbs().is_some_and(|given| given.is(command))
    }

    /// The handle of the object of this kind that the call made.
    pub fn created(&self, object: u16) -> Option<u32> {
        self.changed(object, Action::Create)
    }

    /// The handle of the object of this kind that the call destroyed.
    pub fn destroyed(&self, object: u16) -> Option<u32> {
        self.changed(object, Action::Destroy)
    }

    fn changed(&self, object: u16, action: Action) -> Option<u32> {
        let command = self.verbs().filter(|_| self.succeeded())?;
        let is_it = command.object == Some(object) && command.action == action;
        command.handle.filter(|_| is_it)
    }

    /// Whether the call returned without an error.
    pub fn succeeded(&self) -> bool {
        matches!(self.result, Some(Ok(_)))
    }

    /// The errno with which the call failed.
    pub fn errno(&self) -> Option<i32> {
        self.result.and_then(Result::err)
    }

    /// Name of the command, or else of the system call.
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Cm(command) => command.name(),
            Kind::Verbs(command) => command.name(),
            Kind::Device(_) | Kind::Other => syscalls::name(self.syscall).into_owned(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} {} {}",
            self.seq,
            self.tid,
            syscalls::name(self.syscall)
        )?;
        match &self.kind {
            Kind::Cm(command) => write!(f, " rdma_cm: {command}")?,
            Kind::Verbs(command) => write!(f, " uverbs: {command}")?,
            Kind::Device(target) if self.syscall == libc::SYS_mmap => {
                write!(
                    f,
                    " {target}: {} bytes at offset {:#x}",
                    self.args[1], self.args[5]
                )?;
            }
            Kind::Device(target) => write!(f, " {target}")?,
            Kind::Other => {}
        }
        match self.result {
            Some(Ok(value)) if value > 0xffff => write!(f, " = {value:#x}")?,
            Some(Ok(value)) => write!(f, " = {value}")?,
            Some(Err(errno)) => write!(f, " = {}", io::Error::from_raw_os_error(errno))?,
            None => f.write_str(" did not return")?,
        }
        f.write_str(if self.injected { " (injected)" } else { "" })
    }
}
