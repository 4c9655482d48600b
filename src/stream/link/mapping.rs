//! Memory beside the stream: what this side gives the peer to write to, and what the peer has given.

use std::io;

use super::super::ending;
use super::super::mapped::no_place;
use super::super::protocol::{Mapping, Message, Place, SLOT_LENGTH};
use super::{LONGEST, Link, SCRAP};
use crate::error::Result;
use crate::fastpath::RemoteAddress;

impl Link {
    /// Tells the peer of memory that it may write to, at a place of its table. False: not yet.
    pub(in crate::stream) fn map(
        &mut self,
        (index, mapping): (u16, Mapping),
    ) -> io::Result<Option<()>> {
        self.check_writable()?;
        let each = self.each();
        let entry = mapping.to_entry(self.peer.is_big_endian);
        let has_room = self.may_speak()
            && self.under_way.has_room(each)
            && self.under_way.buffer_room() >= entry.len();
        if !has_room || !self.protocol.map() {
            return Ok(None);
        }
        let slots = self.peer.slots;
        let table = u64::from(slots.length) * SLOT_LENGTH as u64;
        let to = RemoteAddress {
            address: slots.address,
            rkey: slots.rkey,
        };
        let to = to.at(table + u64::from(index) * entry.len() as u64);
        let message = Message::Mapping(index.into());
        self.post_copied(Some(message), to, &entry)
            .map_err(|error| self.refused(error))?;
        Ok(Some(()))
    }

    /// Writes into memory that the peer has mapped, as much as there is room for. `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// An offset at which the peer has mapped nothing, and as for [`Link::write`].
    pub(in crate::stream) fn write_mapped(
        &mut self,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        self.check_writable()?;
        let mut written = 0;
        while written < bytes.len() {
            let offset = offset.wrapping_add(written as u64);
            let Some(place) = self.find_mapping(offset)? else {
                return match written {
                    0 => Err(ending::of_unmapped(offset)),
                    _ => Ok(Some(written)),
                };
            };
            let rest = (bytes.len() - written)
                .min(place.length as usize)
                .min(LONGEST);
            let room = self.under_way.buffer_room();
            if !self.may_speak() || !self.under_way.has_room(1) || room < rest.min(SCRAP) {
                break;
            }
            let to = RemoteAddress {
                address: place.address,
                rkey: place.rkey,
            };
            let length = rest.min(room);
            self.post_copied(None, to, &bytes[written..written + length])
                .map_err(|error| self.refused(error))?;
            written += length;
        }
        Ok((written > 0 || bytes.is_empty()).then_some(written))
    }

    fn find_mapping(&self, offset: u64) -> Result<Option<Place>> {
        for index in 0..self.queues.own.mappings {
            if let Some(place) = self.queues.mapping(index)?.at(offset) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Takes a place in the peer's table of mapped memory.
    pub(in crate::stream) fn take_place(&mut self) -> io::Result<u16> {
        let places = 0..self.peer.mappings;
        let free = places
            .into_iter()
            .find(|index| !self.mapped.contains(index));
        let index = free.ok_or_else(|| no_place(self.peer.mappings))?;
        self.mapped.insert(index);
        Ok(index)
    }

    /// Lets a place be used again.
    pub(in crate::stream) fn give_place_back(&mut self, index: u16) {
        self.mapped.remove(&index);
    }
}
