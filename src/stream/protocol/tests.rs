//! Two sides against each other, with a wire between them that keeps the order and delivers when it
//! likes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::wire::LONGEST;
use super::{Hello, Message, Own, Place, Protocol, SLOT_LENGTH, SLOTS, UnderWay, Violation};

/// One side, with its memory and what is on its way to it.
struct Side {
    protocol: Protocol,
    under_way: UnderWay,
    inbox: Vec<u8>,
    slots: Vec<[u8; SLOT_LENGTH]>,
    /// Whether what is written into its slots is big-endian.
    is_big_endian: bool,
    /// Places in the peer's memory begin here.
    peers_memory: u64,
    peers_slots: u32,
    peer_is_big_endian: bool,
    to_come: VecDeque<Packet>,
    /// Completions that the device has not reported yet.
    completions: usize,
    /// What was written and read, counted.
    written: u64,
    read: u64,
    /// Whether messages cost two requests.
    each: u32,
}

/// A message, and what was written before it.
struct Packet {
    message: Message,
    data: Option<(u64, Vec<u8>)>,
    slot: Option<(u32, [u8; SLOT_LENGTH])>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    half: u32,
    credits: u16,
    depth: u16,
    buffer: u32,
    is_big_endian: bool,
    base: u64,
    each: u32,
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        1u32..300,
        2u16..20,
        6u16..40,
        64u32..500,
        any::<bool>(),
        any::<u64>(),
        1u32..3,
    )
        .prop_map(
            |(half, credits, depth, buffer, is_big_endian, base, each)| Shape {
                half,
                credits,
                depth: depth * 2,
                buffer,
                is_big_endian,
                base,
                each,
            },
        )
}

/// The byte of a stream at a place.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Shape {
    fn hello(&self) -> Hello {
        Hello {
            is_big_endian: self.is_big_endian,
            credits: self.credits,
            mappings: 4,
            slots: Place {
                address: 0,
                rkey: 5,
                length: SLOTS,
            },
            buffer: Place {
                address: self.base,
                rkey: 6,
                length: self.half,
            },
        }
    }

    fn side(&self, peer: &Shape) -> Side {
        let own = Own {
            half: self.half,
            credits: self.credits,
            mappings: 4,
        };
        let hello = Hello::from_bytes(&peer.hello().to_bytes()).expect("there is room");
        Side {
            protocol: Protocol::new(own, &hello),
            under_way: UnderWay::new(self.depth.into(), self.each, self.buffer),
            inbox: vec![0; 2 * self.half as usize],
            slots: vec![[0; SLOT_LENGTH]; SLOTS as usize],
            is_big_endian: self.is_big_endian,
            peers_memory: hello.buffer.address,
            peers_slots: hello.slots.length,
            peer_is_big_endian: hello.is_big_endian,
            to_come: VecDeque::new(),
            completions: 0,
            written: 0,
            read: 0,
            each: self.each,
        }
    }
}

impl Side {
    /// Writes up to `most` bytes of the stream to the peer. How many there was room for.
    fn write(&mut self, peer: &mut Self, most: usize) -> usize {
        let mut all = 0;
        while all < most {
            if let Some(slot) = self.protocol.wanted_slot() {
                let place = self.take_slot(slot);
                self.protocol.take_slot(place);
            }
            let room = self.protocol.room().min(self.under_way.buffer_room());
            let length = (most - all).min(room);
            if length == 0 || !self.under_way.has_room(self.each) {
                break;
            }
            let copied = self.under_way.copy(length);
            assert_eq!(copied.length + copied.around, length);
            let place = self.protocol.data(length);
            assert_eq!((place.length as usize, place.rkey), (length, 6));
            self.completions += usize::from(self.under_way.data(self.each));
            let bytes = (self.written..).map(byte).take(length).collect();
            self.written += length as u64;
            all += length;
            peer.to_come.push_back(Packet {
                message: Message::from_bits(Message::Data(place.length).to_bits()),
                data: Some((place.address.wrapping_sub(self.peers_memory), bytes)),
                slot: None,
            });
        }
        all
    }

