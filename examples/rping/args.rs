//! The command line: the options of the C program, and `--timeout`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{ArgGroup, Parser, value_parser};

use crate::Result;
use crate::pattern;

/// Bytes of a ping unless told otherwise.
const DEFAULT_SIZE: u32 = 64;

/// RDMA ping: checks that two machines can connect, send, read and write.
#[derive(Debug, Parser)]
#[command(
    name = "rping",
    disable_version_flag = true,
    args_override_self = true,
    group(ArgGroup::new("side").required(true).args(["server", "client"]))
)]
pub struct Args {
    /// Be the server
    #[arg(short)]
    server: bool,

    /// Be the client
    #[arg(short, requires = "address")]
    client: bool,

    /// Address or name to connect to, or to listen on [server default: 0.0.0.0; `::0` is any IPv6]
    #[arg(short, value_name = "ADDR")]
    address: Option<String>,

    /// Address to connect from, which also chooses the device
    #[arg(short = 'I', value_name = "ADDR", conflicts_with = "server")]
    source: Option<String>,

    /// Port
    #[arg(short, default_value_t = 7174)]
    port: u16,

    /// Pings until the client ends; 0 is no end, and a server serves as many as come
    #[arg(short = 'C', default_value_t = 0, value_parser = up_to(i32::MAX as u32))]
    count: u32,

    /// Bytes of a ping [client default: 64]; of a server, the most it takes [default: 65535]
    #[arg(short = 'S', value_parser = value_parser!(u32).range(pattern::SIZES))]
    size: Option<u32>,

    /// Print the data of each ping
    #[arg(short)]
    verbose: bool,

    /// Check the data that comes back
    #[arg(short = 'V')]
    validate: bool,

    /// Serve any number of clients, until killed
    #[arg(short = 'P', conflicts_with = "client")]
    persistent: bool,

    /// Tell each step on the standard error
    #[arg(short)]
    pub debug: bool,

    /// Give up when the peer is silent for so many seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = up_to(24 * 60 * 60))]
    timeout: u32,
}

/// Takes numbers from 0 to `most`.
fn up_to(most: u32) -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(..=i64::from(most))
}

/// What to be, with the options that concern it.
pub enum Side {
    Client(ClientOptions),
    Server(ServerOptions),
}

/// The options of a client.
pub struct ClientOptions {
    pub peer: Endpoint,
    pub source: Option<Endpoint>,
    /// How many pings; `None` is no end.
    pub count: Option<u32>,
    pub size: usize,
    pub verbose: bool,
    pub validate: bool,
    pub timeout: Option<Duration>,
}

/// The options of a server.
pub struct ServerOptions {
    pub local: Endpoint,
    pub persistent: bool,
    pub connection: ServeOptions,
}

/// What a server does with each client.
#[derive(Clone, Copy)]
pub struct ServeOptions {
    /// The longest ping it takes.
    pub room: usize,
    pub verbose: bool,
    pub timeout: Option<Duration>,
}

/// An address as it was given, not looked up yet.
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Args {
    /// Parses the command line; prints help or what is wrong with it, and ends the program then.
    pub fn parse() -> Self {
        <Self as Parser>::parse()
    }

    /// Takes the options apart.
    pub fn side(&self) -> Side {
        let timeout = (self.timeout > 0).then(|| Duration::from_secs(self.timeout.into()));
        let endpoint = |host: &str, port| Endpoint {
            host: host.to_owned(),
            port,
        };
        let address = endpoint(self.address.as_deref().unwrap_or("0.0.0.0"), self.port);
        if self.client {
            return Side::Client(ClientOptions {
                peer: address,
                source: self.source.as_deref().map(|host| endpoint(host, 0)),
                count: (self.count > 0).then_some(self.count),
                size: self.size.unwrap_or(DEFAULT_SIZE) as usize,
                verbose: self.verbose,
                validate: self.validate,
                timeout,
            });
        }
        Side::Server(ServerOptions {
            local: address,
            persistent: self.persistent,
            connection: ServeOptions {
                room: self.size.map_or(pattern::LONGEST, |size| size as usize),
                verbose: self.verbose,
                timeout,
            },
        })
    }
}

impl Endpoint {
    /// Looks the name up; of several addresses the first.
    pub fn resolve(&self) -> Result<SocketAddr> {
        let Self { host, port } = self;
        let failed = |reason: &dyn std::fmt::Display| format!("{host}: {reason}");
        let mut found = (host.as_str(), *port)
            .to_socket_addrs()
            .map_err(|error| failed(&error))?;
        Ok(found
            .next()
            .ok_or_else(|| failed(&"the name has no address"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Side> {
        let words = std::iter::once("rping").chain(line.split_whitespace());
        Args::try_parse_from(words).ok().map(|args| args.side())
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_client_has_the_defaults_of_the_c_program() {
        let Some(Side::Client(options)) = parse("-c -a 10.10.0.1") else {
            panic!("a client")
        };
        assert_eq!(
            options.peer.resolve().unwrap(),
            "10.10.0.1:7174".parse().unwrap()
        );
        assert_eq!((options.count, options.size), (None, 64));
        assert!(!options.verbose && !options.validate);
    }

    #[test]
    fn short_options_can_be_written_together_and_repeated() {
        let Some(Side::Client(options)) = parse("-cvVv -C5 -S100 -a ::1 -p 99") else {
            panic!("a client");
        };
        assert_eq!(options.peer.resolve().unwrap(), "[::1]:99".parse().unwrap());
        assert_eq!((options.count, options.size), (Some(5), 100));
        assert!(options.verbose && options.validate);
    }

    #[test]
    fn a_server_listens_everywhere_and_takes_every_size() {
        let Some(Side::Server(options)) = parse("-s -P -C 10") else {
            panic!("a server")
        };
        assert_eq!(
            options.local.resolve().unwrap(),
            "0.0.0.0:7174".parse().unwrap()
        );
        assert!(options.persistent);
        assert_eq!(options.connection.room, 65535);
    }

    #[test]
    fn contradictions_and_sizes_out_of_range_are_refused() {
        for line in [
            "",
            "-s -c -a 10.10.0.1",
            "-c",
            "-c -a 10.10.0.1 -S 22",
            "-c -a 10.10.0.1 -S 65536",
            "-c -a 10.10.0.1 -C -1",
            "-s -p 70000",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
