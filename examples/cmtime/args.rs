//! The command line: the options of the C program, and a few long ones.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, value_parser};

use crate::Result;

/// Measures how long connecting and disconnecting take. Without `-s` it is the server.
#[derive(Debug, Parser)]
#[command(
    name = "cmtime",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Be a client of the server with this address or name
    #[arg(short, value_name = "ADDR")]
    pub server: Option<String>,

    /// Address to connect from, or to listen on
    #[arg(short, value_name = "ADDR")]
    pub bind: Option<String>,

    /// Connections
    #[arg(short, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    pub connections: u32,

    /// Port
    #[arg(short, default_value_t = 7471)]
    pub port: u16,

    /// How often a step is taken again, and a request of the queue pair repeated
    #[arg(short, default_value_t = 2, value_parser = value_parser!(u8).range(..=7))]
    pub retries: u8,

    /// Milliseconds that resolving an address or a route may take
    #[arg(short, value_name = "MS", default_value_t = 2000, value_parser = value_parser!(u32).range(1..))]
    timeout: u32,

    /// Make a completion queue with a channel for each direction of each connection
    #[arg(long)]
    pub own_cqs: bool,

    /// Add the processor time of each step to the table
    #[arg(long)]
    pub cpu: bool,

    /// Run this C program and this one by turns, with servers on this host, and compare them
    #[arg(long, value_name = "C PROGRAM", requires = "server")]
    pub side_by_side: Option<PathBuf>,

    /// How often each program runs side by side
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    pub rounds: u32,
}

impl Args {
    /// How long resolving may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.into())
    }
}

/// Looks a name up; of several addresses the first.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: {error}"))?;
    Ok(found
        .next()
        .ok_or_else(|| format!("{host}: the name has no address"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_comparison_needs_an_address() {
        let parse = |words: &[&str]| Args::try_parse_from(words);
        assert!(parse(&["cmtime", "--side-by-side", "/usr/bin/cmtime"]).is_err());
        assert!(parse(&["cmtime", "-s", "::1", "--side-by-side", "/usr/bin/cmtime"]).is_ok());
    }

    #[test]
    fn numbers_without_meaning_are_refused() {
        for words in [["-c", "0"], ["-r", "8"], ["-t", "0"], ["-p", "70000"]] {
            let words = ["cmtime", words[0], words[1]];
            assert!(Args::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}