    /// What is in a slot, as the machine of this side reads it.
    fn take_slot(&mut self, slot: u32) -> Place {
        let bytes = std::mem::take(&mut self.slots[slot as usize]);
        match self.is_big_endian == cfg!(target_endian = "big") {
            true => Place::from_slot(bytes),
            false => {
                let mut turned = bytes;
                turned[..8].reverse();
                turned[8..12].reverse();
                turned[12..].reverse();
                Place::from_slot(turned)
            }
        }
    }

    /// Tells the peer what is due, as far as there is room.
    fn tell(&mut self, peer: &mut Self, base: u64) {
        while self.under_way.has_room_for_control() {
            let packet = if let Some(update) = self.protocol.update() {
                Packet {
                    message: Message::Credit(update.limit),
                    data: None,
                    slot: update.grant.map(|grant| {
                        let half = Place {
                            address: base.wrapping_add(grant.offset.into()),
                            rkey: 6,
                            length: self.inbox.len() as u32 / 2,
                        };
                        assert!(grant.slot < self.peers_slots);
                        (grant.slot, half.to_slot(self.peer_is_big_endian))
                    }),
                }
            } else if let Some(message) = self.protocol.farewell() {
                Packet {
                    message,
                    data: None,
                    slot: None,
                }
            } else {
                return;
            };
            self.under_way.control();
            self.completions += 1;
            peer.to_come.push_back(packet);
        }
    }

    /// Takes the next packet. False when there is none.
    fn deliver(&mut self) -> bool {
        let Some(packet) = self.to_come.pop_front() else {
            return false;
        };
        if let Some((at, bytes)) = packet.data {
            let at = at as usize;
            self.inbox[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        if let Some((slot, bytes)) = packet.slot {
            self.slots[slot as usize] = bytes;
        }
        self.protocol
            .receive(packet.message)
            .expect("the peer keeps to the protocol");
        true
    }

    fn complete(&mut self) -> bool {
        let is_due = self.completions > 0;
        if is_due {
            self.completions -= 1;
            assert!(self.under_way.complete());
        }
        is_due
    }

    /// Reads up to `most` bytes and looks whether they are the right ones.
    fn read(&mut self, most: usize) -> usize {
        let mut all = 0;
        while all < most && self.protocol.unread() > 0 {
            let (at, length) = self.protocol.first();
            let length = length.min(most - all);
            for (offset, got) in self.inbox[at..at + length].iter().enumerate() {
                assert_eq!(*got, byte(self.read + offset as u64));
            }
            self.protocol.consume(length);
            self.read += length as u64;
            all += length;
        }
        all
    }
}

/// What happens next, to one of the two.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize),
    Read(usize),
    Tell,
    Deliver(usize),
    Complete(usize),
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let kind = prop_oneof![
        3 => (1usize..500).prop_map(Step::Write),
        3 => (1usize..500).prop_map(Step::Read),
        2 => Just(Step::Tell),
        4 => (1usize..6).prop_map(Step::Deliver),
        3 => (1usize..4).prop_map(Step::Complete),
    ];
    (any::<bool>(), kind)
}

struct World {
    sides: [Side; 2],
    bases: [u64; 2],
}

impl World {
    fn new(one: Shape, other: Shape) -> Self {
        Self {
            sides: [one.side(&other), other.side(&one)],
            bases: [one.base, other.base],
        }
    }

    fn act(&mut self, is_first: bool, step: Step) {
        let [first, second] = &mut self.sides;
        let (side, peer, base) = match is_first {
            true => (first, second, self.bases[0]),
            false => (second, first, self.bases[1]),
        };
        match step {
            Step::Write(most) => {
                side.write(peer, most);
            }
            Step::Read(most) => {
                side.read(most);
            }
            Step::Tell => side.tell(peer, base),
            Step::Deliver(count) => {
                for _ in 0..count {
                    side.deliver();
                }
            }
            Step::Complete(count) => {
                for _ in 0..count {
                    side.complete();
                }
            }
        }
    }

