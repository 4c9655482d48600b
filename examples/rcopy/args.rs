//! The command line: what the C program takes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Result;

/// Copies a file to a server. Without arguments it is the server, which writes whatever file a client
/// names.
#[derive(Debug, Parser)]
#[command(name = "rcopy", disable_version_flag = true, args_override_self = true)]
pub struct Args {
    /// The file to copy
    #[arg(requires = "target")]
    source: Option<PathBuf>,

    /// Address or name of the server, and what the file is to be called there [default: as here]
    #[arg(value_name = "SERVER[:DESTINATION]")]
    target: Option<OsString>,

    /// Port
    #[arg(short, default_value_t = 7427)]
    port: u16,
}

/// What to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Role {
    Server { port: u16 },
    Client(Copy),
}

/// What to copy.
#[derive(Debug, PartialEq, Eq)]
pub struct Copy {
    pub source: PathBuf,
    pub server: String,
    pub port: u16,
    pub destination: PathBuf,
}

impl Args {
    pub fn role(&self) -> Result<Role> {
        let port = self.port;
        let (Some(source), Some(target)) = (&self.source, &self.target) else {
            return Ok(Role::Server { port });
        };
        let (server, destination) = split(target.as_bytes());
        let server = std::str::from_utf8(server).map_err(|_| "the server's name is no text")?;
        if server.is_empty() {
            return Err("the server's name is missing".into());
        }
        let destination = match destination {
            Some(path) => Path::new(std::ffi::OsStr::from_bytes(path)).to_owned(),
            None => source.clone(),
        };
        Ok(Role::Client(Copy {
            source: source.clone(),
            server: server.to_owned(),
            port,
            destination,
        }))
    }
}

/// Server and destination: at the first colon, or that behind the brackets.
fn split(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let at = |byte| target.iter().position(|known| *known == byte);
    if let (Some(b'['), Some(end)) = (target.first(), at(b']')) {
        let rest = &target[end + 1..];
        return (&target[1..end], rest.strip_prefix(b":"));
    }
    match at(b':') {
        Some(colon) => (&target[..colon], Some(&target[colon + 1..])),
        None => (target, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(line: &str) -> Option<Role> {
        let words = std::iter::once("rcopy").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()?.role().ok()
    }

    fn copy(source: &str, server: &str, port: u16, destination: &str) -> Option<Role> {
        Some(Role::Client(Copy {
            source: source.into(),
            server: server.to_owned(),
            port,
            destination: destination.into(),
        }))
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn without_a_file_it_is_the_server() {
        assert_eq!(role(""), Some(Role::Server { port: 7427 }));
        assert_eq!(role("-p 99"), Some(Role::Server { port: 99 }));
    }

    #[test]
    fn the_destination_comes_behind_the_server() {
        assert_eq!(role("/a/b host"), copy("/a/b", "host", 7427, "/a/b"));
        assert_eq!(role("a host:/c:d -p 9"), copy("a", "host", 9, "/c:d"));
        assert_eq!(role("a [fd00::1]:c"), copy("a", "fd00::1", 7427, "c"));
        assert_eq!(role("a [fd00::1]"), copy("a", "fd00::1", 7427, "a"));
    }

    #[test]
    fn halves_are_refused() {
        for line in ["file", "file :there", "file host third", "-p x"] {
            assert_eq!(role(line), None, "{line}");
        }
    }
}
