//! A peer made by hand, of a UDP socket and a queue pair, which sends the bytes that the C library
//! sends and sees those that it would see. The C library itself is no peer on RoCE
//! (`programs.rs`).

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    Access, AddressHandle, Buffer, CmId, Cq, Destination, EventChannel, GRH_LENGTH, PortSpace, Qp,
    QpAttr, RdmaDatagram,
};

use super::{PATIENCE, carry, get_to_know, socket};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::next_completion;
use crate::verbs;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_peer_of_the_c_library_is_understood,
        a_question_is_answered_as_the_c_library_does,
        datagrams_as_long_as_a_packet_are_taken,
        a_peer_that_tells_nothing_is_asked_again,
    ]
}

const QKEY: u32 = 0x0123_4567;
/// Bytes of a receive: a header and the longest packet.
const SLOT: usize = GRH_LENGTH + 4096;

pub(super) struct HandMade {
    pub udp: UdpSocket,
    qp: Qp,
    cq: Cq,
    memory: Buffer,
    handle: AddressHandle,
    /// The queue pair goes before it.
    id: CmId,
    _channel: EventChannel,
}

impl HandMade {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let address = environment::addr();
        let udp = UdpSocket::bind((address, 0))?;
        udp.set_read_timeout(Some(PATIENCE))?;
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Udp)?;
        id.bind_addr(SocketAddr::from((address, 0)))?;
        let pd = id.protection_domain()?;
        let cq = verbs::queue(pd.context(), 64)?;
        let mut qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        let memory = pd.alloc(2 * SLOT, Access::LOCAL_WRITE)?;
        qp.recv_half().post(1, &[memory.slice(..SLOT)?])?;
        let handle = pd.address_handle(&verbs::own_path(pd.context())?)?;
        Ok(Self {
            udp,
            qp,
            cq,
            memory,
            handle,
            id,
            _channel: channel,
        })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    fn qp_num(&self) -> [u8; 3] {
        let [_, number @ ..] = self.qp.number().to_be_bytes();
        number
    }

    /// The header of packets over UDP, with this purpose.
    pub(super) fn udp_header(&self, purpose: u8) -> Vec<u8> {
        let [a, b, c] = self.qp_num();
        let mut header = vec![0x55, 0x55, 0x55, 0x55, 4, purpose, 16, 0, 0, a, b, c];
        header.extend(octets(self.udp.local_addr().expect("it is bound")));
        header
    }

    /// The header of datagrams.
    fn header(&self) -> io::Result<Vec<u8>> {
        let address = self.address()?;
        let [high, low] = address.port().to_be_bytes();
        Ok([&[4, 8, high, low][..], &octets(address)].concat())
    }

    /// The queue pair that a packet over UDP tells, which has this purpose and carries this.
    pub(super) fn expect_udp(
        &self,
        from: &RdmaDatagram,
        purpose: u8,
        data: &[u8],
    ) -> Result<u32, Box<dyn Error>> {
        let mut packet = [0; 3000];
        let (length, sender) = self.udp.recv_from(&mut packet)?;
        assert_eq!(sender, from.local_addr()?);
        assert_eq!(packet[..8], [0x55, 0x55, 0x55, 0x55, 4, purpose, 16, 0]);
        assert_eq!(packet[12..16], octets(sender));
        assert_eq!(packet[16..length], *data);
        Ok(u32::from_be_bytes(packet[8..12].try_into()?))
    }

    /// Waits for a datagram at the queue pair, which has to be this one.
    fn expect(&mut self, from: &RdmaDatagram, data: &[u8]) -> Result<(), Box<dyn Error>> {
        let received = next_completion(&mut self.cq)?;
        let length = received.result()?.datagram_len() as usize;
        let bytes = self.memory.read_vec(GRH_LENGTH, length)?;
        let segment = self.memory.slice(..SLOT)?;
        self.qp.recv_half().post(1, &[segment])?;
        let sender = from.local_addr()?;
        let [high, low] = sender.port().to_be_bytes();
        assert_eq!(bytes[..4], [4, 8, high, low]);
        assert_eq!(bytes[4..8], octets(sender));
        assert_eq!(bytes[8..], *data);
        Ok(())
    }

    /// Sends bytes as they are to a queue pair.
    fn send_raw(&mut self, qp_num: u32, bytes: &[u8]) -> rdmacm::Result<()> {
        self.memory.write(SLOT, bytes)?;
        let segment = self.memory.slice(SLOT..SLOT + bytes.len())?;
        let to = Destination {
            handle: &self.handle,
            qp_num,
            qkey: QKEY,
        };
        let mut batch = self.qp.send_half().batch();
        batch.send_datagram(2, to).signaled().from(&[segment])?;
        batch.submit()?;
        next_completion(&mut self.cq)?.result()?;
        Ok(())
    }

    /// Sends a datagram to a queue pair.
    fn send(&mut self, qp_num: u32, data: &[u8]) -> Result<(), Box<dyn Error>> {
        let bytes = [&self.header()?, data].concat();
        Ok(self.send_raw(qp_num, &bytes)?)
    }
}

