//! The command line: the options of the C program, and `--timeout`.

use std::num::ParseIntError;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};
use rdmacm::{AddrInfo, AddrInfoQuery, AddressFamily, PortSpace};

use crate::failure::{Failure, Result};

/// Connects, and sends messages both ways. Without `-s` it is the server.
#[derive(Debug, Parser)]
#[command(
    name = "ucmatose",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Be a client of the server with this address or name
    #[arg(short, value_name = "ADDR")]
    pub server: Option<String>,

    /// Address to connect from, or to listen on
    #[arg(short, value_name = "ADDR")]
    bind: Option<String>,

    /// What the addresses are
    #[arg(short, value_enum, ignore_case = true, default_value_t = Format::Name)]
    format: Format,

    /// Port space
    #[arg(short = 'P', value_enum, ignore_case = true, default_value_t = Space::Tcp)]
    port_space: Space,

    /// Connections; the same number on both sides
    #[arg(short, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub connections: u32,

    /// Messages on each connection each way; the same number on both sides
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10, value_parser = value_parser!(u32).range(..=i64::from(i32::MAX)))]
    messages: u32,

    /// Bytes of a message; the same number on both sides; 0 is no messages
    #[arg(short = 'S', default_value_t = 100, value_parser = value_parser!(u32).range(..=i64::from(i32::MAX)))]
    size: u32,

    /// Type of service of the packets (client only)
    #[arg(short, value_name = "TOS", value_parser = in_any_base)]
    pub type_of_service: Option<u8>,

    /// Port, by number or by name
    #[arg(short, default_value = "7471")]
    port: String,

    /// Move the ids to another event channel before they disconnect
    #[arg(short)]
    pub migrate: bool,

    /// Wait 4.096 µs times two to the power of this for an acknowledgement
    #[arg(short, value_name = "EXPONENT", value_parser = in_any_base)]
    pub ack_timeout: Option<u8>,

    /// Give up when a peer is silent for so many seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = value_parser!(u32).range(..=24 * 60 * 60))]
    timeout: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Names or addresses
    Name,
    /// IP addresses, and no name server is asked
    #[value(alias = "ipv6")]
    Ip,
    /// GIDs
    Gid,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Space {
    Tcp,
    Ib,
}

/// The messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub count: u32,
    pub size: usize,
}

impl Args {
    /// What to send.
    pub fn load(&self) -> Load {
        Load {
            count: if self.size == 0 { 0 } else { self.messages },
            size: self.size as usize,
        }
    }

    /// The port space of the ids.
    pub fn port_space(&self) -> PortSpace {
        match self.port_space {
            Space::Tcp => PortSpace::Tcp,
            Space::Ib => PortSpace::Ib,
        }
    }

    /// How long a peer may be silent.
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout > 0).then(|| Duration::from_secs(self.timeout.into()))
    }

    /// Looks up whom to connect to, or where to listen. Of several answers the first.
    pub fn look_up(&self) -> Result<AddrInfo> {
        match (&self.server, &self.bind) {
            (None, None) => first(self.query().service(&self.port).passive()),
            (None, Some(local)) => first(self.query().node(local).service(&self.port).passive()),
            (Some(server), None) => first(self.query().node(server).service(&self.port)),
            (Some(server), Some(local)) => {
                let bound = first(self.query().node(local).passive())?;
                let source = bound
                    .source
                    .ok_or_else(|| Failure::new(format!("{local} has no address")))?;
                first(self.query().node(server).service(&self.port).source(source))
            }
        }
    }

    fn query(&self) -> AddrInfoQuery {
        let query = AddrInfoQuery::new().port_space(self.port_space());
        match self.format {
            Format::Name => query,
            Format::Ip => query.numeric_host(),
            Format::Gid => query.numeric_host().family(AddressFamily::Ib),
        }
    }
}

fn first(query: AddrInfoQuery) -> Result<AddrInfo> {
    let mut found = query.resolve()?.into_iter();
    found
        .next()
        .ok_or_else(|| Failure::new("the name has no address"))
}

/// A number as C writes it: decimal, hexadecimal after 0x, octal after 0.
fn in_any_base(text: &str) -> std::result::Result<u8, ParseIntError> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None if lower.starts_with('0') => u8::from_str_radix(&lower, 8),
        None => lower.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("ucmatose").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn numbers_are_written_as_in_c() {
        for (text, number) in [("0x1F", 31), ("010", 8), ("8", 8), ("0", 0), ("255", 255)] {
            assert_eq!(in_any_base(text), Ok(number), "{text}");
        }
        for text in ["", "256", "0x100", "09", "x"] {
            assert!(in_any_base(text).is_err(), "{text}");
        }
    }

    #[test]
    fn messages_without_bytes_are_none() {
        let args = parse("-C 5 -S0").unwrap();
        assert_eq!(args.load(), Load { count: 0, size: 0 });
    }

    #[test]
    fn small_options_are_apart_from_capital_ones() {
        let args = parse("-s ::1 -c3 -C 7 -P IB -p 99 -f ipv6 -m -t 0x20 -a 010").unwrap();
        assert_eq!((args.connections, args.load().count), (3, 7));
        assert_eq!(args.port_space(), PortSpace::Ib);
        assert_eq!(
            (args.type_of_service, args.ack_timeout),
            (Some(32), Some(8))
        );
        let info = args.look_up().unwrap();
        assert_eq!(info.destination.unwrap().to_string(), "[::1]:99");
    }

    #[test]
    fn names_are_not_looked_up_among_addresses() {
        assert!(parse("-s localhost -f ip").unwrap().look_up().is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["-c 0", "-P sdp", "-f mac", "-t 300", "-x", "-C -1"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
