//! The commands as a kernel without the ioctl takes them: by `write()`.
//!
//! The floors above describe a command by object, method and attributes, whatever the kernel. Here
//! that becomes the written command of the same meaning: its structure, with the driver's request
//! behind it, and one buffer for both answers. A kernel is asked this way, and then always, when it does
//! not know the ioctl that makes a context.

mod attributes;
mod context;
mod destroy;
mod message;
mod queues;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

use rdmacm_kernel_abi::uverbs::{self, ioctl};

use crate::sys::{IoctlCommand, Kernel};

use attributes::Attributes;

pub(super) use context::get_context;
pub(super) use message::Message;

/// Carries a command out that is described for the ioctl.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for a command, or a part of one, that cannot be written.
pub(super) fn carry_out(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    command: IoctlCommand<'_, '_>,
) -> io::Result<()> {
    use ioctl::object;
    let to = Destination { kernel, fd };
    let attributes = Attributes::new(command.attrs);
    match (command.object, command.method) {
        (object::DEVICE, ioctl::device::QUERY_PORT) => context::query_port(to, attributes),
        (object::CQ, ioctl::cq::CREATE) => queues::create_cq(to, attributes),
        (object::QP, ioctl::qp::CREATE) => queues::create_qp(to, attributes),
        (object::SRQ, ioctl::srq::CREATE) => queues::create_srq(to, attributes),
        (object::CQ, ioctl::cq::DESTROY) => destroy::cq(to, attributes),
        (object::QP, ioctl::qp::DESTROY) => destroy::qp(to, attributes),
        (object::SRQ, ioctl::srq::DESTROY) => destroy::srq(to, attributes),
        (object, method) => match destroy::command_without_answer(object, method) {
            Some(command) => destroy::without_answer(to, attributes, command),
            None => Err(cannot_be_written()),
        },
    }
}

/// Where a command goes.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    pub kernel: &'a dyn Kernel,
    pub fd: BorrowedFd<'a>,
}

/// The refusal of what this form has no room for.
fn cannot_be_written() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the kernel takes the device's commands by write() only, which cannot carry this one",
    )
}

/// The number of an extended command.
fn extended(command: uverbs::ExCommand) -> uverbs::Command {
    uverbs::Command(command.0 | uverbs::CMD_FLAG_EXTENDED)
}
