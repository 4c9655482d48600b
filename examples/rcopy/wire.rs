//! The messages. Numbers are in the order of the machine, on both sides: the protocol does not
//! provide for two machines of different orders.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 0 |
//! | 1 | command |
//! | 2, 3 | length of the message, with this header |
//! | 4 to 7 | data: permissions of the file to open, or the answer, 0 or an errno |
//! | 8 to 15 | a number that the answer repeats |
//!
//! Behind the header: a path with a zero at its end for `Open`, the size of the file for `Write`, after
//! which comes the file itself.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Result;

/// Bytes of a header.
const HEADER: usize = 16;

/// The bit of a command that makes it an answer.
const ANSWER: u8 = 0x80;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Open = 1,
    Close = 2,
    Write = 3,
}

/// A message, without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    command: u8,
    /// Of the whole message; never less than a header's.
    length: u16,
    pub data: u32,
    id: u64,
}

impl Header {
    fn new(command: Command, data: u32, behind: usize) -> Result<Self> {
        let length = u16::try_from(HEADER + behind).map_err(|_| "the path is too long")?;
        Ok(Self {
            command: command as u8,
            length,
            data,
            id: 0,
        })
    }

    /// What the message asks for, if that is known.
    pub fn command(&self) -> Option<Command> {
        [Command::Open, Command::Close, Command::Write]
            .into_iter()
            .find(|command| *command as u8 == self.command)
    }

    /// Bytes behind the header.
    pub fn behind(&self) -> usize {
        usize::from(self.length) - HEADER
    }

    /// The answer: 0, or an errno.
    pub fn answer(&self, status: u32) -> Self {
        Self {
            command: self.command | ANSWER,
            length: HEADER as u16,
            data: status,
            id: self.id,
        }
    }

    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[1] = self.command;
        bytes[2..4].copy_from_slice(&self.length.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.data.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.id.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; HEADER]) -> Result<Self> {
        let [version, command, l0, l1, d0, d1, d2, d3, id @ ..] = bytes;
        let length = u16::from_ne_bytes([l0, l1]);
        if version != 0 || usize::from(length) < HEADER {
            return Err(format!("invalid version {version} or length {length}").into());
        }
        Ok(Self {
            command,
            length,
            data: u32::from_ne_bytes([d0, d1, d2, d3]),
            id: u64::from_ne_bytes(id),
        })
    }

    /// Reads a header; `None` at the end of the stream.
    pub fn read(stream: &mut impl Read) -> Result<Option<Self>> {
        let mut bytes = [0; HEADER];
        if stream.read(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut bytes[1..])?;
        Self::from_bytes(bytes).map(Some)
    }

    pub fn write(self, stream: &mut impl Write) -> Result<()> {
        Ok(stream.write_all(&self.to_bytes())?)
    }
}

/// Reads the path of a message.
pub fn read_path(stream: &mut impl Read, header: &Header) -> Result<PathBuf> {
    let mut bytes = vec![0; header.behind()];
    stream.read_exact(&mut bytes)?;
    let end = bytes.iter().position(|byte| *byte == 0);
    let path = &bytes[..end.unwrap_or(bytes.len())];
    Ok(OsStr::from_bytes(path).into())
}

/// Reads the size that comes with a message to write; `None` where something else is behind it.
pub fn read_size(stream: &mut impl Read, header: &Header) -> Result<Option<u64>> {
    let mut size = [0; 8];
    if header.behind() != size.len() {
        return Ok(None);
    }
    stream.read_exact(&mut size)?;
    Ok(Some(u64::from_ne_bytes(size)))
}

/// Asks for a file to be made.
pub fn ask_to_open(stream: &mut impl Write, path: &Path, mode: u32) -> Result<()> {
    let path = path.as_os_str().as_bytes();
    // At least one zero, and a length that can be divided by 8.
    let length = (path.len() + 8) & !7;
    let mut message = Vec::with_capacity(HEADER + length);
    message.extend(Header::new(Command::Open, mode, length)?.to_bytes());
    message.extend(path);
    message.resize(HEADER + length, 0);
    Ok(stream.write_all(&message)?)
}

/// Announces the bytes of the file.
pub fn ask_to_write(stream: &mut impl Write, size: u64) -> Result<()> {
    let mut message = Header::new(Command::Write, 0, 8)?.to_bytes().to_vec();
    message.extend(size.to_ne_bytes());
    Ok(stream.write_all(&message)?)
}

pub fn ask_to_close(stream: &mut impl Write) -> Result<()> {
    Header::new(Command::Close, 0, 0)?.write(stream)
}

/// Reads the answer to a command.
pub fn read_answer(stream: &mut impl Read, command: Command) -> Result<()> {
    let Some(header) = Header::read(stream)? else {
        return Err("the server ended the connection".into());
    };
    let expected = command as u8 | ANSWER;
    if header.command != expected || header.behind() != 0 {
        return Err(format!(
            "invalid length {} or bad command response {:x}:{expected:x}",
            header.length, header.command
        )
        .into());
    }
    match i32::try_from(header.data) {
        Ok(0) => Ok(()),
        Ok(errno @ 1..) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Err(format!("the server says: {error}").into())
        }
        _ => Err(format!("the server answers {:#x}", header.data).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_with_a_zero_and_comes_in_eights() {
        for (path, length) in [("", 8), ("a", 8), ("1234567", 8), ("12345678", 16)] {
            let mut message = Vec::new();
            ask_to_open(&mut message, Path::new(path), 0o644).unwrap();
            assert_eq!(message.len(), HEADER + length, "{path}");
            let mut stream = &message[..];
            let header = Header::read(&mut stream).unwrap().unwrap();
            assert_eq!(header.command(), Some(Command::Open));
            assert_eq!((header.behind(), header.data), (length, 0o644));
            assert_eq!(read_path(&mut stream, &header).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn messages_have_the_layout_of_the_c_program() {
        let mut message = Vec::new();
        ask_to_write(&mut message, 0x0102_0304_0506_0708).unwrap();
        let mut expected = vec![0, 3];
        expected.extend(24u16.to_ne_bytes());
        expected.extend([0; 12]);
        expected.extend(0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(message, expected);
    }

    #[test]
    fn an_answer_is_for_its_command() {
        let mut message = Vec::new();
        ask_to_close(&mut message).unwrap();
        message[8..].copy_from_slice(&7u64.to_ne_bytes());
        let header = Header::read(&mut &message[..]).unwrap().unwrap();
        let answer = |status| header.answer(status).to_bytes();
        assert_eq!(answer(0)[8..], 7u64.to_ne_bytes(), "the number comes back");
        read_answer(&mut &answer(0)[..], Command::Close).unwrap();
        assert!(read_answer(&mut &answer(0)[..], Command::Open).is_err());
        let error = read_answer(&mut &answer(28)[..], Command::Close).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert!(read_answer(&mut &answer(u32::MAX)[..], Command::Close).is_err());
        assert!(read_answer(&mut &answer(0)[..9], Command::Close).is_err());
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        let mut message = Vec::new();
        ask_to_close(&mut message).unwrap();
        for (at, byte) in [(0, 1), (2, 15)] {
            let mut wrong = message.clone();
            wrong[at] = byte;
            wrong[3] = 0;
            assert!(Header::read(&mut &wrong[..]).is_err(), "byte {at}");
        }
        let too_long = "x".repeat(70_000);
        assert!(ask_to_open(&mut Vec::new(), Path::new(&too_long), 0).is_err());
    }
}
