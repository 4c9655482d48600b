//! The options that the programs share.

use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::value_parser;
use rdmacm::PortSpace;

use super::c_number::c_number;
use super::node::Load;

/// The C library's numbers of port spaces.
const UDP: u32 = 0x111;
const IPOIB: u32 = 0x2;

/// How much to exchange, and over what.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Ids, each with a queue pair
    #[arg(short = 'c', value_name = "IDS", default_value_t = 1, value_parser = from_to(1, i32::MAX))]
    pub connections: u32,

    /// Messages that each id sends or receives; 0 is none
    #[arg(short = 'C', default_value_t = 10, value_parser = from_to(0, i32::MAX))]
    count: u32,

    /// Bytes of a message, up to what a packet holds; 0 sends none
    #[arg(short = 'S', default_value_t = 100, value_parser = from_to(0, i32::MAX))]
    size: u32,

    /// Port space by its number: 0x111 is UDP, 0x2 IPoIB
    #[arg(short = 'p', value_name = "NUMBER", default_value = "0x111", value_parser = port_space)]
    pub port_space: PortSpace,

    /// Give up when the peer is silent for so many seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = from_to(0, 24 * 60 * 60))]
    timeout: u32,
}

impl Options {
    /// What each node sends or receives.
    pub fn load(&self) -> Load {
        Load {
            count: if self.size == 0 { 0 } else { self.count },
            size: self.size as usize,
        }
    }

    /// How long a peer may be silent.
    pub fn patience(&self) -> Option<Duration> {
        (self.timeout > 0).then(|| Duration::from_secs(self.timeout.into()))
    }
}

fn from_to(least: i32, most: i32) -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

fn port_space(text: &str) -> Result<PortSpace, String> {
    match c_number(text)? {
        UDP => Ok(PortSpace::Udp),
        IPOIB => Ok(PortSpace::Ipoib),
        other => Err(format!(
            "the port space {other:#x} is not one of datagrams ({UDP:#x} and {IPOIB:#x} are)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_port_spaces_of_datagrams_are_taken() {
        assert_eq!(port_space("0x111"), Ok(PortSpace::Udp));
        assert_eq!(port_space("2"), Ok(PortSpace::Ipoib));
        assert!(port_space("0x106").unwrap_err().contains("0x106"));
    }
}
