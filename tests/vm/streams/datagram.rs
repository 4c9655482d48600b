//! Sockets for datagrams.

mod basics;
mod hand_made;
mod hostile;
mod programs;
mod restarts;

use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::RdmaDatagram;

pub use restarts::fork_with_a_socket as fork_with_datagrams;

use crate::environment;
use crate::harness::Test;

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        basics::tests(),
        hand_made::tests(),
        restarts::tests(),
        hostile::tests(),
        programs::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// For what is to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket on a free port, whose calls do not wait for ever.
fn socket_on(address: IpAddr) -> io::Result<RdmaDatagram> {
    let socket = RdmaDatagram::bind((address, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn socket() -> io::Result<RdmaDatagram> {
    socket_on(environment::addr())
}

/// Two sockets, each with the other one as its only peer.
fn connected_pair() -> io::Result<(RdmaDatagram, RdmaDatagram)> {
    let (one, other) = (socket()?, socket()?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((one, other))
}

/// Sends a datagram from one socket to another, which has to receive it.
fn carry(from: &RdmaDatagram, to: &RdmaDatagram, data: &[u8]) -> io::Result<()> {
    let mut bytes = [0; 2048];
    assert_eq!(from.send_to(data, to.local_addr()?)?, data.len());
    let (length, sender) = to.recv_from(&mut bytes)?;
    assert_eq!(bytes[..length], *data);
    assert_eq!(sender, from.local_addr()?);
    Ok(())
}

/// Exchanges datagrams until both know the way to the other.
fn get_to_know(one: &RdmaDatagram, other: &RdmaDatagram) -> io::Result<()> {
    for round in 0..6u8 {
        carry(one, other, &[round])?;
        carry(other, one, &[round])?;
    }
    Ok(())
}

/// Packets that the device under test has received.
fn packets_received() -> Result<u64, Box<dyn Error>> {
    let device = environment::device();
    let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/rcvd_pkts");
    Ok(fs::read_to_string(file)?.trim().parse()?)
}

/// Waits for the descriptor of a socket. False when it takes too long.
fn is_readable(socket: &RdmaDatagram, patience: u16) -> nix::Result<bool> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::from(patience))? > 0)
}

/// Receives on a non-blocking socket, waiting for its descriptor only.
fn receive_by_poll(socket: &RdmaDatagram) -> Result<Vec<u8>, Box<dyn Error>> {
    let start = Instant::now();
    let mut bytes = vec![0; 2048];
    while start.elapsed() < PATIENCE {
        match socket.recv(&mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !is_readable(socket, 5000)? {
                    return Err("the descriptor is not readable".into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err("nothing came".into())
}
