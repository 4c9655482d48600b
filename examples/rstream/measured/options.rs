//! Options of both programs, with the names and defaults of the C programs.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use clap::value_parser;
use rdmacm::{AddrInfoQuery, PortSpace};

use super::measurement::{Plan, Purpose};
use super::short::{has_prefix, named};

/// Errors are only shown.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes and counts of a measurement of which not all was told.
const DEFAULT_SIZE: u32 = 1000;
const DEFAULT_TRANSFERS: u32 = 1000;
const DEFAULT_ITERATIONS: u32 = 1;

/// Options of both programs.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Be a client of the server with this address or name
    #[arg(short, value_name = "ADDR")]
    pub server: Option<String>,

    /// Address to listen on, or to connect from
    #[arg(short, value_name = "ADDR")]
    bind: Option<String>,

    /// Form of the addresses: name, ip, ipv6 (the last two are no names to look up)
    #[arg(short, value_name = "FORM", value_parser = AddressForm::parse)]
    format: Option<AddressForm>,

    /// Bytes of the buffers for sending and receiving
    #[arg(short = 'B', value_name = "BYTES", default_value_t = 1 << 19, value_parser = value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub buffer_size: u32,

    /// Transfers of so many bytes go inline while latency is measured
    #[arg(short, value_name = "BYTES", default_value_t = 64)]
    inline_size: u16,

    /// Iterations
    #[arg(short = 'I', value_parser = count())]
    iterations: Option<u32>,

    /// Transfers in each direction of an iteration
    #[arg(short = 'C', value_parser = count())]
    count: Option<u32>,

    /// Bytes of a transfer; `all` is a longer series of sizes
    #[arg(short = 'S', value_parser = Size::parse)]
    size: Option<Size>,

    /// Port
    #[arg(short, default_value_t = 7471)]
    port: u16,
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(i32::MAX))
}

/// What is an address and what a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressForm {
    Name,
    Ip,
}

impl AddressForm {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "name" => Ok(Self::Name),
            _ if text.starts_with("ip") => Ok(Self::Ip),
            _ if text.starts_with("gid") => Err("streams have IP addresses only".into()),
            _ => Err("not one of name, ip, ipv6".into()),
        }
    }
}

/// What `-S` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    All,
    Bytes(u32),
}

impl Size {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        if has_prefix(text, "all") {
            return Ok(Self::All);
        }
        match text.parse() {
            Ok(bytes) if (1..=i32::MAX as u32).contains(&bytes) => Ok(Self::Bytes(bytes)),
            _ => Err("neither `all` nor a number of bytes from 1 on".into()),
        }
    }
}

/// What `-T` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOption {
    Socket,
    Async,
    Blocking,
    Fork,
    Nonblocking,
    Resolve,
    Verify,
}

impl TestOption {
    /// The letter, or the word; of the word the beginning is enough, and what follows it is not read.
    const NAMES: [(&str, &str, Self); 7] = [
        ("s", "socket", Self::Socket),
        ("a", "async", Self::Async),
        ("b", "block", Self::Blocking),
        ("f", "fork", Self::Fork),
        ("n", "nonblock", Self::Nonblocking),
        ("r", "resolve", Self::Resolve),
        ("v", "verify", Self::Verify),
    ];

    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        named(&Self::NAMES, text).ok_or_else(|| "no such test option".into())
    }
}

/// How calls wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// The calls themselves.
    Blocking,
    /// They do not: they are made again and again.
    Spinning,
    /// In an event loop that asks without waiting, again and again.
    Polling,
    /// In an event loop that sleeps.
    Sleeping,
}

impl Manner {
    /// Of `-T b` and `-T n` the last counts.
    pub fn of(test: &[TestOption]) -> Self {
        let mut waits = test.iter().rev();
        let last =
            waits.find(|option| matches!(option, TestOption::Blocking | TestOption::Nonblocking));
        let is_blocking = last == Some(&TestOption::Blocking);
        match (test.contains(&TestOption::Async), is_blocking) {
            (true, true) => Self::Sleeping,
            (true, false) => Self::Polling,
            (false, true) => Self::Blocking,
            (false, false) => Self::Spinning,
        }
    }
}

impl Options {
    /// The server's address, for a client.
    pub fn server(&self, test: &[TestOption]) -> Result<Option<SocketAddr>> {
        let server = self.server.as_deref();
        server
            .map(|server| self.resolve(server, self.port, test, false))
            .transpose()
    }

    /// Where a server listens.
    pub fn listen_on(&self, test: &[TestOption]) -> Result<SocketAddr> {
        let host = self.bind.as_deref().unwrap_or("0.0.0.0");
        self.resolve(host, self.port, test, true)
    }

    /// Where a client connects from, if it matters.
    pub fn source(&self, test: &[TestOption]) -> Result<Option<SocketAddr>> {
        let bind = self.bind.as_deref();
        bind.map(|bind| self.resolve(bind, 0, test, true))
            .transpose()
    }

