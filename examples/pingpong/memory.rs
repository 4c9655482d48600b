//! The one message that goes to and fro: it is received to where it is sent from.

use nix::unistd::{SysconfVar, sysconf};
use rdmacm::{Access, Buffer, Pd, RequestBuilder, Segment};

use crate::report::Result;

/// What the message is full of at first.
const FILLING: u8 = 0x7b;

/// What the client puts at the beginning of each page when the data is to be checked.
const MARK: u8 = 0;

/// The message, with room for the header that datagrams come with.
pub struct Memory {
    buffer: Buffer,
    header: usize,
    size: usize,
    page: usize,
}

impl Memory {
    /// Room for messages of `size` bytes, with `header` bytes in front of each that is received.
    pub fn new(pd: &Pd, header: usize, size: u32, access: Access) -> Result<Self> {
        let size = usize::try_from(size)?;
        let mut buffer = pd.alloc(header + size, access)?;
        buffer.write(0, &vec![FILLING; header + size])?;
        let page = sysconf(SysconfVar::PAGE_SIZE)?.ok_or("the system has no page size")?;
        Ok(Self {
            buffer,
            header,
            size,
            page: usize::try_from(page)?.max(1),
        })
    }

    /// Bytes of a message.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where messages are received.
    pub fn inbox(&self) -> Result<Segment> {
        Ok(self.buffer.slice(..)?)
    }

    /// Gives a request the message to send: inline, if the queue pair takes so much. What is inline
    /// travels in the request itself, and the device need not fetch it.
    pub fn attach(&self, request: RequestBuilder<'_, '_>, max_inline: u32) -> Result<()> {
        if self.size <= max_inline as usize {
            request.inline(&self.buffer.read_vec(self.header, self.size)?)?;
        } else {
            request.from(&[self.buffer.slice(self.header..)?])?;
        }
        Ok(())
    }

    /// Marks each page of the message.
    pub fn mark(&mut self) -> Result<()> {
        for at in (0..self.size).step_by(self.page) {
            self.buffer.write(self.header + at, &[MARK])?;
        }
        Ok(())
    }

    /// The pages of the message that are without their mark.
    pub fn pages_without_mark(&self) -> Result<Vec<usize>> {
        let mut pages = Vec::new();
        for at in (0..self.size).step_by(self.page) {
            if self.buffer.read_vec(self.header + at, 1)? != [MARK] {
                pages.push(at / self.page);
            }
        }
        Ok(pages)
    }
}
