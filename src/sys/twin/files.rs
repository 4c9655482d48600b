//! The descriptors that the twin hands out.
//!
//! Each is one end of a socket pair, so that it can be polled, closed and passed on as any
//! descriptor. The twin keeps the other end, and writes a byte there to make the descriptor
//! readable.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process;
use std::sync::Arc;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use rdmacm_kernel_abi::ucma;
use rdmacm_kernel_abi::uverbs::AsyncEventDesc;

use super::Outcome;

/// Names a file for as long as the twin lives; numbers of descriptors are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(usize);

/// What a descriptor is open on.
#[derive(Debug)]
pub(super) enum Kind {
    /// The connection manager, with the events that wait.
    Cm(VecDeque<QueuedEvent>),
    /// A device, with its index, and whether its context was made.
    Uverbs { device: u32, has_context: bool },
    /// A device that is a card of its own, with its index.
    Card {
        device: u32,
        file: Arc<rdmacm_mlx5_device::File>,
    },
    /// A completion channel, with the tokens that wait.
    Completions(VecDeque<u64>),
    /// Asynchronous events of a device's file, those that wait.
    AsyncEvents {
        device_file: FileId,
        waiting: VecDeque<AsyncEventDesc>,
    },
}

/// An event that nobody has read yet.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    /// Kernel handle of the id that the event is charged to.
    pub owner: u32,
    /// The new id that a connection request brings.
    pub child: Option<u32>,
    /// The multicast group that it is about.
    pub group: Option<u32>,
    pub record: ucma::EventResp,
}

#[derive(Debug)]
struct File {
    /// The descriptor's number in the process.
    number: RawFd,
    /// What tells it from another descriptor that has its number later.
    inode: u64,
    /// The twin's end, until the program has closed the other.
    ours: Option<fs::File>,
    is_readable: bool,
    /// Whether a read that finds nothing returns.
    is_nonblocking: bool,
    /// The process that opened it.
    opener: u32,
    kind: Kind,
}

#[derive(Debug, Default)]
pub(super) struct Files(Vec<File>);

impl Files {
    /// Makes a descriptor.
    pub(super) fn open(&mut self, kind: Kind) -> io::Result<(FileId, OwnedFd)> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
        let number = theirs.as_raw_fd();
        let ours = Some(fs::File::from(ours));
        self.0.push(File {
            number,
            inode: inode_of(number).unwrap_or(0),
            ours,
            is_readable: false,
            is_nonblocking: false,
            opener: process::id(),
            kind,
        });
        Ok((FileId(self.0.len() - 1), theirs))
    }

    /// The open file behind a descriptor.
    pub(super) fn find(&self, fd: BorrowedFd<'_>) -> Outcome<FileId> {
        self.find_number(fd.as_raw_fd())
    }

    pub(super) fn find_number(&self, number: RawFd) -> Outcome<FileId> {
        let is_it = |file: &File| file.ours.is_some() && file.number == number;
        self.0.iter().position(is_it).map(FileId).ok_or(libc::EBADF)
    }

    /// Refuses processes other than the opener, as the kernel does with written commands.
    pub(super) fn check_opener(&self, file: FileId) -> Outcome {
        match self.0[file.0].opener == process::id() {
            true => Ok(()),
            false => Err(libc::EACCES),
        }
    }

    pub(super) fn set_nonblocking(&mut self, file: FileId) {
        self.0[file.0].is_nonblocking = true;
    }

    /// Whether a read that finds nothing would wait for ever.
    pub(super) fn is_blocking(&self, file: FileId) -> bool {
        !self.0[file.0].is_nonblocking
    }

    pub(super) fn kind(&self, file: FileId) -> &Kind {
        &self.0[file.0].kind
    }

    pub(super) fn kind_mut(&mut self, file: FileId) -> &mut Kind {
        &mut self.0[file.0].kind
    }

    /// The events that wait on a connection manager file.
    pub(super) fn events(&mut self, file: FileId) -> Outcome<&mut VecDeque<QueuedEvent>> {
        match self.kind_mut(file) {
            Kind::Cm(events) => Ok(events),
            _ => Err(libc::EINVAL),
        }
    }

    /// Makes a descriptor readable, if it is not.
    pub(super) fn signal(&mut self, file: FileId) {
        let file = &mut self.0[file.0];
        if let (Some(ours), false) = (&mut file.ours, file.is_readable) {
            file.is_readable = ours.write(&[1]).is_ok();
        }
    }

    /// Whether a descriptor is readable.
    #[cfg(miri)]
    pub(super) fn is_readable(&self, fd: BorrowedFd<'_>) -> bool {
        self.find(fd).is_ok_and(|file| self.0[file.0].is_readable)
    }

    /// Makes a descriptor unreadable.
    pub(super) fn quiet(&mut self, file: FileId, fd: BorrowedFd<'_>) -> Outcome {
        if std::mem::take(&mut self.0[file.0].is_readable) {
            nix::unistd::read(fd, &mut [0]).map_err(|errno| errno as i32)?;
        }
        Ok(())
    }

    /// The files that the program has closed since the last call. What a forked child closes is
    /// still open in the parent.
    pub(super) fn take_closed(&mut self) -> Vec<FileId> {
        let mut closed = Vec::new();
        for (index, file) in self.0.iter_mut().enumerate() {
            let is_ours = file.opener == process::id();
            if file.ours.is_some() && is_ours && inode_of(file.number) != Some(file.inode) {
                file.ours = None;
                closed.push(FileId(index));
            }
        }
        closed
    }

    /// The streams of asynchronous events that were ever opened, of the wanted files of devices.
    pub(super) fn async_files(&self, is_wanted: impl Fn(FileId) -> bool) -> Vec<FileId> {
        let files = self.0.iter().enumerate();
        let wanted = files.filter(|(_, file)| {
            matches!(file.kind, Kind::AsyncEvents { device_file, .. } if is_wanted(device_file))
        });
        wanted.map(|(index, _)| FileId(index)).collect()
    }

    pub(super) fn open_count(&self) -> usize {
        self.0.iter().filter(|file| file.ours.is_some()).count()
    }
}

/// What is open under a number. Not told by end-of-file at the twin's end: children that other
/// tests fork hold copies of the descriptor for a while.
fn inode_of(number: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes the record, or fails where nothing is open under the number.
    let outcome = unsafe { libc::fstat(number, stat.as_mut_ptr()) };
    // SAFETY: after success the record is written.
    (outcome == 0).then(|| unsafe { stat.assume_init() }.st_ino)
}
