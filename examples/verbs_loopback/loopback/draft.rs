//! A round that is being planned: which places its requests use, and what they bring.

use rdmacm::SendFlags;

use super::memory::{LONGEST, Places, is_short_and_crosses};
use super::plan::Planner;
use super::request::{Action, Data, Place, Receive, Round, Target};

/// What is known while a round is planned.
pub struct Draft {
    pub round: Round,
    pub places: [Places; 2],
    /// The windows that a request of the round names.
    pub named: [Vec<bool>; 2],
    /// Where each side's last request worked at the peer, and whether it read.
    pub last: [Option<(Place, bool)>; 2],
    /// The longest message.
    pub longest: usize,
}

impl Planner {
    /// A place at the peer that no other request uses, or that of this side's last request: those of
    /// one queue pair come one after the other, but behind reads only with a fence.
    pub(super) fn place_at_peer(
        &mut self,
        draft: &mut Draft,
        side: usize,
        length: usize,
        align: usize,
    ) -> Option<(Place, SendFlags)> {
        if let Some((last, was_read)) = draft.last[side].clone()
            && last.start % align == 0
            && (align == 1 || last.len() >= length)
            && (!was_read || self.abilities.has_fenced_reads)
            && self.random.once_in(4)
        {
            let fence = match was_read {
                true => SendFlags::FENCE,
                false => SendFlags::empty(),
            };
            let place = last.start..last.start + length.min(last.len());
            if self.abilities.crosses_pages || !is_short_and_crosses(&place) {
                return Some((place, fence));
            }
        }
        let place = draft.places[1 - side].take(&mut self.random, length, align)?;
        Some((place, SendFlags::empty()))
    }

    /// How to name a place at the peer: through a window that is open there, by chance.
    pub(super) fn target(&mut self, draft: &mut Draft, side: usize, place: &Place) -> Target {
        let peer = 1 - side;
        let at = place.start;
        let opens = |open: &Option<Place>| {
            let reaches = |open: &Place| open.start <= place.start && place.end <= open.end;
            open.as_ref().is_some_and(reaches)
        };
        let mut windows = Vec::new();
        for (window, open) in self.windows[peer].iter().enumerate() {
            let is_changed = draft.round.requests[peer].iter().any(|request| {
                matches!(&request.action, Action::Bind { window: named, .. } if *named == window)
            });
            if opens(open) && !is_changed {
                windows.push(window);
            }
        }
        if windows.is_empty() || self.random.once_in(2) {
            return Target { at, window: None };
        }
        let window = self.random.pick(&windows);
        draft.named[peer][window] = true;
        Target {
            at,
            window: Some(window),
        }
    }

    /// The bytes of a message, which are put where it comes from.
    pub(super) fn data(
        &mut self,
        draft: &mut Draft,
        side: usize,
        length: usize,
    ) -> Option<(Data, Vec<u8>)> {
        let bytes = self.random.bytes(length);
        if length <= self.abilities.inline && self.random.once_in(2) {
            return Some((Data::Inline(bytes.clone()), bytes));
        }
        let parts = match length == 0 && self.random.once_in(2) {
            true => return Some((Data::Segments(Vec::new()), bytes)),
            false => 1 + self.random.below(self.abilities.send_segments),
        };
        let places = draft.places[side].take_parts(&mut self.random, length, parts)?;
        let mut rest = &bytes[..];
        for place in &places {
            let (here, behind) = rest.split_at(place.len());
            self.memory.write(side, place.start, here);
            draft.round.fills.push((side, place.start, here.to_vec()));
            rest = behind;
        }
        Some((Data::Segments(places), bytes))
    }

    /// A receive for a message of so many bytes.
    pub(super) fn add_receive(
        &mut self,
        draft: &mut Draft,
        side: usize,
        length: usize,
    ) -> Option<()> {
        let (side, room) = match self.abilities.shares_receives {
            true => (self.random.below(2), draft.longest),
            false => (side, length + self.random.below(64)),
        };
        let header = self.abilities.header;
        let mut places = Vec::new();
        if header > 0 {
            places.push(draft.places[side].take(&mut self.random, header, 1)?);
        }
        let parts = 1 + self
            .random
            .below(self.abilities.receive_segments - places.len());
        places.extend(draft.places[side].take_parts(&mut self.random, room, parts)?);
        draft.round.receives[side].push(Receive { side, places });
        Some(())
    }

    /// A length for which something may be special, or any.
    pub(super) fn length(&mut self, most: usize) -> usize {
        let (inline, mtu) = (self.abilities.inline, self.abilities.mtu);
        let length = match self.random.below(12) {
            0 => self.random.below(2),
            1 => inline.saturating_sub(1),
            2 => inline,
            3 => inline + 1,
            4 => mtu - 1 + self.random.below(3),
            5 => self.random.below(LONGEST + 1),
            6 if self.random.once_in(4) => LONGEST,
            7 | 8 => self.random.below(4096),
            _ => self.random.below(256),
        };
        length.min(most)
    }
}
