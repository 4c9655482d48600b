//! Writes into each other's memory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use rdmacm::{MappedBuffer, RdmaStream};

use crate::Result;
use crate::measured::{Manner, Measurement, Verification};

/// Bytes that both send over the stream before a measurement. What a side maps before that is known
/// to the other after it.
const GREETING: usize = 16;

/// The offset of the memory that is mapped.
const OFFSET: u64 = 0;

/// The last byte before anything was written: none of the first markers.
const NO_MARKER: u8 = 0xff;

/// How often a marker is looked for before others get the processor.
const LOOKS: u32 = 1000;

/// How often others get it before the stream is asked whether the peer is still there.
const TURNS: u32 = 100;

/// One side of the measurements of a connection.
pub struct Exchange<'a> {
    pub stream: &'a RdmaStream,
    pub manner: Manner,
    /// Whether this side writes first.
    pub is_client: bool,
    pub verification: Option<&'a mut Verification>,
}

impl Exchange<'_> {
    /// Makes a measurement. How long it took.
    pub fn measure(&mut self, measurement: &Measurement) -> Result<Duration> {
        let size = measurement.size;
        let mut inbox = self.map(size)?;
        inbox.write(size as usize - 1, &[NO_MARKER])?;
        self.greet()?;

        let mut outgoing = vec![0; size as usize];
        let mut marker = 0u8;
        let start = Instant::now();
        for _ in 0..measurement.iterations {
            for writes in [self.is_client, !self.is_client] {
                match writes {
                    true => self.write(&mut outgoing, measurement.transfers, marker)?,
                    false => self.await_marker(&inbox, marker)?,
                }
                marker = marker.wrapping_add(1);
            }
        }
        Ok(start.elapsed())
    }

    fn map(&self, size: u32) -> Result<MappedBuffer> {
        self.again(|| self.stream.map(size, OFFSET))
            .map_err(|error| format!("mapping memory: {error}").into())
    }

    /// The client speaks first.
    fn greet(&self) -> Result<()> {
        for sends in [self.is_client, !self.is_client] {
            let mut bytes = [0; GREETING];
            let mut at = 0;
            while at < GREETING {
                let moved = self.again(|| {
                    let mut stream = self.stream;
                    match sends {
                        true => stream.write(&bytes[at..]),
                        false => stream.read(&mut bytes[at..]),
                    }
                })?;
                if moved == 0 {
                    return Err("the peer ended the stream".into());
                }
                at += moved;
            }
        }
        Ok(())
    }

    /// Writes everything so often, and the last time with the marker.
    fn write(&mut self, bytes: &mut [u8], transfers: u32, marker: u8) -> Result<()> {
        let last = bytes.len() - 1;
        // Nobody looks for that one any more.
        bytes[last] = marker.wrapping_sub(1);
        for _ in 1..transfers {
            self.write_once(bytes)?;
        }
        bytes[last] = marker;
        if let Some(verification) = &mut self.verification {
            verification.fill(&mut bytes[..last]);
        }
        self.write_once(bytes)
    }

    fn write_once(&self, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let offset = OFFSET + at as u64;
            let written = self.again(|| self.stream.write_mapped(&bytes[at..], offset));
            match written.map_err(|error| format!("writing: {error}"))? {
                0 => return Err("the peer's memory is too short: was it told another size?".into()),
                length => at += length,
            }
        }
        Ok(())
    }

    /// Looks at the last byte until the marker is there. Then everything before it is as well.
    fn await_marker(&mut self, inbox: &MappedBuffer, marker: u8) -> Result<()> {
        let last = inbox.len() - 1;
        let mut looks = 0u32;
        loop {
            let mut byte = [0];
            inbox.read(last, &mut byte)?;
            if byte == [marker] {
                break;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) {
                thread::yield_now();
            }
            // What is written before the end is there before the end is known.
            if looks.is_multiple_of(LOOKS * TURNS) && self.stream.ready()?.readable {
                inbox.read(last, &mut byte)?;
                if byte != [marker] {
                    return Err("the peer ended the stream".into());
                }
            }
        }
        if let Some(verification) = &mut self.verification {
            let mut bytes = vec![0; last];
            inbox.read(0, &mut bytes)?;
            verification.check(&bytes)?;
        }
        Ok(())
    }

    /// Makes an attempt until it does not have to wait.
    fn again<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.manner.wait(self.stream.as_fd(), PollFlags::POLLIN)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}
