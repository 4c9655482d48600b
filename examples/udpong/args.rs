//! The command line: the options of the C program.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use clap::{Parser, value_parser};

use crate::Result;
use crate::measurement::Plan;
use crate::message;
use crate::short::named;
use crate::socket::{Kind, Manner};

/// Measures datagrams over RDMA. Without `-s` it is the server.
///
/// -S or -C make one measurement, in which what is not told is 1000 bytes and 1000 transfers. Without
/// them there is a series, of latency and of bandwidth.
#[derive(Debug, Parser)]
#[command(
    name = "udpong",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Be a client of the server with this address or name
    #[arg(short, value_name = "ADDR")]
    server: Option<String>,

    /// Address to bind to, as the server
    #[arg(short, value_name = "ADDR")]
    bind: Option<String>,

    /// Bytes of the buffers for sending and receiving
    #[arg(short = 'B', value_name = "BYTES", default_value_t = 1 << 19)]
    pub buffer_size: u32,

    /// Transfers of the measurement
    #[arg(short = 'C', value_name = "COUNT")]
    count: Option<u32>,

    /// Bytes of a transfer
    #[arg(short = 'S', value_name = "BYTES", value_parser = value_parser!(u32).range(i64::from(message::LENGTH)..))]
    size: Option<u32>,

    /// Port
    #[arg(short, default_value_t = 7174)]
    port: u16,

    /// s|sockets (UDP without RDMA), a|async (an event loop), b|blocking, n|nonblocking (calls that do
    /// not wait, again and again; the default), e|echo (the server echoes all messages)
    #[arg(short = 'T', value_name = "OPTION", value_parser = TestOption::parse)]
    test: Vec<TestOption>,
}

/// What `-T` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestOption {
    Sockets,
    Async,
    Blocking,
    Nonblocking,
    Echo,
}

impl TestOption {
    /// One letter, or a word of which the beginning counts.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let options = [
            ("s", "socket", Self::Sockets),
            ("a", "async", Self::Async),
            ("b", "block", Self::Blocking),
            ("n", "nonblock", Self::Nonblocking),
            ("e", "echo", Self::Echo),
        ];
        named(&options, text).ok_or_else(|| "no such test option".to_owned())
    }
}

impl Args {
    pub fn is_client(&self) -> bool {
        self.server.is_some()
    }

    /// Where the server is.
    pub fn server(&self) -> Result<SocketAddr> {
        let name = self.server.as_deref().unwrap_or_default();
        first(name, self.port)
    }

    /// Where to bind to, as the server.
    pub fn bind_to(&self) -> Result<SocketAddr> {
        match &self.bind {
            Some(name) => first(name, self.port),
            None => Ok((Ipv4Addr::UNSPECIFIED, self.port).into()),
        }
    }

    fn has(&self, option: TestOption) -> bool {
        self.test.contains(&option)
    }

    pub fn kind(&self) -> Kind {
        match self.has(TestOption::Sockets) {
            true => Kind::Udp,
            false => Kind::Rdma,
        }
    }

    pub fn manner(&self) -> Manner {
        let waits = [TestOption::Blocking, TestOption::Nonblocking];
        let last = self.test.iter().rfind(|option| waits.contains(option));
        match last {
            _ if self.has(TestOption::Async) => Manner::EventLoop,
            Some(TestOption::Blocking) => Manner::Blocking,
            _ => Manner::Nonblocking,
        }
    }

    pub fn plan(&self) -> Plan {
        match (self.count, self.size) {
            (None, None) => Plan::Series,
            (count, size) => Plan::One {
                size: size.unwrap_or(1000),
                transfers: count.unwrap_or(1000),
                echoes: self.has(TestOption::Echo),
            },
        }
    }
}

fn first(name: &str, port: u16) -> Result<SocketAddr> {
    let mut found = (name, port)
        .to_socket_addrs()
        .map_err(|error| format!("{name}: {error}"))?;
    Ok(found.next().ok_or("the name has no address")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("udpong").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_server_has_the_defaults_of_the_c_program() {
        let args = parse("").unwrap();
        assert!(!args.is_client());
        assert_eq!(args.bind_to().unwrap().to_string(), "0.0.0.0:7174");
        assert_eq!(args.buffer_size, 1 << 19);
        assert_eq!(
            (args.kind(), args.manner()),
            (Kind::Rdma, Manner::Nonblocking)
        );
        assert_eq!(args.plan(), Plan::Series);
    }

    #[test]
    fn a_client_says_what_is_measured() {
        let args = parse("-s 10.10.0.1 -p 9 -C 20 -T s -T Echo -T blocking").unwrap();
        assert_eq!(args.server().unwrap().to_string(), "10.10.0.1:9");
        assert_eq!((args.kind(), args.manner()), (Kind::Udp, Manner::Blocking));
        let plan = Plan::One {
            size: 1000,
            transfers: 20,
            echoes: true,
        };
        assert_eq!(args.plan(), plan);
    }

    #[test]
    fn options_are_letters_or_beginnings_of_words() {
        let manner = |line| parse(line).map(|args| args.manner());
        assert_eq!(manner("-T b -T nonblocking"), Some(Manner::Nonblocking));
        assert_eq!(manner("-T a -T b"), Some(Manner::EventLoop));
        for wrong in ["-T x", "-T B", "-T asy", "-T ''", "-S 15"] {
            assert_eq!(manner(wrong), None, "{wrong}");
        }
    }
}
