//! How the two sides of a test find each other and keep in step.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::host::Host;
use crate::environment;

/// How long the other host may be behind.
const PATIENCE: Duration = Duration::from_secs(200);

const PORT: u16 = 9990;

/// A TCP connection between the two sides of a test. It uses the IPv6 addresses: the tests do things
/// to the way between the IPv4 addresses.
pub struct Link {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Link {
    /// Waits for the other side of the same test.
    pub fn open(test: &str) -> Result<Self, Box<dyn Error>> {
        let stream = match Host::own() {
            Host::A => accept((environment::addr6(), PORT).into())?,
            Host::B => connect(environment::peer_addr6())?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut link = Self {
            reader: BufReader::new(stream.try_clone()?),
            writer: stream,
        };
        link.tell(test)?;
        let other = link.hear()?;
        match other == test {
            true => Ok(link),
            false => Err(format!("the other host runs {other} instead of {test}").into()),
        }
    }

    /// Tells the other side something, in one line.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        self.writer.write_all(format!("{line}\n").as_bytes())
    }

    /// What the other side tells. Its end is an error.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(io::Error::other("the other host gave the test up")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// As [`Link::hear`], of something that may take so long.
    pub fn hear_within(&mut self, patience: Duration) -> io::Result<String> {
        self.writer.set_read_timeout(Some(patience))?;
        let heard = self.hear();
        self.writer.set_read_timeout(Some(PATIENCE))?;
        heard
    }

    /// Waits until both sides are here.
    pub fn meet(&mut self, place: &str) -> io::Result<()> {
        self.tell(place)?;
        let other = self.hear()?;
        match other == place {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "the other host is at {other:?} instead of {place:?}"
            ))),
        }
    }

    /// Tells an address.
    pub fn tell_address(&mut self, address: SocketAddr) -> io::Result<()> {
        self.tell(&address.to_string())
    }

    /// Hears an address.
    pub fn hear_address(&mut self) -> io::Result<SocketAddr> {
        self.hear()?.parse().map_err(io::Error::other)
    }
}

fn accept(address: SocketAddr) -> io::Result<TcpStream> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let stream = until_done(|| listener.accept())?.0;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn connect(ip: IpAddr) -> io::Result<TcpStream> {
    let address = (ip, PORT).into();
    until_done(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)))
}

/// Tries until it works or the other host's time is up.
fn until_done<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() >= deadline => {
                let text = format!("the other host does not come: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}
