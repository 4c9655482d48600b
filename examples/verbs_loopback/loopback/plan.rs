//! Random requests, and what they make of the memory.

use rdmacm::{MwType, Opcode, QpType, SendFlags};

use super::draft::Draft;
use super::memory::{LENGTH, LONGEST, Memory, Places};
use super::random::Random;
use super::request::{Action, Message, Place, Request, Round, Target};

/// What requests can be: by the service, the device and what the queue pairs were granted.
#[derive(Debug, Clone)]
pub struct Abilities {
    pub service: QpType,
    pub has_immediate: bool,
    pub has_atomics: bool,
    pub has_atomic_write: bool,
    pub has_flush: bool,
    pub has_fence: bool,
    /// A read may wait for those before it.
    pub has_fenced_reads: bool,
    /// Whether short messages may come from two pages.
    pub crosses_pages: bool,
    /// Bytes of the shortest read.
    pub least_read: usize,
    /// Whether requests complete in the order in which they were posted.
    pub completes_in_order: bool,
    /// The types of the windows of each side.
    pub windows: Vec<MwType>,
    /// A completion says that the peer has all that was sent before.
    pub tells_arrival: bool,
    /// Receives come from a queue that both sides share.
    pub shares_receives: bool,
    /// Bytes that a device puts in front of each message.
    pub header: usize,
    pub inline: usize,
    pub send_segments: usize,
    pub read_segments: usize,
    pub receive_segments: usize,
    pub mtu: usize,
    /// Requests of a side that may be outstanding.
    pub depth: usize,
}

/// Plans round after round, and knows what the memory is to hold after each.
pub struct Planner {
    pub random: Random,
    pub memory: Memory,
    pub abilities: Abilities,
    /// Which places each side's windows open.
    pub windows: [Vec<Option<Place>>; 2],
}

/// Adds a request to a draft. `None` when there is no room for it.
type Plan = fn(&mut Planner, &mut Draft, usize) -> Option<()>;

impl Planner {
    pub fn new(mut random: Random, abilities: Abilities) -> Self {
        let closed = vec![None; abilities.windows.len()];
        Self {
            memory: Memory::new(&mut random),
            random,
            windows: [closed.clone(), closed],
            abilities,
        }
    }

    /// A round of at most so many requests. It has at least one.
    pub fn round(&mut self, most: usize) -> Round {
        let mut draft = self.draft();
        // Mostly a few, sometimes as many as fit.
        let room = self.abilities.depth - 1;
        let count = match self.random.once_in(8) {
            true => 2 * room,
            false => 1 + self.random.below(16),
        };
        for _ in 0..count.min(most) {
            let side = self.random.below(2);
            if draft.round.requests[side].len() < room {
                self.add_any(&mut draft, side);
            }
        }
        if draft.round.requests.iter().all(Vec::is_empty) {
            self.add_message(&mut draft, 0, 0);
        }
        for side in 0..2 {
            self.finish(&mut draft, side);
        }
        draft.round
    }

    fn draft(&mut self) -> Draft {
        let random = &mut self.random;
        let crosses_pages = self.abilities.crosses_pages;
        let unnamed = vec![false; self.abilities.windows.len()];
        Draft {
            round: Round::default(),
            places: [0, 1].map(|_| Places::new(random, crosses_pages)),
            named: [unnamed.clone(), unnamed],
            last: [None, None],
            longest: match self.abilities.shares_receives {
                true => random.pick(&[16, 200, 4096]),
                false => LONGEST,
            },
        }
    }

    /// A round of one message, from the first side.
    pub fn hello(&mut self) -> Round {
        let mut draft = self.draft();
        self.add_message(&mut draft, 0, 5);
        self.finish(&mut draft, 0);
        draft.round
    }

    /// The last request of a side says that all are over, here and at the peer.
    fn finish(&mut self, draft: &mut Draft, side: usize) {
        if draft.round.requests[side].is_empty() {
            return;
        }
        if !self.abilities.tells_arrival {
            draft.places.iter_mut().for_each(Places::open_reserve);
            self.add_message(draft, side, 0);
        }
        if let Some(last) = draft.round.requests[side].last_mut() {
            last.flags |= SendFlags::SIGNALED;
        }
    }

