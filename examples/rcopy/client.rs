//! The side that has the file.

use std::fs::File;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use rdmacm::{RdmaStream, RegisteredBuffer};

use crate::Result;
use crate::args::Copy;
use crate::progress::Progress;
use crate::wire::{self, Command};

/// Bytes that are read and sent at a time.
const PIECE: usize = 1 << 18;

/// Copies a file.
pub fn run(copy: &Copy) -> Result<()> {
    let Copy { source, server, .. } = copy;
    let failed = |error| format!("{}: {error}", source.display());
    let mut file = File::open(source).map_err(failed)?;
    let status = file.metadata().map_err(failed)?;
    let mut stream = RdmaStream::connect((server.as_str(), copy.port))
        .map_err(|error| format!("connecting to {server}: {error}"))?;

    // The words become a line when it ends; meanwhile the terminal shows the progress.
    print!("opening...");
    wire::ask_to_open(&mut stream, &copy.destination, status.mode())?;
    wire::read_answer(&mut stream, Command::Open)?;
    print!("transferring...");
    let start = Instant::now();
    wire::ask_to_write(&mut stream, status.size())?;
    send(&mut file, status.size(), &mut Pieces::new(&stream)?)?;
    let written = wire::read_answer(&mut stream, Command::Write);
    let took = start.elapsed().as_secs_f64();

    print!("closing...");
    wire::ask_to_close(&mut stream)?;
    wire::read_answer(&mut stream, Command::Close)?;
    println!("done");
    // A server that was faster has ended the stream already.
    let _ = stream.shutdown(Shutdown::Both);
    written?;
    let bits = status.size() as f64 * 8.0;
    println!(
        "{} bytes in {took:.2} seconds = {:.2} Gb/sec",
        status.size(),
        bits / took / 1e9
    );
    Ok(())
}

/// Takes a file piece by piece.
trait Sink {
    /// Room for the next piece.
    fn room(&mut self) -> io::Result<&mut [u8]>;

    /// Sends the beginning of what was last given.
    fn send(&mut self, length: usize) -> io::Result<()>;
}

/// Registered memory by turns: the file is read into one piece while the device sends the other, and
/// nothing is copied in between.
struct Pieces<'s> {
    stream: &'s RdmaStream,
    buffers: [RegisteredBuffer; 2],
    turn: usize,
}

impl<'s> Pieces<'s> {
    fn new(stream: &'s RdmaStream) -> io::Result<Self> {
        Ok(Self {
            stream,
            buffers: [stream.register(PIECE)?, stream.register(PIECE)?],
            turn: 0,
        })
    }
}

impl Sink for Pieces<'_> {
    fn room(&mut self) -> io::Result<&mut [u8]> {
        let buffer = &mut self.buffers[self.turn];
        self.stream.wait_sent(buffer)?;
        buffer.as_mut_slice()
    }

    fn send(&mut self, length: usize) -> io::Result<()> {
        let mut sent = 0;
        while sent < length {
            let buffer = &self.buffers[self.turn];
            sent += self.stream.write_registered(buffer, sent..length)?;
        }
        self.turn = 1 - self.turn;
        Ok(())
    }
}

fn send(file: &mut impl Read, size: u64, sink: &mut impl Sink) -> Result<()> {
    let progress = Progress::new("sending", size);
    let mut left = size;
    while left > 0 {
        let most = left.min(PIECE as u64) as usize;
        let length = file.read(&mut sink.room()?[..most])?;
        if length == 0 {
            return Err(
                format!("the file became shorter: {left} of {size} bytes are missing").into(),
            );
        }
        sink.send(length)?;
        progress.advance(length);
        left -= length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sent {
        piece: Vec<u8>,
        all: Vec<u8>,
    }

    impl Sink for Sent {
        fn room(&mut self) -> io::Result<&mut [u8]> {
            self.piece = vec![0; PIECE];
            Ok(&mut self.piece)
        }

        fn send(&mut self, length: usize) -> io::Result<()> {
            self.all.extend(&self.piece[..length]);
            Ok(())
        }
    }

    #[test]
    fn exactly_what_was_announced_is_sent() {
        let file = vec![7; 3 * PIECE + 1];
        for size in [0, 1, PIECE, 3 * PIECE + 1] {
            let mut sent = Sent::default();
            send(&mut &file[..], size as u64, &mut sent).unwrap();
            assert_eq!(sent.all, file[..size]);
        }
        let error = send(&mut &file[..10], 11, &mut Sent::default()).unwrap_err();
        assert!(error.to_string().contains("1 of 11 bytes"), "{error}");
    }
}
