//! What programs do with sockets.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{RdmaDatagram, StreamSettings};

use super::{
    PATIENCE, carry, connected_pair, get_to_know, is_readable, packets_received, receive_by_poll,
    socket, socket_on,
};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        datagrams_go_both_ways_over_ipv4_and_ipv6,
        known_peers_are_reached_by_the_device,
        connected_sockets_hear_their_peer_only,
        several_peers_talk_to_a_wildcard_address,
        a_socket_talks_to_itself,
        datagrams_of_all_lengths_up_to_the_most,
        the_rest_of_a_long_datagram_is_dropped,
        what_is_peeked_is_still_there,
        a_call_that_takes_too_long_ends,
        a_descriptor_tells_of_what_can_be_done,
        handles_are_used_by_several_threads,
        a_burst_is_kept_until_it_is_read,
        many_are_sent_through_few_places,
        nobody_at_the_address_is_told,
        addresses_without_a_device_are_refused,
    ]
}

fn datagrams_go_both_ways_over_ipv4_and_ipv6() -> TestResult {
    for address in environment::addresses() {
        let (one, other) = (socket_on(address)?, socket_on(address)?);
        assert_eq!(one.local_addr()?.ip(), address);
        for round in 0..50u8 {
            carry(&one, &other, &[round; 100])?;
            carry(&other, &one, &[!round; 1000])?;
        }
        assert!(one.take_error()?.is_none());
    }
    Ok(Outcome::Pass)
}

/// The first go over UDP, the others from queue pair to queue pair.
fn known_peers_are_reached_by_the_device() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    let before = packets_received()?;
    carry(&one, &other, b"first")?;
    assert_eq!(packets_received()?, before, "the first goes over UDP");
    get_to_know(&one, &other)?;
    let before = packets_received()?;
    for round in 0..100u8 {
        carry(&one, &other, &[round; 10])?;
        carry(&other, &one, &[round; 300])?;
    }
    let received = packets_received()? - before;
    assert!((200..210).contains(&received), "{received} packets");
    Ok(Outcome::Pass)
}

