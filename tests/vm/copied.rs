//! Files that rcopy copies.

use std::error::Error;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::interop::matrix::Maker;
use crate::programs::Program;

/// A folder that goes when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Where a file of it is.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file of this content and has a client copy it to a server.
pub fn send(
    client: Maker,
    (address, port): (IpAddr, u16),
    (from, to): (&str, &str),
    bytes: &[u8],
    patience: Duration,
) -> Result<(), Box<dyn Error>> {
    fs::write(from, bytes)?;
    let (target, port) = (format!("{address}:{to}"), port.to_string());
    let args = [from, &target, "-p", &port];
    let ended = Program::start(&client.path("rcopy"), &args)?.wait(patience)?;
    let line = format!("{} bytes in ", bytes.len());
    let told = ended.output.lines().find(|said| said.starts_with(&line));
    match told {
        Some(told) if ended.status.success() => {
            println!("{client:?} client: {told}");
            Ok(())
        }
        _ => Err(ended.to_string().into()),
    }
}

/// Compares a copy with what was to be copied.
pub fn compare(expected: &[u8], path: impl AsRef<Path>) -> Result<(), Box<dyn Error>> {
    let copied = fs::read(path)?;
    if copied == expected {
        return Ok(());
    }
    let mut pairs = expected.iter().zip(&copied);
    match pairs.position(|(sent, came)| sent != came) {
        Some(at) => Err(format!("byte {at} is another").into()),
        None => Err(format!("{} of {} bytes came", copied.len(), expected.len()).into()),
    }
}
