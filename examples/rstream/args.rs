//! The command line: the options of the C program.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, value_parser};

use crate::Result;
use crate::measured::{Manner, Options, TestOption};

/// Measures streams over RDMA. Without `-s` it is the server.
///
/// -S, -C and -I make one measurement, in which what is not told is 1000 bytes, 1000 transfers and 1
/// iteration. Without them there is a series of each, latency and bandwidth.
#[derive(Debug, Parser)]
#[command(
    name = "rstream",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,

    /// Look after so many seconds of silence whether the peer is still there
    #[arg(short, value_name = "SECONDS", value_parser = value_parser!(u16).range(1..))]
    keepalive: Option<u16>,

    /// How to test: s|socket (TCP), a|async (an event loop), b|blocking, n|nonblocking (the default),
    /// f|fork (TCP, a thread for each connection), r|resolve (names by rdma_getaddrinfo's rules),
    /// v|verify (check the data)
    #[arg(short = 'T', value_name = "OPTION", value_parser = TestOption::parse)]
    test: Vec<TestOption>,
}

impl Args {
    /// The server's address, for a client.
    pub fn server(&self) -> Result<Option<SocketAddr>> {
        self.options.server(&self.test)
    }

    /// Where a server listens.
    pub fn listen_on(&self) -> Result<SocketAddr> {
        self.options.listen_on(&self.test)
    }

    /// Where a client connects from, if it matters.
    pub fn source(&self) -> Result<Option<SocketAddr>> {
        self.options.source(&self.test)
    }

    pub fn manner(&self) -> Manner {
        Manner::of(&self.test)
    }

    pub fn uses_tcp(&self) -> bool {
        self.has(TestOption::Socket) || self.forks()
    }

    pub fn forks(&self) -> bool {
        self.has(TestOption::Fork)
    }

    pub fn verifies(&self) -> bool {
        self.has(TestOption::Verify)
    }

    pub fn keepalive(&self) -> Option<Duration> {
        let seconds = self.keepalive?;
        Some(Duration::from_secs(seconds.into()))
    }

    fn has(&self, option: TestOption) -> bool {
        self.test.contains(&option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("rstream").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    fn parsed(line: &str) -> Args {
        parse(line).unwrap_or_else(|| panic!("{line} is refused"))
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn test_options_add_up() {
        let args = parsed("");
        assert!(!args.uses_tcp() && !args.verifies());
        assert_eq!(args.manner(), Manner::Spinning);
        let args = parsed("-T Fork -Tverify -T b");
        assert!(args.uses_tcp() && args.forks() && args.verifies());
        assert_eq!(args.manner(), Manner::Blocking);
        assert!(parsed("-T s").uses_tcp() && !parsed("-T s").forks());
        assert!(parse("-T x").is_none());
    }

    #[test]
    fn silence_is_looked_into_after_seconds() {
        assert_eq!(parsed("").keepalive(), None);
        assert_eq!(parsed("-k 3").keepalive(), Some(Duration::from_secs(3)));
        assert!(parse("-k 0").is_none());
    }
}
