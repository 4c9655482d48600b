//! A stream's peer that is made by hand: it keeps to the handshake, and to nothing more.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use rdmacm::{
    Buffer, ConnParam, EventChannel, RdmaListener, RdmaStream, RemoteAddress, Result as RdmaResult,
};

use crate::pair::{End, PATIENCE, Plan, resolve};

pub struct HandMade {
    end: End,
    /// Where it has its board and its receive buffer.
    memory: Buffer,
    key: Key,
}

/// Whether the peer tells the true key of its receive buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key {
    True,
    False,
}

/// Bytes of the board, and of the first half of the buffer.
const PART: usize = 1024;

/// How many messages it has room for.
const CREDITS: u16 = 64;

impl HandMade {
    /// A peer that is about to ask for a connection, and needs no descriptor for that any more.
    pub fn prepare(to: SocketAddr, key: Key) -> RdmaResult<Self> {
        let plan = Plan {
            recv_depth: CREDITS.into(),
            ..Plan::default()
        };
        let channel = EventChannel::open()?;
        let mut end = plan.end(resolve(&channel, to)?, channel)?;
        let memory = end.buffer(2 * PART)?;
        for number in 0..u64::from(CREDITS) {
            end.post_recv(number, &memory)?;
        }
        Ok(Self { end, memory, key })
    }

    /// Asks for the connection.
    pub fn ask(&self) -> RdmaResult<()> {
        let asked = ConnParam::new().rnr_retry_count(7);
        self.end.id.connect(&asked.private_data(&self.hello())?)
    }

    /// Waits for the event that answers: its name in the C library.
    pub fn answer(&self) -> RdmaResult<&'static str> {
        Ok(self.end.channel.next_event(Some(PATIENCE))?.name())
    }

    /// The peer of a stream that is accepted.
    pub fn connect(
        listener: &RdmaListener,
        to: SocketAddr,
        key: Key,
    ) -> Result<(Self, RdmaStream), Box<dyn Error>> {
        let peer = Self::prepare(to, key)?;
        peer.ask()?;
        assert_eq!(peer.answer()?, "ESTABLISHED");
        let (stream, _) = listener.accept_timeout(PATIENCE)?;
        Ok((peer, stream))
    }

    /// Writes to where the other side has nothing. Says when.
    pub fn write_anywhere(&mut self) -> io::Result<Instant> {
        let segment = self.memory.slice(..8)?;
        let nowhere = RemoteAddress {
            address: 0x1000,
            rkey: 1,
        };
        let now = Instant::now();
        let posted = self
            .end
            .post(|batch| batch.write(1, nowhere).signaled().from(&[segment]));
        posted.map_err(io::Error::other)?;
        Ok(now)
    }

    /// The connection data of a stream of version 1: credits, where the board is and where the buffer.
    fn hello(&self) -> [u8; 40] {
        let remote = self.memory.remote();
        let place = |at: u64, length: u32, rkey: u32| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(remote.address + at).to_be_bytes());
            bytes[8..12].copy_from_slice(&rkey.to_be_bytes());
            bytes[12..].copy_from_slice(&length.to_be_bytes());
            bytes
        };
        let rkey = match self.key {
            Key::True => remote.rkey,
            Key::False => remote.rkey ^ 1,
        };
        let mut hello = [0; 40];
        hello[0] = 1;
        hello[2..4].copy_from_slice(&CREDITS.to_be_bytes());
        // The board has two slots.
        hello[8..24].copy_from_slice(&place(0, 2, remote.rkey));
        hello[24..].copy_from_slice(&place(PART as u64, PART as u32, rkey));
        hello
    }
}
