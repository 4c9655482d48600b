//! Descriptors that events are read from.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::world::Outcome;

/// A stream of events: a pair of sockets that keep messages apart. One end is the program's.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Who opened it.
    pub(crate) file: u32,
    writer: OwnedFd,
    /// Which file the program's end is, however often it is duplicated.
    identity: (u64, u64),
    /// Events that found no room.
    waiting: VecDeque<Vec<u8>>,
}

impl Channel {
    /// A channel, and the program's end of it.
    pub(crate) fn new(file: u32) -> Outcome<(Self, OwnedFd)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(last_errno());
        }
        // SAFETY: both were made just now, and nobody else has them.
        let [theirs, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let identity = identity(theirs.as_raw_fd()).ok_or(libc::EBADF)?;
        let channel = Self {
            file,
            writer,
            identity,
            waiting: VecDeque::new(),
        };
        Ok((channel, theirs))
    }

    /// Whether a descriptor of the program's is of this channel.
    pub(crate) fn is(&self, fd: RawFd) -> bool {
        identity(fd) == Some(self.identity)
    }

    pub(crate) fn send(&mut self, event: &[u8]) {
        self.waiting.push_back(event.to_vec());
        self.flush();
    }

    /// Hands on what found no room before.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.waiting.front() {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let (start, length) = (event.as_ptr().cast(), event.len());
            // SAFETY: the bytes are ours.
            if unsafe { libc::send(self.writer.as_raw_fd(), start, length, flags) } < 0 {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Whether the program has read all events.
    pub(crate) fn is_empty(&self) -> bool {
        let mut unread = 0;
        // SAFETY: room for the one number that the request answers.
        let asked =
            unsafe { libc::ioctl(self.writer.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
        asked == 0 && unread == 0 && self.waiting.is_empty()
    }

    /// Whether the program has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.writer.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one record.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents & libc::POLLHUP != 0
    }

    /// A descriptor of the program's for this channel.
    fn reader(&self) -> Option<RawFd> {
        // Descriptors are small numbers.
        (0..4096).find(|fd| self.is(*fd))
    }

    /// Takes back the events of an object that begin with its name. Returns how many those were.
    pub(crate) fn take_back(&mut self, name: u64) -> u32 {
        let mut kept = Vec::new();
        let mut taken = 0;
        let mut event = [0u8; 16];
        let reader = self.reader();
        while let Some(fd) = reader {
            let start = event.as_mut_ptr().cast();
            // SAFETY: room for sixteen bytes.
            let length = unsafe { libc::recv(fd, start, event.len(), libc::MSG_DONTWAIT) };
            if length <= 0 {
                break;
            }
            kept.push(event[..length as usize].to_vec());
        }
        kept.extend(self.waiting.drain(..));
        for event in kept {
            match event.starts_with(&name.to_ne_bytes()) {
                true => taken += 1,
                false => self.waiting.push_back(event),
            }
        }
        self.flush();
        taken
    }
}

fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
}

pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
