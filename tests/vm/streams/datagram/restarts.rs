//! Peers in processes of their own, which end and are started again, and devices that go.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rdmacm::RdmaDatagram;

use super::{PATIENCE, carry, get_to_know, socket, socket_on};
use crate::bad_situations::second_device::SecondDevice;
use crate::endurance::removal::Removal;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::peers::{Peer, Role};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        two_processes_talk,
        a_peer_that_is_started_again_is_found,
        a_peer_that_is_started_again_is_heard,
        a_device_that_goes_is_told_and_found_when_it_is_back,
        a_forked_child_takes_nothing,
    ]
}

fn echo_at(address: SocketAddr) -> std::io::Result<(Peer, SocketAddr)> {
    let mut peer = Peer::start(Role::Echo, address)?;
    let line = peer.line()?;
    let address = line.parse().map_err(std::io::Error::other)?;
    Ok((peer, address))
}

fn any_port() -> SocketAddr {
    (environment::addr(), 0).into()
}

fn two_processes_talk() -> TestResult {
    let (_peer, at) = echo_at(any_port())?;
    let one = socket()?;
    one.connect(at)?;
    let mut bytes = [0; 2048];
    for round in 0..300u16 {
        let data = vec![round as u8; usize::from(round) * 6];
        one.send(&data)?;
        let (length, from) = one.recv_from(&mut bytes)?;
        assert_eq!((&bytes[..length], from), (&data[..], at));
    }
    Ok(Outcome::Pass)
}

/// Sends until the echo comes back. A refusal only says that the peer is not there yet.
fn send_until_heard(socket: &RdmaDatagram, to: SocketAddr) -> std::io::Result<Duration> {
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let start = Instant::now();
    let mut bytes = [0; 100];
    loop {
        socket.send_to(b"there?", to)?;
        match socket.recv(&mut bytes) {
            Ok(length) => {
                assert_eq!(&bytes[..length], b"there?");
                return Ok(start.elapsed());
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
        assert!(start.elapsed() < PATIENCE, "the new peer is not found");
    }
}

/// Datagrams to the queue pair that is gone are lost; one over UDP finds the new one.
fn a_peer_that_is_started_again_is_found() -> TestResult {
    let (mut peer, at) = echo_at(any_port())?;
    let one = socket()?;
    for _ in 0..3 {
        for _ in 0..5 {
            send_until_heard(&one, at)?;
        }
        peer.kill()?;
        peer = echo_at(at)?.0;
        let took = send_until_heard(&one, at)?;
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    Ok(Outcome::Pass)
}

/// A peer that is started again speaks first.
fn a_peer_that_is_started_again_is_heard() -> TestResult {
    let (one, mut other) = (socket()?, socket()?);
    let at = other.local_addr()?;
    for _ in 0..3 {
        get_to_know(&other, &one)?;
        drop(other);
        other = RdmaDatagram::bind(at)?;
        other.set_read_timeout(Some(PATIENCE))?;
        carry(&other, &one, b"new")?;
        for round in 0..10 {
            carry(&one, &other, &[round])?;
        }
    }
    Ok(Outcome::Pass)
}

fn a_device_that_goes_is_told_and_found_when_it_is_back() -> TestResult {
    let device = SecondDevice::add()?;
    let one = socket_on(environment::plain_addr())?;
    one.set_read_timeout(Some(Duration::from_millis(100)))?;
    for round in 0..10 {
        carry(&one, &one, &[round])?;
    }
    let removal = Removal::of(device);
    // Kernels before 7 let a device go when nobody has it open any more.
    if environment::kernel() < (7, 0) {
        thread::sleep(Duration::from_millis(100));
        carry(&one, &one, b"still here")?;
        drop(one);
        removal.wait()?;
        return Ok(Outcome::Pass);
    }
    removal.wait()?;
    let start = Instant::now();
    loop {
        let outcome = one.send_to(b"x", one.local_addr()?);
        match outcome.and_then(|_| one.recv(&mut [0; 10])) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error.into()),
        }
        assert!(start.elapsed() < PATIENCE, "nothing is told");
    }
    let device = SecondDevice::add()?;
    let start = Instant::now();
    while let Err(error) = carry(&one, &one, b"back") {
        assert!(start.elapsed() < PATIENCE, "{error}");
    }
    drop((one, device));
    Ok(Outcome::Pass)
}

fn a_forked_child_takes_nothing() -> TestResult {
    let output = Command::new("/proc/self/exe")
        .arg("fork_with_datagrams")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    Ok(Outcome::Pass)
}

/// Forks with a socket, which the child tries to use, and goes on: `vm fork_with_datagrams`.
pub fn fork_with_a_socket(_args: &[String]) -> ExitCode {
    match try_fork() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_fork() -> std::io::Result<()> {
    let (one, other) = (socket()?, socket()?);
    get_to_know(&one, &other)?;
    // One between the queue pairs, one over UDP.
    let stranger = socket()?;
    for sender in [&other, &stranger] {
        sender.send_to(b"for the parent", one.local_addr()?)?;
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let outcomes = [
                one.recv(&mut [0; 100]),
                one.send_to(b"of the child", other.local_addr()?),
            ];
            drop((one, other, stranger));
            let are_refused = outcomes.iter().all(|outcome| {
                let error = outcome.as_ref().err().map(std::io::Error::kind);
                error == Some(ErrorKind::PermissionDenied)
            });
            std::process::exit(if are_refused { 0 } else { 7 });
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None)?;
            assert_eq!(ended, WaitStatus::Exited(child, 0));
        }
    }
    let mut bytes = [0; 100];
    for _ in 0..2 {
        let length = one.recv(&mut bytes)?;
        assert_eq!(&bytes[..length], b"for the parent");
    }
    get_to_know(&one, &other)
}
