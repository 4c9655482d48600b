//! The side that gets the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use rdmacm::RdmaListener;

use crate::Result;
use crate::progress::Progress;
use crate::wire::{self, Command, Header};

/// Bytes that are received and written at a time.
const PIECE: usize = 1 << 18;

/// The permissions that a client can give its file.
const PERMISSIONS: u32 = 0o777;

/// Serves one client after the other, until killed.
pub fn run(port: u16) -> Result<()> {
    let address = (Ipv4Addr::UNSPECIFIED, port);
    let listener = RdmaListener::bind(address)
        .map_err(|error| format!("listening on port {port}: {error}"))?;
    loop {
        print!("waiting for connection...");
        io::stdout().flush()?;
        let (mut stream, peer) = listener.accept()?;
        println!("client: {}", peer.ip());
        if let Err(error) = serve(&mut stream) {
            println!();
            eprintln!("rcopy: {error}");
        }
        // A client that was faster has ended the stream already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Does what a client asks for, until it ends the stream or asks for something that fails.
fn serve(stream: &mut (impl Read + Write)) -> Result<()> {
    let mut file = None;
    while let Some(header) = Header::read(stream)? {
        let done = match header.command() {
            Some(Command::Open) => open(stream, &header, &mut file)?,
            Some(Command::Write) => write(stream, &header, file.as_mut())?,
            Some(Command::Close) => {
                println!("closing...done");
                file = None;
                Ok(())
            }
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let status = done.as_ref().err().map_or(0, errno_of);
        header.answer(status).write(stream)?;
        done?;
    }
    Ok(())
}

fn errno_of(error: &io::Error) -> u32 {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    errno.unsigned_abs()
}

/// What a client can be told, within what ends the connection.
type Answer = Result<io::Result<()>>;

fn open(stream: &mut impl Read, header: &Header, file: &mut Option<File>) -> Answer {
    let path = wire::read_path(stream, header)?;
    print!("opening: {}, ", printable(&path));
    if file.is_some() {
        return Ok(Err(io::Error::from_raw_os_error(libc::EBUSY)));
    }
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(header.data & PERMISSIONS)
        .open(path);
    Ok(opened.map(|opened| *file = Some(opened)))
}

/// The peer chose the name, but not what a terminal does.
fn printable(path: &Path) -> String {
    let show = |c: char| if c.is_control() { '?' } else { c };
    path.to_string_lossy().chars().map(show).collect()
}

fn write(stream: &mut impl Read, header: &Header, file: Option<&mut impl Write>) -> Answer {
    let invalid = || Ok(Err(io::Error::from_raw_os_error(libc::EINVAL)));
    let Some(file) = file else { return invalid() };
    let Some(size) = wire::read_size(stream, header)? else {
        return invalid();
    };
    print!("transferring...{size} bytes...");
    receive(stream, size, file)
}

/// Receives all bytes even if the file cannot take them: a client listens for the answer only when it
/// has sent everything.
fn receive(stream: &mut impl Read, size: u64, file: &mut impl Write) -> Answer {
    let progress = Progress::new("receiving", size);
    let mut piece = vec![0; PIECE];
    let mut written = Ok(());
    let mut left = size;
    while left > 0 {
        let most = left.min(PIECE as u64) as usize;
        let length = stream.read(&mut piece[..most])?;
        if length == 0 {
            return Err(format!("the client ended: {left} of {size} bytes are missing").into());
        }
        if written.is_ok() {
            written = file.write_all(&piece[..length]);
        }
        progress.advance(length);
        left -= length as u64;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A client that has said everything in advance.
    struct Client {
        says: io::Cursor<Vec<u8>>,
        hears: Vec<u8>,
    }

    impl Client {
        fn new(says: Vec<u8>) -> Self {
            Self {
                says: io::Cursor::new(says),
                hears: Vec::new(),
            }
        }

        /// The answers to these commands, and nothing more.
        fn assert_hears(&self, answers: &[(Command, bool)]) {
            let mut heard = &self.hears[..];
            for (command, is_yes) in answers {
                let answer = wire::read_answer(&mut heard, *command);
                assert_eq!(answer.is_ok(), *is_yes, "{command:?}: {answer:?}");
            }
            assert!(heard.is_empty());
        }
    }

    impl Read for Client {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.says.read(bytes)
        }
    }

    impl Write for Client {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.hears.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn path_for(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("rcopy-{test}-{}", std::process::id()))
    }

    #[test]
    fn a_client_gets_its_file_written() {
        let path = path_for("written");
        let mut says = Vec::new();
        wire::ask_to_open(&mut says, &path, 0o104600).unwrap();
        wire::ask_to_write(&mut says, 5).unwrap();
        says.extend(b"hello");
        wire::ask_to_close(&mut says).unwrap();
        let mut client = Client::new(says);
        serve(&mut client).unwrap();
        client.assert_hears(&[
            (Command::Open, true),
            (Command::Write, true),
            (Command::Close, true),
        ]);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o7777, 0o600, "never set-user-ID");
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn refusals_are_told_and_end_the_connection() {
        let path = path_for("refused");
        let mut twice = Vec::new();
        wire::ask_to_open(&mut twice, &path, 0o600).unwrap();
        wire::ask_to_open(&mut twice, &path, 0o600).unwrap();
        let mut client = Client::new(twice);
        serve(&mut client).unwrap_err();
        client.assert_hears(&[(Command::Open, true), (Command::Open, false)]);
        fs::remove_file(path).unwrap();

        let mut unopened = Vec::new();
        wire::ask_to_write(&mut unopened, 5).unwrap();
        let mut client = Client::new(unopened);
        serve(&mut client).unwrap_err();
        client.assert_hears(&[(Command::Write, false)]);

        let mut nowhere = Vec::new();
        wire::ask_to_open(&mut nowhere, Path::new("/nowhere/at/all"), 0o600).unwrap();
        let mut client = Client::new(nowhere);
        serve(&mut client).unwrap_err();
        client.assert_hears(&[(Command::Open, false)]);
    }

    #[test]
    fn a_full_disk_is_told_after_all_was_received() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = vec![1; PIECE + 10];
        let mut stream = &bytes[..];
        let answer = receive(&mut stream, PIECE as u64 + 5, &mut Full).unwrap();
        assert_eq!(errno_of(&answer.unwrap_err()), libc::ENOSPC as u32);
        assert_eq!(stream.len(), 5, "what follows is left");
        assert!(receive(&mut stream, 6, &mut Vec::new()).is_err());
    }
}
