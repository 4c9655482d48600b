//! Transfers over a stream.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::Result;
use crate::measured::{Manner, Measurement, Verification};
use crate::stream::{Side, Stream};

/// Bytes that both send before a measurement.
const GREETING: usize = 16;

/// One side of the transfers of a connection.
pub struct Exchange<'a> {
    pub stream: &'a Stream,
    pub manner: Manner,
    /// Whether this side sends first.
    pub is_client: bool,
    pub verification: Option<&'a mut Verification>,
}

impl Exchange<'_> {
    /// Makes a measurement. How long it took.
    pub fn measure(&mut self, measurement: &Measurement) -> Result<Duration> {
        let size = measurement.size as usize;
        let mut bytes = vec![0; size.max(GREETING)];
        self.both_ways(&mut bytes[..GREETING], 1)?;
        let start = Instant::now();
        for _ in 0..measurement.iterations {
            self.both_ways(&mut bytes[..size], measurement.transfers)?;
        }
        Ok(start.elapsed())
    }

    /// Waits until the peer has ended the stream.
    pub fn await_end(&self) -> Result<()> {
        loop {
            match self.stream.read(&mut [0]) {
                Err(error) if is_for_later(error.kind()) => {
                    self.stream.wait(Side::Read, self.manner)?;
                }
                Ok(1..) => return Err("the peer sends more than it was to".into()),
                // A peer that is lost has got all by now, or says so itself.
                Ok(0) | Err(_) => return Ok(()),
            }
        }
    }

    fn both_ways(&mut self, bytes: &mut [u8], transfers: u32) -> Result<()> {
        for sends in [self.is_client, !self.is_client] {
            for _ in 0..transfers {
                match sends {
                    true => self.send(bytes)?,
                    false => self.receive(bytes)?,
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &mut [u8]) -> Result<()> {
        if let Some(verification) = &mut self.verification {
            verification.fill(bytes);
        }
        let mut at = 0;
        while at < bytes.len() {
            match self.stream.write(&bytes[at..]) {
                Ok(0) => return Err("the stream takes no more".into()),
                Ok(length) => at += length,
                Err(error) if is_for_later(error.kind()) => {
                    self.stream.wait(Side::Write, self.manner)?
                }
                Err(error) => return Err(format!("sending: {error}").into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            match self.stream.read(&mut bytes[at..]) {
                Ok(0) => return Err("the peer ended the stream".into()),
                Ok(length) => at += length,
                Err(error) if is_for_later(error.kind()) => {
                    self.stream.wait(Side::Read, self.manner)?
                }
                Err(error) => return Err(format!("receiving: {error}").into()),
            }
        }
        if let Some(verification) = &mut self.verification {
            verification.check(bytes)?;
        }
        Ok(())
    }
}

fn is_for_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    fn pair(manner: Manner) -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let [client, server] = [client, server].map(|stream| {
            stream.set_nonblocking(manner != Manner::Blocking).unwrap();
            Stream::Tcp(stream)
        });
        (client, server)
    }

    fn run(
        manner: Manner,
        of_client: Measurement,
        of_server: Measurement,
    ) -> [Result<Duration>; 2] {
        let (client, server) = pair(manner);
        let side = |stream: Stream, is_client: bool, measurement: Measurement| {
            let mut verification = Verification::default();
            let mut exchange = Exchange {
                stream: &stream,
                manner,
                is_client,
                verification: Some(&mut verification),
            };
            exchange.measure(&measurement)
        };
        thread::scope(|scope| {
            let server = scope.spawn(|| side(server, false, of_server));
            let client = side(client, true, of_client);
            [client, server.join().unwrap()]
        })
    }

    fn measurement(size: u32) -> Measurement {
        Measurement {
            name: "custom".to_owned(),
            size,
            transfers: 3,
            iterations: 2,
        }
    }

    #[test]
    fn both_sides_come_to_the_end_in_each_manner() {
        for manner in [
            Manner::Blocking,
            Manner::Spinning,
            Manner::Polling,
            Manner::Sleeping,
        ] {
            for ended in run(manner, measurement(300_000), measurement(300_000)) {
                ended.unwrap_or_else(|error| panic!("{manner:?}: {error}"));
            }
        }
    }

    #[test]
    fn a_peer_that_ends_early_is_told() {
        let once = Measurement {
            iterations: 1,
            ..measurement(100)
        };
        let [client, server] = run(Manner::Blocking, once, measurement(100));
        client.unwrap();
        let error = server.unwrap_err();
        assert_eq!(error.to_string(), "the peer ended the stream");
    }

    #[test]
    fn a_server_waits_for_the_end_and_nothing_else() {
        for manner in [Manner::Blocking, Manner::Sleeping] {
            for says in [&b""[..], b"more"] {
                let (client, server) = pair(manner);
                let exchange = Exchange {
                    stream: &server,
                    manner,
                    is_client: false,
                    verification: None,
                };
                let ended = thread::scope(|scope| {
                    let waiting = scope.spawn(|| exchange.await_end());
                    client.write(says).unwrap();
                    client.end();
                    waiting.join().unwrap()
                });
                assert_eq!(ended.is_ok(), says.is_empty(), "{manner:?}");
            }
        }
    }
}
