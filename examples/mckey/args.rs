//! The command line: the options of the C program, and `--timeout`.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

use clap::{ArgGroup, Parser};
use rdmacm::{Address, Gid, IbAddress, Membership};

use crate::datagram::options::Options;
use crate::datagram::outcome::Result;

/// Sends to a multicast group, or receives what is sent to it.
#[derive(Debug, Parser)]
#[command(
    name = "mckey",
    disable_version_flag = true,
    args_override_self = true,
    group(ArgGroup::new("group").required(true).args(["mapped", "unmapped"]))
)]
pub struct Args {
    /// The group: an IP address
    #[arg(short = 'm', value_name = "ADDR")]
    mapped: Option<String>,

    /// The group: a GID of InfiniBand that stands for no IP address
    #[arg(short = 'M', value_name = "GID", requires = "bind")]
    unmapped: Option<Ipv6Addr>,

    /// Be the sender; without it, be a receiver
    #[arg(short = 's')]
    pub is_sender: bool,

    /// Address to bind to, which chooses the device
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,

    /// Join to send only
    #[arg(short = 'o')]
    send_only: bool,

    /// Receive nothing of what this queue pair sends itself
    #[arg(short = 'l')]
    pub no_loopback: bool,

    #[command(flatten)]
    pub options: Options,
}

impl Args {
    /// The address to bind to.
    pub fn source(&self) -> Result<Option<Address>> {
        self.bind.as_deref().map(look_up).transpose()
    }

    /// The group.
    pub fn group(&self) -> Result<Group> {
        match (self.unmapped, &self.mapped) {
            (Some(gid), _) => Ok(Group::Unmapped(unmapped(gid))),
            (None, Some(name)) => Ok(Group::Mapped(look_up(name)?)),
            (None, None) => Err("there is no group".into()),
        }
    }

    pub fn membership(&self) -> Membership {
        match self.send_only {
            true => Membership::SendOnly,
            false => Membership::Full,
        }
    }
}

/// A group's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// One that a way can be resolved to, which chooses the device.
    Mapped(Address),
    /// One that nothing can be resolved to.
    Unmapped(Address),
}

impl Group {
    pub fn address(self) -> Address {
        match self {
            Self::Mapped(address) | Self::Unmapped(address) => address,
        }
    }
}

/// Looks a name up; of several addresses the first.
fn look_up(name: &str) -> Result<Address> {
    let failed = |reason: &dyn std::fmt::Display| format!("{name}: {reason}");
    let mut found = (name, 0)
        .to_socket_addrs()
        .map_err(|error| failed(&error))?;
    let first: SocketAddr = found
        .next()
        .ok_or_else(|| failed(&"the name has no address"))?;
    Ok(first.into())
}

/// A group has no service, and is in the partition of the port that joins it.
fn unmapped(gid: Ipv6Addr) -> Address {
    let address = IbAddress {
        pkey: 0,
        flow_info: 0,
        gid: Gid(gid.octets()),
        service_id: 0,
        service_id_mask: 0,
        scope_id: 0,
    };
    address.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("mckey").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_receiver_has_the_defaults_of_the_c_program() {
        let args = parse("-m 239.1.2.3").expect("a receiver");
        assert!(!args.is_sender && !args.no_loopback);
        assert_eq!(args.membership(), Membership::Full);
        assert_eq!(args.source().unwrap(), None);
        assert_eq!(args.group().unwrap().address().to_string(), "239.1.2.3:0");
    }

    #[test]
    fn a_gid_is_an_address_of_infiniband_and_needs_a_source() {
        let args = parse("-M ff12:401b::1 -b 10.10.0.1 -so").expect("a sender");
        let Group::Unmapped(Address::Ib(address)) = args.group().unwrap() else {
            panic!("a GID");
        };
        assert_eq!(address.gid.to_string(), "ff12:401b::1");
        assert_eq!((address.pkey, address.service_id), (0, 0));
        assert_eq!(args.membership(), Membership::SendOnly);
        assert!(parse("-M ff12:401b::1").is_none());
    }

    #[test]
    fn there_must_be_one_group() {
        assert!(parse("-s").is_none());
        assert!(parse("-m 239.1.2.3 -M ff12::1 -b 10.10.0.1").is_none());
    }
}
