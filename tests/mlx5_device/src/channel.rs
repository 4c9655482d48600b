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
    /// The program's end once more, for taking events back.
    reader: OwnedFd,
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
        let reader = theirs.try_clone().map_err(|_| libc::EMFILE)?;
        let identity = identity(theirs.as_raw_fd()).ok_or(libc::EBADF)?;
        let channel = Self {
            file,
            writer,
            reader,
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
        let mut byte = 0u8;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: room for one byte.
        let read = unsafe { libc::recv(self.reader.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        read < 0 && self.waiting.is_empty()
    }

    /// Takes back the events of an object that begin with its name. Returns how many those were.
    pub(crate) fn take_back(&mut self, name: u64) -> u32 {
        let mut kept = Vec::new();
        let mut taken = 0;
        let mut event = [0u8; 16];
        loop {
            let (start, fd) = (event.as_mut_ptr().cast(), self.reader.as_raw_fd());
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
