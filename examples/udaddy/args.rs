//! The command line: the options of the C program, and `--timeout`.

use clap::{Parser, ValueEnum};
use rdmacm::{AddrInfo, AddrInfoQuery, AddressFamily, PortSpace};

use crate::datagram::c_number::c_number;
use crate::datagram::options::Options;
use crate::datagram::outcome::Result;

/// Where the server listens. There is no option for it.
const PORT: &str = "7174";

/// Exchanges datagrams between two queue pairs that the connection manager has brought together.
#[derive(Debug, Parser)]
#[command(
    name = "udaddy",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Server to send to; without it, be the server
    #[arg(short = 's', value_name = "ADDR")]
    pub server: Option<String>,

    /// Address to bind to, which also chooses the device
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,

    /// What the addresses are
    #[arg(short = 'f', value_enum, ignore_case = true, default_value_t = Format::Name)]
    format: Format,

    /// Port space by its name; goes before -p
    #[arg(short = 'P', value_enum, ignore_case = true)]
    named_port_space: Option<NamedPortSpace>,

    /// Type of service of the packets
    #[arg(short = 't', value_name = "TOS", value_parser = type_of_service)]
    pub type_of_service: Option<u8>,

    #[command(flatten)]
    pub options: Options,
}

/// What `-s` and `-b` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Names, or addresses in text
    Name,
    /// Addresses in text
    #[value(alias = "ipv6")]
    Ip,
    /// GIDs of InfiniBand in text
    Gid,
}

/// The port spaces of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NamedPortSpace {
    Udp,
    Ipoib,
}

impl Args {
    pub fn port_space(&self) -> PortSpace {
        match self.named_port_space {
            Some(NamedPortSpace::Udp) => PortSpace::Udp,
            Some(NamedPortSpace::Ipoib) => PortSpace::Ipoib,
            None => self.options.port_space,
        }
    }

    /// Where to listen: everywhere, unless told otherwise.
    pub fn listen_at(&self) -> Result<AddrInfo> {
        let mut query = self.query().passive().service(PORT);
        if let Some(bind) = &self.bind {
            query = query.node(bind);
        }
        first(&query)
    }

    /// The way to a server.
    pub fn way_to(&self, server: &str) -> Result<AddrInfo> {
        let mut query = self.query().node(server).service(PORT);
        if let Some(bind) = &self.bind {
            let own = first(&self.query().passive().node(bind))?;
            if let Some(own) = own.source {
                query = query.source(own);
            }
        }
        first(&query)
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

/// Of several answers the one that is to be tried first.
fn first(query: &AddrInfoQuery) -> Result<AddrInfo> {
    let mut found = query.resolve()?.into_iter();
    Ok(found.next().ok_or("the name has no address")?)
}

fn type_of_service(text: &str) -> Result<u8, String> {
    u8::try_from(c_number(text)?).map_err(|_| "the most is 255".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("udaddy").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_server_has_the_defaults_of_the_c_program() {
        let args = parse("").expect("a server");
        let load = args.options.load();
        assert_eq!((load.count, load.size), (10, 100));
        assert_eq!((args.options.connections, args.server.as_ref()), (1, None));
        assert_eq!(args.port_space(), PortSpace::Udp);
        let listen_at = args.listen_at().expect("the wildcard address");
        assert_eq!(listen_at.source.map(|at| at.port()), Some(7174));
    }

    #[test]
    fn a_client_may_be_bound() {
        let args =
            parse("-s 10.10.0.1 -b10.10.0.2 -fIP -t 0x20 -c4 -C 20 -S 500").expect("a client");
        let way = args.way_to("10.10.0.1").expect("addresses in text");
        assert_eq!(way.source.unwrap().to_string(), "10.10.0.2:0");
        assert_eq!(way.destination.unwrap().to_string(), "10.10.0.1:7174");
        assert_eq!(args.type_of_service, Some(0x20));
    }

    #[test]
    fn a_name_of_a_port_space_goes_before_its_number() {
        let port_space = |line| parse(line).map(|args| args.port_space());
        assert_eq!(port_space("-p 0x2"), Some(PortSpace::Ipoib));
        assert_eq!(port_space("-p 0x111 -P IPoIB"), Some(PortSpace::Ipoib));
        assert_eq!(port_space("-P tcp"), None);
    }

    #[test]
    fn messages_without_bytes_are_none() {
        let args = parse("-S 0").expect("a server");
        assert_eq!(args.options.load().count, 0);
    }
}
