//! Writing without a copy.

use std::io;
use std::ops::RangeBounds;

use super::options::Side;
use super::stream::RdmaStream;
use crate::verbs::RegisteredBuffer;

impl RdmaStream {
    /// Registers memory of `length` bytes that can be written to streams without a copy: to this one,
    /// and to others of the process on the same device.
    ///
    /// ```no_run
    /// # fn example(stream: &rdmacm::RdmaStream) -> std::io::Result<()> {
    /// let mut buffer = stream.register(1 << 20)?;
    /// buffer.as_mut_slice()?.fill(7);
    /// stream.write_all_registered(&buffer, ..)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` before the connection is made; too little memory, and more than the process may
    /// lock.
    pub fn register(&self, length: usize) -> io::Result<RegisteredBuffer> {
        self.core().register(length)
    }

    /// As [`Write::write`](std::io::Write::write), out of registered memory and without a copy. The
    /// device reads what was written after this has returned: until it has
    /// ([`RdmaStream::wait_sent`]), the memory cannot be changed. It can be dropped.
    ///
    /// It pays for much data at a time. Of what goes into one request
    /// ([`StreamSettings::max_inline`](super::StreamSettings::max_inline)) a copy is cheaper.
    ///
    /// # Errors
    ///
    /// As writing; `InvalidInput` for ranges beyond the memory, and memory that was registered by a
    /// stream on another device.
    #[doc(alias("rsend", "rwrite", "MSG_ZEROCOPY"))]
    pub fn write_registered(
        &self,
        buffer: &RegisteredBuffer,
        range: impl RangeBounds<usize>,
    ) -> io::Result<usize> {
        let range = buffer.range(range)?;
        self.core().run(Side::Write, |link| {
            link.write_registered(buffer, range.clone())
        })
    }

    /// Writes all of a range of registered memory, and waits until the device has read it. The memory
    /// can be changed then.
    ///
    /// # Errors
    ///
    /// As [`RdmaStream::write_registered`]. How much was written is not told.
    pub fn write_all_registered(
        &self,
        buffer: &RegisteredBuffer,
        range: impl RangeBounds<usize>,
    ) -> io::Result<()> {
        let mut range = buffer.range(range)?;
        while !range.is_empty() {
            range.start += self.write_registered(buffer, range.clone())?;
        }
        self.wait_sent(buffer)
    }

    /// Waits until the device has read all that was written of registered memory to this stream; over
    /// RoCE the peer's device has it then. Waits as writing does.
    ///
    /// # Errors
    ///
    /// How the connection was lost before all was read that was written of any registered memory; the
    /// device reads no more then, and the memory can be changed. `WouldBlock` and `TimedOut`, when it is still read.
    pub fn wait_sent(&self, buffer: &RegisteredBuffer) -> io::Result<()> {
        self.core().run(Side::Sent, |link| link.is_sent(buffer))
    }
}