    /// Lets everything that is on its way arrive and be read.
    fn settle(&mut self) {
        loop {
            let mut has_moved = false;
            for is_first in [true, false] {
                let at = usize::from(!is_first);
                has_moved |= self.sides[at].deliver();
                has_moved |= self.sides[at].complete();
                has_moved |= self.sides[at].read(usize::MAX) > 0;
                self.act(is_first, Step::Tell);
            }
            if !has_moved && self.sides.iter().all(|side| side.to_come.is_empty()) {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the order, each side reads what the other wrote, and is never left without room for
    /// good.
    #[test]
    fn what_is_written_is_read(
        one in shape(),
        other in shape(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut world = World::new(one, other);
        for (is_first, step) in steps {
            world.act(is_first, step);
        }
        world.settle();
        for at in [0, 1] {
            prop_assert_eq!(world.sides[at].written, world.sides[1 - at].read);
        }
        for at in [0, 1] {
            for _ in 0..50 {
                let [first, second] = &mut world.sides;
                let (side, peer) = if at == 0 { (first, second) } else { (second, first) };
                prop_assert!(side.write(peer, 1000) > 0, "no room is left for good");
                world.settle();
            }
        }
    }

    /// A peer that says anything gets a protocol error at worst, and never more room than there is.
    #[test]
    fn no_message_leads_out_of_the_buffer(
        one in shape(),
        other in shape(),
        messages in prop::collection::vec((any::<u32>(), any::<u8>()), 1..200),
    ) {
        let mut side = one.side(&other);
        for (bits, shape) in messages {
            let message = match shape & 3 {
                0 => Message::from_bits(bits),
                1 => Message::Data(bits % (one.half + 2)),
                2 => Message::Credit(bits as u16),
                _ => Message::Data(bits & LONGEST),
            };
            if side.protocol.receive(message).is_err() {
                break;
            }
            let (at, length) = side.protocol.first();
            prop_assert!(at + length <= side.inbox.len());
            prop_assert!(side.protocol.unread() <= side.inbox.len());
            if shape & 4 != 0 {
                side.protocol.consume(length);
                side.protocol.update();
            }
        }
    }
}

fn usual(base: u64) -> Shape {
    Shape {
        half: 100,
        credits: 16,
        depth: 40,
        buffer: 4096,
        is_big_endian: false,
        base,
        each: 1,
    }
}

#[test]
fn numbers_wrap_around() {
    let mut world = World::new(usual(0), usual(u64::MAX - 150));
    for _ in 0..70_000 {
        let [first, second] = &mut world.sides;
        assert_eq!(first.write(second, 1), 1);
        world.settle();
    }
    assert_eq!(world.sides[1].read, 70_000);
}

#[test]
fn ends_are_told_and_known() {
    let mut world = World::new(usual(0), usual(0));
    world.settle();
    let [first, _] = &mut world.sides;
    first.protocol.shut_down(false, true);
    assert!(!first.protocol.is_writable() && !first.protocol.is_over());
    world.settle();
    let [first, second_again] = &mut world.sides;
    assert!(second_again.protocol.is_at_end() && second_again.protocol.is_writable());
    assert_eq!(second_again.write(first, 5), 5);
    world.settle();
    assert_eq!(world.sides[0].read, 5);
    let [first, second] = &mut world.sides;
    second.protocol.shut_down(true, true);
    second.tell(first, 0);
    world.settle();
    for side in &world.sides {
        assert!(side.protocol.is_over() && side.protocol.is_at_end());
    }
    let late = world.sides[0].protocol.receive(Message::Data(1));
    assert_eq!(late, Err(Violation::AfterEnd));
}

/// Each side ends writing before it hears that the other did, and one cannot say so yet.
#[test]
fn a_farewell_that_waits_is_told_after_the_peers() {
    let mut world = World::new(usual(0), usual(0));
    world.settle();
    for side in &mut world.sides {
        side.protocol.shut_down(false, true);
    }
    world.act(true, Step::Tell);
    world.sides[1].deliver();
    assert!(world.sides[1].protocol.is_at_end());
    world.settle();
    for side in &world.sides {
        assert!(side.protocol.is_at_end() && side.protocol.is_over());
    }
}

#[test]
fn a_message_that_nobody_knows_is_refused() {
    let mut side = usual(0).side(&usual(0));
    for bits in [
        0x2000_0000,
        0x6000_0000,
        0xa000_0000,
        0xe000_0001,
        0xe000_0003,
    ] {
        let refused = side.protocol.receive(Message::from_bits(bits));
        assert_eq!(refused, Err(Violation::Message(bits)));
    }
    let refused = side.protocol.receive(Message::Mapping(4));
    assert_eq!(refused, Err(Violation::Mapping(4)));
}