    /// Of several addresses of a name the first.
    fn resolve(
        &self,
        host: &str,
        port: u16,
        test: &[TestOption],
        passive: bool,
    ) -> Result<SocketAddr> {
        let failed = |reason: &dyn std::fmt::Display| format!("{host}: {reason}");
        let is_numeric = self.format == Some(AddressForm::Ip);
        if test.contains(&TestOption::Resolve) {
            let query = AddrInfoQuery::new().node(host).service(port.to_string());
            let query = query.port_space(PortSpace::Tcp);
            let query = if passive { query.passive() } else { query };
            let query = if is_numeric {
                query.numeric_host()
            } else {
                query
            };
            let found = query.resolve().map_err(|error| failed(&error))?;
            let first = found.first();
            let address = first.and_then(|info| match passive {
                true => info.source,
                false => info.destination,
            });
            let address = address.and_then(|address| address.ip());
            return Ok(address.ok_or_else(|| failed(&"no IP address"))?);
        }
        if is_numeric {
            let address: IpAddr = host.parse().map_err(|error| failed(&error))?;
            return Ok((address, port).into());
        }
        let mut found = (host, port)
            .to_socket_addrs()
            .map_err(|error| failed(&error))?;
        Ok(found
            .next()
            .ok_or_else(|| failed(&"the name has no address"))?)
    }

    pub fn plan(&self) -> Plan {
        let all_sizes = self.size == Some(Size::All);
        let size = match self.size {
            Some(Size::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        match (size, self.count, self.iterations) {
            (None, None, None) => Plan::Series { all_sizes },
            (size, transfers, iterations) => Plan::One {
                size: size.unwrap_or(DEFAULT_SIZE),
                transfers: transfers.unwrap_or(DEFAULT_TRANSFERS),
                iterations: iterations.unwrap_or(DEFAULT_ITERATIONS),
            },
        }
    }

    /// What is sent inline over a connection for this purpose; `None`: as usual.
    pub fn max_inline(&self, purpose: Purpose) -> Option<u16> {
        match purpose {
            Purpose::Latency => Some(self.inline_size),
            Purpose::Bandwidth => Some(0),
            Purpose::Custom => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Option<Options> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        let program = Program::try_parse_from(words).ok()?;
        Some(program.options)
    }

    fn parsed(line: &str) -> Options {
        parse(line).unwrap_or_else(|| panic!("{line} is refused"))
    }

    #[test]
    fn defaults_are_those_of_the_c_program() {
        let options = parsed("");
        assert_eq!(options.server(&[]).unwrap(), None);
        let address = options.listen_on(&[]).unwrap();
        assert_eq!(address, "0.0.0.0:7471".parse().unwrap());
        assert_eq!(options.plan(), Plan::Series { all_sizes: false });
        assert_eq!(options.buffer_size, 1 << 19);
        assert_eq!(options.max_inline(Purpose::Latency), Some(64));
        assert_eq!(options.max_inline(Purpose::Bandwidth), Some(0));
    }

    #[test]
    fn one_number_makes_one_measurement() {
        let one = |size, transfers, iterations| Plan::One {
            size,
            transfers,
            iterations,
        };
        assert_eq!(parsed("-S 64").plan(), one(64, 1000, 1));
        assert_eq!(parsed("-C 7").plan(), one(1000, 7, 1));
        assert_eq!(parsed("-I5 -S all").plan(), one(1000, 1000, 5));
        assert_eq!(parsed("-S ALL").plan(), Plan::Series { all_sizes: true });
    }

    #[test]
    fn test_options_are_letters_or_words_and_add_up() {
        let manner = |words: &str| {
            let test: std::result::Result<Vec<_>, _> =
                words.split(' ').map(TestOption::parse).collect();
            Manner::of(&test.unwrap())
        };
        assert_eq!(Manner::of(&[]), Manner::Spinning);
        assert_eq!(manner("b"), Manner::Blocking);
        assert_eq!(manner("blocking n"), Manner::Spinning);
        assert_eq!(manner("n b ASYNC"), Manner::Sleeping);
        assert_eq!(manner("a"), Manner::Polling);
        for word in ["x", "blo", "", "aa", "asy"] {
            assert!(TestOption::parse(word).is_err(), "{word}");
        }
    }

    #[test]
    fn addresses_in_text_are_resolved_each_way() {
        let resolve = &[TestOption::Resolve][..];
        for (line, test) in [
            ("-s ::1 -p 9", &[][..]),
            ("-s ::1 -p 9 -f ipv6", &[]),
            ("-s ::1 -p 9", resolve),
        ] {
            let server = parsed(line).server(test).unwrap();
            assert_eq!(server, Some("[::1]:9".parse().unwrap()), "{line}");
        }
        let source = parsed("-s ::1 -b 127.0.0.1").source(resolve).unwrap();
        assert_eq!(source, Some("127.0.0.1:0".parse().unwrap()));
        assert!(parsed("-s localhost -f ip").server(&[]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "-S 0", "-S most", "-C 0", "-I 0", "-I -1", "-f gid", "-f mac", "-p 70000", "-B 0",
            "server",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
