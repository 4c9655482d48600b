//! The one door to the operating system.
//!
//! Everything the crate asks of the kernel goes through [`Kernel`]: open, the two command forms
//! (`write()` and `ioctl()`), read, mmap, poll, netlink and sysfs. [`linux`] is the real one, made
//! of `libc` symbols. Tests put `twin` in its place, which records the calls, answers them from a
//! script, and fails the n-th on request; fuzz targets put `hostile` there, which answers anything.
//!
//! Commands are described by slices, not by pointers: the pointers that the kernel's structures
//! contain are filled in here, so that the floors above need no `unsafe` to send a command.
//!
//! Apart from the kernel there is the system's name resolver, [`resolve_name`].

mod alarm;
mod fork;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod linux;
mod local_service;
mod mapping;
mod readiness;
mod resolver;
mod udp;
mod wait;
mod wake;

#[cfg(test)]
pub(crate) mod replay;
#[cfg(test)]
pub(crate) mod twin;

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFd;
use rdmacm_kernel_abi::uverbs;

pub(crate) use alarm::Alarm;
pub(crate) use fork::{NO_GENERATION, fork_generation, generation, is_inherited};
pub(crate) use linux::Linux;
pub(crate) use local_service::{Absence, LocalService, Question};
pub(crate) use mapping::{Mapping, Memory, page_size};
pub(crate) use readiness::{Readable, Readiness};
pub(crate) use resolver::{NameQuery, Resolved, ResolverError, resolve_name};
pub(crate) use udp::Udp;
pub(crate) use wait::{Deadline, wait_readable};
pub(crate) use wake::Wake;