fn connected_sockets_hear_their_peer_only() -> TestResult {
    let (one, other) = connected_pair()?;
    assert_eq!(one.peer_addr()?, other.local_addr()?);
    let stranger = socket()?;
    assert_eq!(
        stranger.send(b"x").unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    let mut bytes = [0; 100];
    // Before and after the stranger knows the queue pair.
    for _ in 0..3 {
        stranger.send_to(b"strange", one.local_addr()?)?;
        other.send(b"hello")?;
        let length = one.recv(&mut bytes)?;
        assert_eq!(&bytes[..length], b"hello");
        one.send(b"answer")?;
        let (length, from) = other.recv_from(&mut bytes)?;
        assert_eq!(
            (&bytes[..length], from),
            (&b"answer"[..], one.local_addr()?)
        );
    }
    // A stranger that knows the queue pair from before.
    let (late, own, peer) = (socket()?, socket()?, socket()?);
    get_to_know(&late, &own)?;
    own.connect(peer.local_addr()?)?;
    late.send_to(b"strange", own.local_addr()?)?;
    carry(&peer, &own, b"hello")?;
    own.set_read_timeout(Some(Duration::from_millis(200)))?;
    assert_eq!(
        own.recv(&mut bytes).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    Ok(Outcome::Pass)
}

fn several_peers_talk_to_a_wildcard_address() -> TestResult {
    for address in environment::addresses() {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let server = socket_on(any)?;
        let at = (address, server.local_addr()?.port());
        let mut peers = Vec::new();
        for _ in 0..8 {
            peers.push(socket_on(address)?);
        }
        let mut bytes = [0; 100];
        for round in 0..20u8 {
            for peer in &peers {
                peer.send_to(&[round; 50], at)?;
            }
            for _ in &peers {
                let (length, from) = server.recv_from(&mut bytes)?;
                server.send_to(&bytes[..length], from)?;
            }
            for peer in &peers {
                let (length, from) = peer.recv_from(&mut bytes)?;
                assert_eq!(bytes[..length], [round; 50]);
                assert_eq!(from, at.into());
            }
        }
    }
    Ok(Outcome::Pass)
}

fn a_socket_talks_to_itself() -> TestResult {
    let socket = socket()?;
    for round in 0..20 {
        carry(&socket, &socket, &[round; 64])?;
    }
    Ok(Outcome::Pass)
}

fn datagrams_of_all_lengths_up_to_the_most() -> TestResult {
    for address in environment::addresses() {
        let most = if address.is_ipv4() { 2032 } else { 2020 };
        let (one, other) = (socket_on(address)?, socket_on(address)?);
        // Over UDP at first, and then once more between the queue pairs.
        for data in [most, 0].map(|length| vec![7; length]) {
            carry(&one, &other, &data)?;
        }
        get_to_know(&one, &other)?;
        for length in [0, 1, 56, 57, 64, 248, 249, 1000, 2000, most - 1, most] {
            let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
            carry(&one, &other, &data)?;
        }
        let too_long = one.send_to(&vec![0; most + 1], other.local_addr()?);
        let error = too_long.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let inner: &rdmacm::Error = inner.expect("an error of the library");
        assert_eq!(inner.errno(), Some(libc_emsgsize()));
        carry(&one, &other, b"the next")?;
    }
    Ok(Outcome::Pass)
}

fn libc_emsgsize() -> i32 {
    nix::errno::Errno::EMSGSIZE as i32
}

fn the_rest_of_a_long_datagram_is_dropped() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    for _ in 0..6 {
        one.send_to(b"long one", other.local_addr()?)?;
        let mut bytes = [0; 4];
        assert_eq!(other.recv(&mut bytes)?, 4);
        assert_eq!(&bytes, b"long");
        carry(&other, &one, b"next")?;
    }
    Ok(Outcome::Pass)
}

fn what_is_peeked_is_still_there() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    let mut bytes = [0; 10];
    for _ in 0..6 {
        one.send_to(b"hello", other.local_addr()?)?;
        for _ in 0..2 {
            let (length, from) = other.peek_from(&mut bytes[..3])?;
            assert_eq!((&bytes[..length], from), (&b"hel"[..], one.local_addr()?));
        }
        assert_eq!(other.peek(&mut bytes)?, 5);
        assert_eq!(other.recv(&mut bytes)?, 5);
        carry(&other, &one, b"next")?;
    }
    Ok(Outcome::Pass)
}

fn a_call_that_takes_too_long_ends() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    get_to_know(&one, &other)?;
    let timeout = Duration::from_millis(200);
    assert!(one.set_read_timeout(Some(Duration::ZERO)).is_err());
    one.set_read_timeout(Some(timeout))?;
    assert_eq!(one.read_timeout()?, Some(timeout));
    let start = Instant::now();
    let error = one.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let took = start.elapsed();
    assert!((timeout..10 * timeout).contains(&took), "{took:?}");
    carry(&other, &one, b"after all")?;
    Ok(Outcome::Pass)
}