    /// Adds some request, unless there is no room for it.
    fn add_any(&mut self, draft: &mut Draft, side: usize) {
        let abilities = &self.abilities;
        let is_reliable = abilities.service == QpType::Rc;
        let mut kinds: Vec<Plan> = vec![Self::send];
        if abilities.service != QpType::Ud {
            kinds.extend([Self::send, Self::write, Self::write]);
        }
        if is_reliable {
            kinds.extend([Self::read as Plan; 2]);
        }
        if abilities.has_atomics {
            kinds.extend([Self::compare_swap, Self::fetch_add]);
        }
        if abilities.has_atomic_write {
            kinds.push(Self::atomic_write);
        }
        if abilities.has_flush {
            kinds.push(Self::flush);
        }
        if !abilities.windows.is_empty() {
            kinds.extend([Self::change_window as Plan; 2]);
        }
        let plan = self.random.pick(&kinds);
        // Without room for it there is one request less.
        let _ = plan(self, draft, side);
    }

    fn send(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let length = self.length(draft.longest);
        self.add_message(draft, side, length)
    }

    /// A message, whose receive must have room for it.
    fn add_message(&mut self, draft: &mut Draft, side: usize, length: usize) -> Option<()> {
        let abilities = &self.abilities;
        let length = match abilities.service {
            QpType::Ud => length.min(abilities.mtu),
            _ => length,
        };
        let closes = self.window_to_close(draft, 1 - side);
        let has_immediate = self.abilities.has_immediate && closes.is_none();
        let immediate =
            (has_immediate && self.random.once_in(2)).then(|| self.random.next() as u32);
        let (data, bytes) = self.data(draft, side, length)?;
        self.add_receive(draft, 1 - side, length)?;
        if let Some(window) = closes {
            draft.named[1 - side][window] = true;
            self.windows[1 - side][window] = None;
        }
        draft.round.messages[1 - side].push_back(Message {
            bytes,
            length: length + self.abilities.header,
            opcode: Opcode::Receive,
            immediate,
            closed: closes,
        });
        let action = Action::Send {
            data,
            immediate,
            closes,
        };
        self.add(draft, side, action, length, SendFlags::SOLICITED);
        Some(())
    }

    fn write(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let length = self.length(LONGEST);
        let (place, fence) = self.place_at_peer(draft, side, length, 1)?;
        let (data, bytes) = self.data(draft, side, place.len())?;
        let immediate = (self.abilities.has_immediate && self.random.once_in(3))
            .then(|| self.random.next() as u32);
        if immediate.is_some() {
            self.add_receive(draft, 1 - side, 0)?;
            draft.round.messages[1 - side].push_back(Message {
                bytes: Vec::new(),
                length: bytes.len(),
                opcode: Opcode::ReceiveWriteImmediate,
                immediate,
                closed: None,
            });
        }
        self.memory.write(1 - side, place.start, &bytes);
        let to = self.target(draft, side, &place);
        let action = Action::Write {
            to,
            data,
            immediate,
        };
        draft.last[side] = Some((place.clone(), false));
        self.add(draft, side, action, place.len(), fence);
        Some(())
    }

    fn read(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let length = self.length(LONGEST).max(self.abilities.least_read);
        let (place, fence) = self.place_at_peer(draft, side, length, 1)?;
        if place.len() < self.abilities.least_read {
            return None;
        }
        let parts = 1 + self.random.below(self.abilities.read_segments);
        let into = draft.places[side].take_parts(&mut self.random, place.len(), parts)?;
        let bytes = self.memory.of(1 - side)[place.clone()].to_vec();
        self.memory.scatter(side, &into, &bytes);
        let from = self.target(draft, side, &place);
        draft.last[side] = Some((place.clone(), true));
        self.add(draft, side, Action::Read { from, into }, place.len(), fence);
        Some(())
    }

    /// The place of an atomic, the place for its answer, and what that will be.
    fn atomic(
        &mut self,
        draft: &mut Draft,
        side: usize,
    ) -> Option<(Place, Target, Place, u64, SendFlags)> {
        let (place, fence) = self.place_at_peer(draft, side, 8, 8)?;
        let into = draft.places[side].take(&mut self.random, 8, 8)?;
        let before = self.memory.number(1 - side, place.start);
        self.memory.write(side, into.start, &before.to_ne_bytes());
        let at = self.target(draft, side, &place);
        draft.last[side] = Some((place.clone(), true));
        Some((place, at, into, before, fence))
    }

