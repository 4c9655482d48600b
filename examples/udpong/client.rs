//! The client: logs in, and makes measurements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::Result;
use crate::args::Args;
use crate::measurement::{self, Measurement};
use crate::message::{self, Message, Purpose};
use crate::socket::Socket;

/// How long an answer may take before the message is sent again.
const LOGIN_PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(1);

/// After so long without an answer, the server is taken to be gone.
const LIMIT: Duration = Duration::from_secs(10);

/// Makes the measurements that the command line wants, and prints what came out.
pub fn run(args: &Args) -> Result<()> {
    let server = args.server()?;
    println!("{}", measurement::heading());
    let mut client = Client::log_in(args, server)?;
    for measurement in args.plan().measurements() {
        let (time, transfers) = client.measure(&measurement)?;
        println!("{}", measurement.line(transfers, time));
    }
    Ok(())
}

struct Client {
    socket: Socket,
    server: SocketAddr,
    /// The number that the server gave it.
    id: u8,
    /// That of the next message that is answered.
    number: u8,
    datagram: Vec<u8>,
}

impl Client {
    fn log_in(args: &Args, server: SocketAddr) -> Result<Self> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let any = SocketAddr::new(any, 0);
        let mut client = Self {
            socket: Socket::bind(any, args.kind(), args.manner(), args.buffer_size)?,
            server,
            id: 0,
            number: 0,
            datagram: vec![0; 2048],
        };
        client.id = client
            .ask(Purpose::Login, message::LENGTH, LOGIN_PATIENCE)?
            .client;
        Ok(client)
    }

    /// Makes a measurement. How long it took, and how many transfers arrived somewhere.
    fn measure(&mut self, measurement: &Measurement) -> Result<(Duration, u64)> {
        self.ask(Purpose::Start, message::LENGTH, LOGIN_PATIENCE)?;
        let start = Instant::now();
        for _ in 0..measurement.transfers {
            match measurement.echoes {
                true => self
                    .ask(Purpose::Echo, measurement.size, PATIENCE)
                    .map(drop),
                false => self.send(Purpose::Data, measurement.size),
            }?;
        }
        let end = self.ask(Purpose::End, message::LENGTH, PATIENCE)?;
        let transfers = match measurement.echoes {
            true => 2 * u64::from(measurement.transfers),
            false => end.count.into(),
        };
        Ok((start.elapsed(), transfers))
    }

    fn send(&mut self, purpose: Purpose, size: u32) -> Result<()> {
        let size = size as usize;
        if self.datagram.len() < size {
            self.datagram.resize(size, 0);
        }
        Message::new(purpose, self.id, self.number).write(&mut self.datagram);
        self.socket.send_to(&self.datagram[..size], self.server)?;
        Ok(())
    }

    /// Sends a message until its answer comes.
    fn ask(&mut self, purpose: Purpose, size: u32, patience: Duration) -> Result<Message> {
        let start = Instant::now();
        let mut answer = [0; 2048];
        while start.elapsed() < LIMIT {
            self.send(purpose, size)?;
            // Late answers to earlier messages have other numbers.
            while let Some((length, _)) = self.socket.recv_within(&mut answer, patience)? {
                let message = Message::read(&answer[..length]);
                if let Some(message) = message.filter(|message| message.number == self.number) {
                    self.number = self.number.wrapping_add(1);
                    return Ok(message);
                }
            }
        }
        Err(format!("{} does not answer", self.server).into())
    }
}