fn a_descriptor_tells_of_what_can_be_done() -> TestResult {
    let (one, other) = connected_pair()?;
    for socket in [&one, &other] {
        socket.set_nonblocking(true)?;
        assert!(!is_readable(socket, 50)?, "nothing came");
        let error = socket.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    for round in 0..100u8 {
        for (from, to) in [(&one, &other), (&other, &one)] {
            from.send(&[round; 40])?;
            assert_eq!(receive_by_poll(to)?, [round; 40]);
        }
    }
    // Before the program has made a call, and with several to read.
    for _ in 0..5 {
        for number in 0..3 {
            one.send(&[number])?;
        }
        for number in 0..3 {
            // It may be readable for something else as well, as an answer to be given.
            let received = loop {
                assert!(is_readable(&other, 5000)?, "number {number}");
                match other.recv(&mut [0; 10]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    received => break received?,
                }
            };
            assert_eq!(received, 1);
        }
        let start = Instant::now();
        while is_readable(&other, 100)? {
            assert_eq!(
                other.recv(&mut [0; 10]).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
            assert!(start.elapsed() < PATIENCE, "the descriptor stays readable");
        }
    }
    Ok(Outcome::Pass)
}

/// One thread sends, two receive what comes back, and the peer has one of each in one.
fn handles_are_used_by_several_threads() -> TestResult {
    const COUNT: u32 = 200;
    let (one, other) = connected_pair()?;
    let received = AtomicU32::new(0);
    let receive = |socket: RdmaDatagram| {
        socket.recv(&mut [0; 100])?;
        // More than the receives of a queue pair would be lost.
        received.fetch_add(1, Ordering::SeqCst);
        std::io::Result::Ok(())
    };
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let handle = other.try_clone()?;
            let mut bytes = [0; 100];
            for _ in 0..COUNT {
                let length = handle.recv(&mut bytes)?;
                handle.send(&bytes[..length])?;
            }
            std::io::Result::Ok(())
        });
        let receivers = [(); 2].map(|()| {
            scope.spawn(|| {
                for _ in 0..COUNT / 2 {
                    receive(one.try_clone()?)?;
                }
                std::io::Result::Ok(())
            })
        });
        let start = Instant::now();
        for sent in 0..COUNT {
            while received.load(Ordering::SeqCst) + 20 < sent {
                assert!(start.elapsed() < 3 * PATIENCE, "{sent} were sent");
                thread::sleep(Duration::from_millis(1));
            }
            one.send(&[sent as u8; 30])?;
        }
        echo.join().expect("no panic")?;
        for receiver in receivers {
            receiver.join().expect("no panic")?;
        }
        Ok(Outcome::Pass)
    })
}

fn a_burst_is_kept_until_it_is_read() -> TestResult {
    let (one, other) = (socket()?, socket()?);
    let mut bytes = [0; 100];
    for _ in 0..3 {
        for number in 0..60u8 {
            one.send_to(&[number; 20], other.local_addr()?)?;
        }
        let mut numbers: Vec<u8> = Vec::new();
        for _ in 0..60 {
            assert_eq!(other.recv(&mut bytes)?, 20);
            numbers.push(bytes[0]);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..60).collect::<Vec<u8>>());
        carry(&other, &one, b"next")?;
    }
    Ok(Outcome::Pass)
}

/// Sends wait for places, and each finds one.
fn many_are_sent_through_few_places() -> TestResult {
    let few = StreamSettings::new().send_buffer(4096).max_inline(0);
    let many = StreamSettings::new()
        .receive_depth(1000)
        .receive_buffer(2048 * 1000);
    let one = RdmaDatagram::bind_with((environment::addr(), 0), &few)?;
    let other = RdmaDatagram::bind_with((environment::addr(), 0), &many)?;
    for socket in [&one, &other] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    get_to_know(&one, &other)?;
    let start = Instant::now();
    for number in 0..500u16 {
        one.send_to(&number.to_be_bytes(), other.local_addr()?)?;
    }
    // One that is silent for a second is asked over UDP, which may be overtaken.
    let is_in_order = start.elapsed() < Duration::from_millis(900);
    let mut bytes = [0; 2];
    for number in 0..500u16 {
        assert_eq!(other.recv(&mut bytes)?, 2);
        assert!(!is_in_order || u16::from_be_bytes(bytes) == number);
    }
    Ok(Outcome::Pass)
}

fn nobody_at_the_address_is_told() -> TestResult {
    let (one, other) = connected_pair()?;
    get_to_know(&one, &other)?;
    drop(other);
    let start = Instant::now();
    loop {
        let outcome = one.send(b"anybody?");
        match outcome {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            other => other?,
        };
        assert!(start.elapsed() < PATIENCE, "nothing is told");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(Outcome::Pass)
}

fn addresses_without_a_device_are_refused() -> TestResult {
    let plain = environment::plain_addr();
    let error = RdmaDatagram::bind((plain, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let any = socket_on(Ipv4Addr::UNSPECIFIED.into())?;
    let error = any.send_to(b"x", (plain, 9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = any.connect((plain, 9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = any.send_to(b"x", "[::1]:9").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(Outcome::Pass)
}