    fn compare_swap(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let (place, at, into, before, fence) = self.atomic(draft, side)?;
        let swap = self.random.next();
        let compare = match self.random.once_in(3) {
            true => before ^ 1 << self.random.below(64),
            false => before,
        };
        if compare == before {
            self.memory
                .write(1 - side, place.start, &swap.to_ne_bytes());
        }
        let action = Action::CompareSwap {
            at,
            compare,
            swap,
            into,
        };
        self.add(draft, side, action, 8, fence);
        Some(())
    }

    fn fetch_add(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let (place, at, into, before, fence) = self.atomic(draft, side)?;
        let add = self.random.next();
        let sum = before.wrapping_add(add);
        self.memory.write(1 - side, place.start, &sum.to_ne_bytes());
        self.add(draft, side, Action::FetchAdd { at, add, into }, 8, fence);
        Some(())
    }

    fn atomic_write(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let (place, fence) = self.place_at_peer(draft, side, 8, 8)?;
        let bytes = self.random.next().to_ne_bytes();
        self.memory.write(1 - side, place.start, &bytes);
        let to = self.target(draft, side, &place);
        draft.last[side] = Some((place, true));
        self.add(draft, side, Action::AtomicWrite { to, bytes }, 8, fence);
        Some(())
    }

    fn flush(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let length = 1 + self.random.below(4096);
        let at = self.random.below(LENGTH - length);
        let length = length as u32;
        let action = Action::Flush { at, length };
        self.add(draft, side, action, 0, SendFlags::empty());
        Some(())
    }

    /// Opens an own window, or closes it.
    fn change_window(&mut self, draft: &mut Draft, side: usize) -> Option<()> {
        let window = self.random.below(self.abilities.windows.len());
        if draft.named[side][window] {
            return None;
        }
        let is_open = self.windows[side][window].is_some();
        let is_of_type_2 = self.abilities.windows[window] == MwType::Two;
        draft.named[side][window] = true;
        if is_open && is_of_type_2 {
            self.windows[side][window] = None;
            let action = Action::Invalidate { window };
            self.add(draft, side, action, 0, SendFlags::empty());
            return Some(());
        }
        let start = self.random.below(LENGTH / 4);
        let end = LENGTH - self.random.below(LENGTH / 2);
        self.windows[side][window] = Some(start..end);
        let place = start..end;
        let action = Action::Bind { window, place };
        self.add(draft, side, action, 0, SendFlags::empty());
        Some(())
    }

    /// An open window of a side's that its peer may close with a message.
    fn window_to_close(&mut self, draft: &Draft, side: usize) -> Option<usize> {
        if self.abilities.service != QpType::Rc || !self.random.once_in(3) {
            return None;
        }
        let windows = self.windows[side].iter().zip(&draft.named[side]);
        let types = self.abilities.windows.iter();
        windows.zip(types).position(|((open, named), mw_type)| {
            open.is_some() && !named && *mw_type == MwType::Two
        })
    }

    /// Adds a request that has all that it needs. The flags `may` come by chance, but a fence that is
    /// needed.
    fn add(
        &mut self,
        draft: &mut Draft,
        side: usize,
        action: Action,
        length: usize,
        may: SendFlags,
    ) {
        let mut flags = may & SendFlags::FENCE;
        if self.random.once_in(2) {
            flags |= may;
        }
        // Elsewhere a later completion tells of an earlier request as well.
        let must_tell = !self.abilities.completes_in_order;
        if must_tell || self.random.once_in(2) {
            flags |= SendFlags::SIGNALED;
        }
        let may_be_fenced = match action {
            Action::Read { .. } => self.abilities.has_fenced_reads,
            _ => self.abilities.has_fence,
        };
        if may_be_fenced && self.random.once_in(8) {
            flags |= SendFlags::FENCE;
        }
        draft.round.requests[side].push(Request {
            flags,
            action,
            length,
        });
    }
}
