//! Datagrams that came and were not read yet.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::interface::{Interface, Place};
use crate::error::Result;

/// In the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    received: VecDeque<Received>,
    /// How many of them have memory of their own.
    copies: usize,
}

#[derive(Debug)]
struct Received {
    from: SocketAddr,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// In memory of the interface with a local address.
    Slot(SocketAddr, Place),
    Copy(Vec<u8>),
}

impl Inbox {
    /// How many came over UDP and are to be read. Those of queue pairs have a place there anyway.
    const MOST_COPIES: usize = 64;

    pub(super) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Whether another one that comes over UDP has room.
    pub(super) fn has_room(&self) -> bool {
        self.copies < Self::MOST_COPIES
    }

    pub(super) fn add_copy(&mut self, from: SocketAddr, data: &[u8]) {
        self.copies += 1;
        self.add(from, Content::Copy(data.to_vec()));
    }

    pub(super) fn add_slot(&mut self, from: SocketAddr, local: SocketAddr, place: Place) {
        self.add(from, Content::Slot(local, place));
    }

    fn add(&mut self, from: SocketAddr, content: Content) {
        self.received.push_back(Received { from, content });
    }

    /// Copies the first, as much as fits.
    pub(super) fn peek(
        &self,
        interfaces: &[Interface],
        bytes: &mut [u8],
    ) -> Result<Option<(usize, SocketAddr)>> {
        let Some(first) = self.received.front() else {
            return Ok(None);
        };
        let length = match &first.content {
            Content::Copy(data) => {
                let length = data.len().min(bytes.len());
                bytes[..length].copy_from_slice(&data[..length]);
                length
            }
            // An interface that goes takes its datagrams out of its memory.
            Content::Slot(local, place) => match find(interfaces, *local) {
                Some(at) => interfaces[at].read(*place, bytes)?,
                None => 0,
            },
        };
        Ok(Some((length, first.from)))
    }

    /// Takes the first out; its place is for the next.
    pub(super) fn pop(&mut self, interfaces: &mut [Interface]) {
        match self.received.pop_front().map(|first| first.content) {
            Some(Content::Copy(_)) => self.copies -= 1,
            Some(Content::Slot(local, place)) => {
                if let Some(at) = find(interfaces, local) {
                    interfaces[at].take_back(place);
                }
            }
            None => {}
        }
    }

    /// Copies what is in the memory of an interface that goes.
    pub(super) fn save(&mut self, interface: &Interface) {
        for received in &mut self.received {
            if let Content::Slot(local, place) = received.content
                && local == interface.local()
            {
                let mut data = vec![0; place.length];
                // It can always be read: the place was checked when it was made.
                let length = interface.read(place, &mut data).unwrap_or(0);
                data.truncate(length);
                received.content = Content::Copy(data);
                self.copies += 1;
            }
        }
    }
}

/// The interface of a local address.
pub(super) fn find(interfaces: &[Interface], local: SocketAddr) -> Option<usize> {
    interfaces
        .iter()
        .position(|interface| interface.local() == local)
}
