//! Packets over UDP that nobody sends who keeps to the protocol.

use std::net::UdpSocket;

use super::hand_made::HandMade;
use super::{carry, get_to_know, socket};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        nonsense_over_udp_is_dropped,
        answers_of_strangers_are_dropped,
        peers_without_number_leave_the_others_alone: 120 s,
        a_made_up_queue_pair_is_got_over,
    ]
}

/// A small generator of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Each packet differs from one of the protocol in what makes it one.
fn nonsense_over_udp_is_dropped() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    let enemy = UdpSocket::bind((environment::addr(), 0))?;
    let peer = HandMade::new()?;
    let at = one.local_addr()?;
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for round in 0..2000 {
        let mut packet = [&peer.udp_header(0)[..], &numbers.bytes(20)].concat();
        match round % 4 {
            0 => packet = numbers.bytes(round % 100),
            1 => packet.truncate(round % 16),
            2 => packet[round / 4 % 7] ^= 1 + numbers.next() as u8 % 255,
            _ => packet.resize(5000 + round, 0),
        }
        enemy.send_to(&packet, at)?;
        if round % 50 == 49 {
            carry(&other, &one, &[round as u8])?;
            carry(&one, &other, &[round as u8])?;
        }
    }
    assert!(one.take_error()?.is_none());
    Ok(Outcome::Pass)
}

fn answers_of_strangers_are_dropped() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    let peer = HandMade::new()?;
    for _ in 0..100 {
        peer.udp.send_to(&peer.udp_header(7), one.local_addr()?)?;
    }
    get_to_know(&one, &other)?;
    // What is sent to it asks first.
    one.send_to(b"who are you?", peer.address()?)?;
    peer.expect_udp(&one, 0, b"who are you?")?;
    Ok(Outcome::Pass)
}

/// More peers than are remembered ask, each from a port of its own.
fn peers_without_number_leave_the_others_alone() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    get_to_know(&one, &other)?;
    let template = HandMade::new()?;
    let packet = [&template.udp_header(0)[..], b"hello"].concat();
    let mut bytes = [0; 100];
    for round in 0..1500 {
        let peer = UdpSocket::bind((environment::addr(), 0))?;
        peer.send_to(&packet, one.local_addr()?)?;
        let (length, from) = one.recv_from(&mut bytes)?;
        assert_eq!(
            (&bytes[..length], from),
            (&b"hello"[..], peer.local_addr()?)
        );
        // To each of the first, a datagram goes over UDP and begins a search.
        if round < 50 {
            one.send_to(b"answer", from)?;
        }
        if round % 500 == 0 {
            carry(&other, &one, b"still here")?;
        }
    }
    get_to_know(&one, &other)?;
    Ok(Outcome::Pass)
}

/// Somebody tells a queue pair in the name of a peer. The peer's next datagram tells the right one.
fn a_made_up_queue_pair_is_got_over() -> TestResult {
    let (one, peer) = (socket()?, socket()?);
    get_to_know(&one, &peer)?;
    let at = peer.local_addr()?;
    drop(peer);
    let liar = UdpSocket::bind(at)?;
    let hand_made = HandMade::new()?;
    let mut lie = hand_made.udp_header(0);
    lie[9..12].copy_from_slice(&[0xff, 0xff, 0xfe]);
    liar.send_to(&lie, one.local_addr()?)?;
    assert_eq!(one.recv(&mut [0; 10])?, 0);
    drop(liar);
    let peer = rdmacm::RdmaDatagram::bind(at)?;
    peer.set_read_timeout(Some(super::PATIENCE))?;
    get_to_know(&peer, &one)?;
    Ok(Outcome::Pass)
}