impl Drop for HandMade {
    fn drop(&mut self) {
        let _ = self.id.destroy();
    }
}

fn octets(address: SocketAddr) -> [u8; 4] {
    match address {
        SocketAddr::V4(address) => address.ip().octets(),
        SocketAddr::V6(_) => panic!("{address} is none of IPv4"),
    }
}

/// Sends to a peer until datagrams come out of its queue pair. What goes over UDP meanwhile is
/// received there.
fn send_until_direct(socket: &RdmaDatagram, peer: &mut HandMade) -> Result<u32, Box<dyn Error>> {
    let to = peer.address()?;
    socket.send_to(b"hello", to)?;
    let qp_num = peer.expect_udp(socket, 0, b"hello")?;
    peer.udp
        .send_to(&peer.udp_header(7), socket.local_addr()?)?;
    wait_until_direct(socket, peer)?;
    Ok(qp_num)
}

/// The same for a peer whose queue pair was told.
fn wait_until_direct(socket: &RdmaDatagram, peer: &mut HandMade) -> Result<(), Box<dyn Error>> {
    peer.udp.set_read_timeout(Some(Duration::from_millis(20)))?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        socket.send_to(b"again", peer.address()?)?;
        // A device is as quick as UDP.
        if peer.udp.recv_from(&mut [0; 100]).is_err() {
            peer.udp.set_read_timeout(Some(PATIENCE))?;
            return peer.expect(socket, b"again");
        }
    }
    Err("datagrams go over UDP for ever".into())
}

fn a_peer_of_the_c_library_is_understood() -> TestResult {
    let (socket, mut peer) = (socket()?, HandMade::new()?);
    let qp_num = send_until_direct(&socket, &mut peer)?;
    let to = peer.address()?;
    for data in [&[0; 0][..], b"x", &[7; 56], &[8; 500], &[9; 2032]] {
        socket.send_to(data, to)?;
        peer.expect(&socket, data)?;
        let mut bytes = [0; 2048];
        peer.send(qp_num, data)?;
        let (length, from) = socket.recv_from(&mut bytes)?;
        assert_eq!((&bytes[..length], from), (data, to));
    }
    Ok(Outcome::Pass)
}

fn a_question_is_answered_as_the_c_library_does() -> TestResult {
    let (socket, mut peer) = (socket()?, HandMade::new()?);
    let packet = [&peer.udp_header(0)[..], b"hello"].concat();
    let mut bytes = [0; 100];
    for _ in 0..3 {
        peer.udp.send_to(&packet, socket.local_addr()?)?;
        let (length, from) = socket.recv_from(&mut bytes)?;
        assert_eq!((&bytes[..length], from), (&b"hello"[..], peer.address()?));
        let qp_num = peer.expect_udp(&socket, 7, b"")?;
        peer.send(qp_num, b"direct")?;
        let (length, from) = socket.recv_from(&mut bytes)?;
        assert_eq!((&bytes[..length], from), (&b"direct"[..], peer.address()?));
    }
    Ok(Outcome::Pass)
}

/// A receive that is too short would end a queue pair.
fn datagrams_as_long_as_a_packet_are_taken() -> TestResult {
    let (socket, mut peer) = (socket()?, HandMade::new()?);
    let qp_num = send_until_direct(&socket, &mut peer)?;
    let mut bytes = [0; 5000];
    for length in [2040, 2041, 4088] {
        peer.send(qp_num, &vec![5; length])?;
        assert_eq!(socket.recv(&mut bytes)?, length);
    }
    // What is no datagram of the protocol is dropped, as often as there are receives.
    for round in 0..200u8 {
        let length = usize::from(round % 40);
        peer.send_raw(qp_num, &vec![round; length])?;
        if round % 20 == 19 {
            // A call takes them out.
            assert!(socket.take_error()?.is_none());
        }
    }
    peer.send(qp_num, b"after all")?;
    let length = socket.recv(&mut bytes)?;
    assert_eq!(&bytes[..length], b"after all");
    Ok(Outcome::Pass)
}

/// A peer that is silent may be another by now: once a second a datagram goes over UDP.
fn a_peer_that_tells_nothing_is_asked_again() -> TestResult {
    let (socket, mut peer) = (socket()?, HandMade::new()?);
    send_until_direct(&socket, &mut peer)?;
    let to = peer.address()?;
    thread::sleep(Duration::from_millis(1100));
    socket.send_to(b"still there?", to)?;
    peer.expect_udp(&socket, 0, b"still there?")?;
    for _ in 0..5 {
        socket.send_to(b"direct", to)?;
        peer.expect(&socket, b"direct")?;
    }
    // The answer of another queue pair.
    let mut other = HandMade::new()?;
    std::mem::swap(&mut other.udp, &mut peer.udp);
    other
        .udp
        .send_to(&other.udp_header(7), socket.local_addr()?)?;
    wait_until_direct(&socket, &mut other)?;
    // Another one of this library's is not disturbed.
    let third = super::socket()?;
    get_to_know(&socket, &third)?;
    carry(&third, &socket, b"well")?;
    Ok(Outcome::Pass)
}
