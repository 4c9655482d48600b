//! The protocol of streams, as the C library's rsockets speak it, without any input or output.
//!
//! Each side has a receive buffer that the other writes to, in halves, and each message of data is a
//! write into the half that the peer was told of, with a number that says how many bytes it was.
//! Messages use up receives at the other side, and so need credit. What a reader has read is given
//! back to the peer: a half of the buffer by writing its address into a slot of the peer's, a credit
//! by a number.
//!
//! [`Protocol`] knows what is allowed and due. The link above it posts and polls. All that the peer
//! can write is checked here.

use std::fmt;

mod receiving;
mod sending;
mod under_way;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use receiving::Update;
pub(super) use under_way::{CONTROLS, UnderWay};
pub(super) use wire::{
    HELLO_LENGTH, Hello, MAPPING_LENGTH, Mapping, Message, Place, SLOT_LENGTH, SLOTS, scaled,
};

use receiving::Receiving;
use sending::Sending;

/// What a peer must not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Too little private data to be of a stream.
    ShortHello,
    /// Another version of the protocol.
    Version(u8),
    /// A peer without any room.
    NoRoom,
    /// More data than the peer was told that there is room for, or none.
    Data { length: u32, room: u32 },
    /// More messages than the peer was told that there is room for.
    Credit,
    /// A mapping beyond the table.
    Mapping(u32),
    /// A message that nobody knows.
    Message(u32),
    /// Data or an end after the peer said that it writes no more.
    AfterEnd,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortHello => f.write_str("the peer does not speak the protocol of streams"),
            Self::Version(version) => write!(
                f,
                "the peer speaks version {version} of the protocol of streams; this is version 1"
            ),
            Self::NoRoom => f.write_str("the peer has no room for messages"),
            Self::Data { length, room } => {
                write!(
                    f,
                    "the peer wrote {length} bytes where there was room for {room}"
                )
            }
            Self::Credit => f.write_str("the peer sent more messages than it may"),
            Self::Mapping(index) => {
                write!(
                    f,
                    "the peer mapped memory at {index}, which is not in the table"
                )
            }
            Self::Message(bits) => write!(f, "the peer sent the unknown message {bits:#010x}"),
            Self::AfterEnd => f.write_str("the peer sent more after it said that it ends"),
        }
    }
}

/// One side of a stream.
#[derive(Debug)]
pub(crate) struct Protocol {
    sending: Sending,
    receiving: Receiving,
    /// Places in this side's table of mapped memory.
    mappings: u16,
    /// Whether the program may still read and write, as far as it has said itself.
    reads: bool,
    writes: bool,
    /// How the peer has ended, if it has.
    peer: Peer,
    /// What is still to be told to the peer of this side's end.
    farewell: Option<Message>,
}

/// What the peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Reads and writes.
    Open,
    /// Has said that it writes no more.
    Reads,
    /// Has said that it is gone.
    Gone,
}

/// What this side has, for [`Protocol::new`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Bytes of each half of the receive buffer.
    pub half: u32,
    /// Messages that can be received before the receives are posted again.
    pub credits: u16,
    pub mappings: u16,
}

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// There is more to read, or room to write, or an end.
    Progress,
    /// Nothing.
    None,
}

impl Protocol {
    pub(crate) fn new(own: Own, peer: &Hello) -> Self {
        Self {
            sending: Sending::new(peer.credits, peer.buffer, SLOTS),
            receiving: Receiving::new(own.half, own.credits, peer.slots.length),
            mappings: own.mappings,
            reads: true,
            writes: true,
            peer: Peer::Open,
            farewell: None,
        }
    }