/// A command that is sent with `write()`: header and body in one piece, with up to one buffer for
/// the kernel's answer and one buffer of further input.
pub(crate) struct WriteCommand<'a> {
    /// Header and body.
    pub request: &'a mut [u8],
    /// Offset in `request` of the `u64` that holds the address of the response, and the response.
    pub response: Option<(usize, &'a mut [u8])>,
    /// Offset in `request` of a `u64` that holds the address of more input, and that input.
    pub indirect: Option<(usize, &'a [u8])>,
    /// Offset in the response of the number, a `u32`, of a descriptor that the command makes, and
    /// where the descriptor goes.
    pub new_fd: Option<(usize, &'a mut Option<OwnedFd>)>,
}

/// Bytes of a doorbell: header and body of POST_SEND.
pub(crate) const DOORBELL_LENGTH: usize =
    size_of::<uverbs::CmdHeader>() + size_of::<uverbs::PostSend>();

/// A command that is sent with `write()` again and again, as it is.
pub(crate) trait DoorbellCommand: Send + Sync + fmt::Debug {
    /// Sends it once, and returns what `write()` did: [`DOORBELL_LENGTH`], or else [`doorbell_refusal`]
    /// tells why not.
    fn send(&self, fd: BorrowedFd<'_>) -> isize;
}

/// Why a doorbell was refused, given what [`DoorbellCommand::send`] just returned.
#[cold]
pub(crate) fn doorbell_refusal(written: isize) -> i32 {
    match written {
        -1 => Errno::last_raw(),
        // The command was not carried out, whatever the count says.
        _ => libc::ENODATA,
    }
}

/// What [`DoorbellCommand::send`] returns of a command that something else than `write()` took.
#[cfg(any(test, fuzzing))]
fn doorbell_answer(taken: io::Result<()>) -> isize {
    match taken {
        Ok(()) => DOORBELL_LENGTH as isize,
        Err(error) => {
            Errno::set_raw(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    }
}

/// One attribute of an ioctl command.
pub(crate) enum Value<'a> {
    /// Input bytes (up to eight of them travel inside the attribute itself).
    In(&'a [u8]),
    /// Room for output bytes.
    Out(&'a mut [u8]),
    /// Room for output bytes of a driver that takes its address for input.
    AddressOf(&'a mut [u8]),
    /// An existing object.
    Handle(u32),
    /// An existing file descriptor.
    Fd(BorrowedFd<'a>),
    /// An object that the command makes.
    NewHandle(&'a mut u32),
    /// A file descriptor that the command makes.
    NewFd(&'a mut Option<OwnedFd>),
}

/// An attribute's number with its value.
pub(crate) struct Attr<'a> {
    /// The attribute's id within the method.
    pub id: u16,
    /// Its value.
    pub value: Value<'a>,
}

impl<'a> Attr<'a> {
    pub(crate) fn new(id: u16, value: Value<'a>) -> Self {
        Self { id, value }
    }
}

/// A command in the uverbs ioctl form.
pub(crate) struct IoctlCommand<'c, 'a> {
    /// Object type, e.g. a queue pair.
    pub object: u16,
    /// Method of the object.
    pub method: u16,
    /// The device's driver, which the kernel compares with the device.
    pub driver_id: u32,
    /// At most [`MAX_ATTRS`].
    pub attrs: &'c mut [Attr<'a>],
}

/// More attributes than this has no command of the crate.
pub(crate) const MAX_ATTRS: usize = 20;

/// What memory of a device is mapped for. Drivers refuse to map registers for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapFor {
    ReadingAndWriting,
    Writing,
}

/// What the kernel does for us.
pub(crate) trait Kernel: Send + Sync + fmt::Debug {
    /// Opens a device node for reading and writing, non-blocking and close-on-exec.
    fn open(&self, path: &Path) -> io::Result<OwnedFd>;

    /// The device number of an open character device; `None` when it is something else.
    fn device_number(&self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>>;

    /// Sends a command with `write()`. A short count is an error.
    fn write_command(&self, fd: BorrowedFd<'_>, command: WriteCommand<'_>) -> io::Result<()>;

    /// Makes a doorbell of a command. The address of the kernel's answer of four bytes, which nobody
    /// reads, is put in as a `u64` at the offset `answer_at`.
    fn doorbell(
        self: Arc<Self>,
        request: [u8; DOORBELL_LENGTH],
        answer_at: usize,
    ) -> Box<dyn DoorbellCommand>;

    /// Sends a uverbs command with `ioctl()`.
    fn ioctl_command(&self, fd: BorrowedFd<'_>, command: IoctlCommand<'_, '_>) -> io::Result<()>;

    /// Reads an event record.
    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize>;

    /// Makes reads from a descriptor that the kernel made return `EAGAIN` instead of waiting.
    fn set_nonblocking(&self, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Waits until one of the descriptors has something to report, for ever without a timeout. An
    /// interrupted wait is `EINTR`.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()>;

    /// Maps `length` bytes of a device at `offset`, shared.
    fn map_device(
        &self,
        fd: BorrowedFd<'_>,
        length: usize,
        offset: u64,
        purpose: MapFor,
    ) -> io::Result<NonNull<u8>>;

    /// Maps fresh zeroed pages that no other allocation shares.
    fn map_memory(&self, length: usize) -> io::Result<NonNull<u8>>;

    /// Gives a mapping back.
    ///
    /// # Safety
    ///
    /// `address` and `length` must be those of one mapping made by this object, and nothing may
    /// use it any more.
    unsafe fn unmap(&self, address: NonNull<u8>, length: usize);

    /// Sends RDMA netlink requests, `count` of them in one piece, and hands each payload of the
    /// answers to `each`, as (message type, attributes). The first refusal ends it.
    fn netlink(
        &self,
        requests: &[u8],
        count: usize,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()>;

    /// The text of a sysfs file, trimmed.
    fn read_file(&self, path: &Path) -> io::Result<String>;

    /// Where a symbolic link of sysfs leads.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names in a sysfs directory.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Asks a service of this machine and returns its whole answer. Takes no longer than the
    /// question says.
    fn ask_service(
        &self,
        service: LocalService<'_>,
        question: &Question<'_>,
    ) -> io::Result<Vec<u8>>;

    /// The limit of locked memory, in bytes; `None` when there is none.
    fn locked_memory_limit(&self) -> Option<u64>;
}

/// The running kernel.
pub(crate) fn running_kernel() -> Arc<dyn Kernel> {
    Arc::new(Linux)
}

/// Takes over a descriptor whose number came in the answer to a command.
///
/// # Safety
///
/// The kernel must have made the descriptor for this process in that command, and nobody else may
/// have taken it over.
pub(crate) unsafe fn adopt_fd(number: u64) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the caller vouches that the descriptor is open and nobody else's; it is not negative.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
