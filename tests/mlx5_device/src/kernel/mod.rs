//! The kernel's side: commands of one open file, carried out or refused.

mod command;
mod context;
mod cq;
mod doorbell_page;
mod memory_region;
mod method;
mod object;
mod packet;
mod port;
mod qp;
mod srq;
mod transition;

pub(crate) use doorbell_page::copy_deadline;
pub(crate) use port::{LID, mac_of};
pub(crate) use qp::is_multicast;

use std::borrow::Cow;

use zerocopy::FromBytes;

use crate::channel::Channel;
use crate::memory::Memory;
use crate::world::{FileId, Object, Outcome, World};

/// The driver's part of a command: what the program says, and how much room there is for an answer.
pub(super) struct Driver<'a> {
    pub(super) request: Cow<'a, [u8]>,
    pub(super) room: usize,
    pub(super) answer: Vec<u8>,
}

impl Driver<'_> {
    /// The request as the kernel knows it: bytes that it does not know must be zero, bytes that
    /// are missing are.
    pub(super) fn parse<T: FromBytes>(&self, least: usize) -> Outcome<T> {
        let known = size_of::<T>();
        if self.request.len() < least {
            return Err(libc::EINVAL);
        }
        let (start, rest) = self.request.split_at(self.request.len().min(known));
        if rest.iter().any(|byte| *byte != 0) {
            return Err(libc::EOPNOTSUPP);
        }
        let mut bytes = start.to_vec();
        bytes.resize(known, 0);
        T::read_from_bytes(&bytes).map_err(|_| libc::EINVAL)
    }
}

/// The number that means none where the program gives numbers of its own.
const DEFAULT_INDEX: u32 = 0xff_ffff;

impl World {
    /// The memory of a queue, which the kernel pins.
    fn pin(&mut self, what: &str, address: u64, length: u64, align: u64) -> Outcome<Memory> {
        let memory = Memory::new(address, length);
        if !memory.is_mapped() {
            return Err(libc::EFAULT);
        }
        if !address.is_multiple_of(align) {
            self.violation(format!("{what} at {address:#x} is not aligned to {align}"));
            return Err(libc::EINVAL);
        }
        Ok(memory)
    }

    /// A doorbell record. The kernel pins its page; the card leaves out the low bits of its address.
    fn pin_record(&mut self, address: u64) -> Outcome<Memory> {
        self.pin("a doorbell record", address, 8, 8)
    }

    /// Whether the number that the program gives an object can be one.
    fn check_index(&self, index: u32) -> Outcome {
        let fits = match self.config.cqe_version {
            0 => index == DEFAULT_INDEX,
            _ => index < DEFAULT_INDEX,
        };
        if fits { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Completions name queues by their numbers alone, so that these must differ.
    fn check_index_is_free(&mut self, file: FileId, index: u32) {
        let used = |qp: &crate::world::Qp| (qp.file, qp.index) == (file, index);
        if self.config.cqe_version != 0 && self.qps.values().any(used) {
            self.violation(format!("two queue pairs are given the number {index:#x}"));
        }
    }

    fn check_context(&self, file: FileId) -> Outcome {
        let open = self.files.get(&file).ok_or(libc::EBADF)?;
        open.context.as_ref().map(drop).ok_or(libc::EINVAL)
    }

    /// Makes a channel; the program's descriptor is the answer.
    fn new_channel(&mut self, file: FileId) -> Outcome<(u32, i32)> {
        use std::os::fd::IntoRawFd;
        let (channel, fd) = Channel::new(file)?;
        let id = self.next_number(0);
        self.channels.insert(id, channel);
        Ok((id, fd.into_raw_fd()))
    }

    /// The channel that a descriptor of the program's is of.
    fn channel_of(&self, fd: i32) -> Outcome<u32> {
        let found = self.channels.iter().find(|(_, channel)| channel.is(fd));
        found.map(|(id, _)| *id).ok_or(libc::EBADF)
    }

    /// Where the events of a new object go: to the file that it names, else to the first one.
    fn async_channel(&self, file: FileId, named: Option<u32>) -> Outcome<Option<u32>> {
        match named {
            Some(fd) => self.channel_of(fd as i32).map(Some),
            None => Ok(self.files[&file].async_channel),
        }
    }

    /// Takes the events of an object back that nobody has read. Returns how many were read.
    fn take_back(&mut self, channel: Option<u32>, name: u64, sent: u32) -> u32 {
        let channel = channel.and_then(|id| self.channels.get_mut(&id));
        sent - channel
            .map_or(0, |channel| channel.take_back(name))
            .min(sent)
    }

    /// The file was closed: the kernel takes back what is left, in an order that works.
    pub(crate) fn close(&mut self, file: FileId) {
        let rank = |object: &Object| match object {
            Object::Qp(_) => 0,
            Object::Srq(_) | Object::Ah { .. } | Object::Mw(_) => 1,
            Object::Cq(_) | Object::Mr(_) => 2,
            Object::Uar(_) | Object::Pd(_) => 3,
        };
        let mut left: Vec<_> = self.objects.iter().filter(|(id, _)| id.0 == file).collect();
        left.sort_by_key(|(_, object)| rank(object));
        let handles: Vec<u32> = left.into_iter().map(|(id, _)| id.1).collect();
        for handle in handles {
            // What is in the way was taken back before.
            let _ = self.destroy(file, handle);
        }
        self.uars.retain(|_, uar| {
            let is_left = uar.file != file;
            if !is_left {
                self.spare_pages.extend(uar.page);
            }
            is_left
        });
        self.channels.retain(|_, channel| channel.file != file);
        self.files.remove(&file);
    }
}