    /// Takes a message of the peer's.
    ///
    /// # Errors
    ///
    /// What no peer that keeps to the protocol sends.
    pub(crate) fn receive(&mut self, message: Message) -> Result<News, Violation> {
        match message {
            Message::Credit(limit) => self.sending.credit(limit),
            Message::Data(_) | Message::Shutdown | Message::Disconnect
                if self.peer == Peer::Gone =>
            {
                return Err(Violation::AfterEnd);
            }
            Message::Data(_) if self.peer == Peer::Reads => return Err(Violation::AfterEnd),
            Message::Data(length) => self.receiving.data(length)?,
            Message::Mapping(index) => {
                if index >= self.mappings.into() {
                    return Err(Violation::Mapping(index));
                }
                self.receiving.mapping()?;
                return Ok(News::None);
            }
            // Once this side has said that it writes no more either, nobody has anything to say.
            Message::Shutdown if self.writes || self.farewell.is_some() => {
                self.peer = Peer::Reads;
            }
            Message::Shutdown | Message::Disconnect => self.peer = Peer::Gone,
            Message::Unknown(bits) => return Err(Violation::Message(bits)),
        }
        Ok(News::Progress)
    }

    /// Ends reading, writing or both on this side. False when that was so already.
    pub(crate) fn shut_down(&mut self, read: bool, write: bool) -> bool {
        let (reads, writes) = (self.reads, self.writes);
        self.reads &= !read;
        self.writes &= !write;
        let is_news = (reads, writes) != (self.reads, self.writes);
        if self.peer == Peer::Gone || self.writes || !is_news {
            return is_news;
        }
        let peer_writes = self.peer == Peer::Open;
        self.farewell = Some(match self.reads && peer_writes {
            true => Message::Shutdown,
            false => Message::Disconnect,
        });
        is_news
    }

    /// Whether the program can write: neither side has ended that.
    pub(crate) fn is_writable(&self) -> bool {
        self.writes && self.peer != Peer::Gone
    }

    /// Whether the program ended reading itself.
    pub(crate) fn has_closed_reading(&self) -> bool {
        !self.reads
    }

    /// Whether the peer said that it writes no more: after what is unread comes the end.
    pub(crate) fn is_at_end(&self) -> bool {
        self.peer != Peer::Open
    }

    /// Whether the peer said that it is gone.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_peer_gone(&self) -> bool {
        self.peer == Peer::Gone
    }

    /// Whether both sides have nothing to say any more.
    pub(crate) fn is_over(&self) -> bool {
        let is_said = !self.writes && self.farewell.is_none();
        self.peer == Peer::Gone || is_said && self.peer == Peer::Reads
    }

    /// Bytes that can be read.
    pub(crate) fn unread(&self) -> usize {
        self.receiving.unread()
    }

    /// The first of them in the receive buffer: offset and length.
    pub(crate) fn first(&self) -> (usize, usize) {
        self.receiving.first()
    }

    /// Takes note that so many were read.
    pub(crate) fn consume(&mut self, length: usize) {
        self.receiving.consume(length);
    }

    /// The longest message of data that the peer has room for; 0 where it may not be sent.
    pub(crate) fn room(&self) -> usize {
        match self.is_writable() {
            true => self.sending.room() as usize,
            false => 0,
        }
    }

    /// Takes a message of data into account, and says where to write it.
    pub(crate) fn data(&mut self, length: usize) -> Place {
        self.sending.data(length as u32)
    }

    /// Takes a message about mapped memory into account. False where there is no credit for one.
    pub(crate) fn map(&mut self) -> bool {
        let may = self.is_writable() && self.sending.has_credit();
        if may {
            self.sending.mapping();
        }
        may
    }

    /// The slot of this side's that is to be looked at.
    pub(crate) fn wanted_slot(&self) -> Option<u32> {
        self.sending.wanted_slot()
    }

    /// What was found there.
    pub(crate) fn take_slot(&mut self, place: Place) {
        self.sending.take_slot(place);
    }

    /// What to tell the peer of room, if that is due. A peer that is gone, or writes no more, wants to
    /// know nothing.
    pub(crate) fn update(&mut self) -> Option<Update> {
        match self.peer == Peer::Open {
            true => self.receiving.update(),
            false => None,
        }
    }

    /// Whether there is something to tell the peer.
    pub(crate) fn has_news(&self) -> bool {
        let is_update_due = self.peer == Peer::Open && self.receiving.is_update_due();
        is_update_due || self.farewell.is_some() && self.peer != Peer::Gone
    }

    /// What to tell the peer of this side's end, if that is due.
    pub(crate) fn farewell(&mut self) -> Option<Message> {
        let farewell = self.farewell.take();
        farewell.filter(|_| self.peer != Peer::Gone)
    }
}
