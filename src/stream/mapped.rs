//! Memory that the peer of a stream writes to directly.

use std::io;
use std::sync::{Arc, Weak};

use super::core::Core;
use super::options::Side;
use super::protocol::{Mapping, Place};
use super::stream::RdmaStream;
use crate::error::{Error, ErrorKind};
use crate::verbs::{Access, Buffer};

/// Memory that the peer of a stream may write to, beside the stream
/// ([`RdmaStream::write_mapped`]). The program finds out by the stream that something was written, or
/// by looking.
///
/// Dropping it takes the memory back. The peer is not told: what it writes then ends the connection. It
/// does not keep the stream open.
#[derive(Debug)]
pub struct MappedBuffer {
    buffer: Buffer,
    offset: u64,
    place: Taken,
}

/// A place in the peer's table, until this is dropped.
#[derive(Debug)]
struct Taken {
    index: u16,
    /// The stream is closed with its last handle, which this is not.
    core: Weak<Core>,
}

impl RdmaStream {
    /// Gives the peer memory of `length` bytes to write to, under an offset of the program's choice.
    /// The peer must have places for it ([`StreamSettings::mappings`](super::StreamSettings::mappings)
    /// on its side). It hears of it before it hears what is written to the stream later.
    ///
    /// ```no_run
    /// # fn example(stream: &rdmacm::RdmaStream, peers: &rdmacm::RdmaStream) -> std::io::Result<()> {
    /// let table = stream.map(4096, 0)?;
    /// // The peer:
    /// peers.write_mapped(b"entry", 16)?;
    /// // And later, here:
    /// let mut entry = [0; 5];
    /// table.read(16, &mut entry)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where the peer has no place for it; too little memory here; those of writing.
    #[doc(alias("riomap", "riounmap"))]
    pub fn map(&self, length: u32, offset: u64) -> io::Result<MappedBuffer> {
        let core = self.core();
        // The peer's table is known once the connection is made.
        core.run(Side::Write, |_| Ok(Some(())))?;
        let mapped = MappedBuffer::new(core, length, offset)?;
        core.run(Side::Write, |link| link.map(mapped.mapping()))?;
        Ok(mapped)
    }

    /// Writes into memory that the peer has given ([`RdmaStream::map`] there), and returns how many
    /// bytes: fewer where the peer's memory ends. The peer's program is not told of it, but what is
    /// written to the stream later arrives later.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the peer has given nothing at that offset, or not yet; those of writing.
    #[doc(alias = "riowrite")]
    pub fn write_mapped(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let core = self.core();
        core.run(Side::Write, |link| link.write_mapped(bytes, offset))
    }
}

impl MappedBuffer {
    /// Memory with a place in the peer's table, of which the peer is still to be told.
    pub(crate) fn new(core: &Arc<Core>, length: u32, offset: u64) -> io::Result<Self> {
        let (index, pd) = core.with_link(|link| {
            let pd = link.queues.id.protection_domain()?;
            Ok((link.take_place()?, pd))
        })?;
        let place = Taken {
            index,
            core: Arc::downgrade(core),
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let buffer = pd.alloc(length as usize, access)?;
        Ok(Self {
            buffer,
            offset,
            place,
        })
    }

    /// What the peer is told.
    pub(super) fn mapping(&self) -> (u16, Mapping) {
        let at = self.buffer.remote();
        let place = Place {
            address: at.address,
            rkey: at.rkey,
            length: self.buffer.len() as u32,
        };
        let mapping = Mapping {
            offset: self.offset,
            place,
        };
        (self.place.index, mapping)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The offset that the peer knows the first byte by.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Copies bytes out of it, from `at` on, counted from its first byte. The peer may be writing
    /// them.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> io::Result<()> {
        Ok(self.buffer.read(at, bytes)?)
    }

    /// Copies bytes into it, from `at` on.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        Ok(self.buffer.write(at, bytes)?)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            // A stream that is not connected any more has no use of it.
            let _ = core.with_link(|link| {
                link.give_place_back(self.index);
                Ok(())
            });
        }
    }
}

/// The peer has no place for more mapped memory.
pub(super) fn no_place(places: u16) -> io::Error {
    let text = format!("the peer has {places} places for mapped memory, and all are taken");
    let error = Error::new("map", ErrorKind::InvalidInput, text);
    io::Error::new(io::ErrorKind::OutOfMemory, error)
}
