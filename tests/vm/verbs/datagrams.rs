//! Datagrams between two queue pairs of one device.

use std::net::IpAddr;

use rdmacm::{
    Access, AddressHandle, Buffer, Completion, Cq, Destination, GRH_LENGTH, LinkLayer, Opcode, Pd,
    PostError, Qp, Result,
};

use super::{QKEY, datagram_qp, next_success, own_path, path_of};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, Usage, tests};
use crate::pair::{QUIET, assert_holds, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_datagram_arrives_behind_its_header,
        a_datagram_can_be_answered,
        a_handle_says_how_packets_travel,
        a_receive_without_room_for_the_header_gets_nothing,
        a_wrong_queue_key_reaches_nobody,
        a_packet_is_filled_to_the_last_byte,
        handles_of_addresses_come_and_go,
        a_handle_that_is_gone_is_no_way,
    ]
}

/// A queue pair for datagrams with a buffer to receive into.
struct Post {
    qp: Qp,
    cq: Cq,
    inbox: Buffer,
}

impl Post {
    fn new(pd: &Pd) -> Result<Self> {
        let (qp, cq) = datagram_qp(pd)?;
        let inbox = pd.alloc(16384, Access::LOCAL_WRITE)?;
        Ok(Self { qp, cq, inbox })
    }

    fn receive(&mut self, wr_id: u64, length: usize) -> Result<()> {
        let segment = self.inbox.slice(..length)?;
        Ok(self.qp.recv_half().post(wr_id, &[segment])?)
    }

    fn send(&mut self, to: Destination<'_>, bytes: &[u8]) -> Result<()> {
        let mut batch = self.qp.send_half().batch();
        batch.send_datagram(1, to).signaled().inline(bytes)?;
        batch.submit()?;
        assert_eq!(next_success(&mut self.cq)?.wr_id(), 1);
        Ok(())
    }

    fn hears_nothing(&mut self) {
        let mut entry = [Completion::default()];
        let waited = self.cq.wait(&mut entry, Some(QUIET));
        assert!(waited.is_err(), "{waited:?}");
    }
}

fn to<'a>(handle: &'a AddressHandle, receiver: &Qp) -> Destination<'a> {
    Destination {
        handle,
        qp_num: receiver.number(),
        qkey: QKEY,
    }
}

fn two() -> Result<(Post, Post, AddressHandle)> {
    two_at(environment::addr())
}

/// Two of them, and the handle of the address that both have.
fn two_at(address: IpAddr) -> Result<(Post, Post, AddressHandle)> {
    let pd = environment::context().alloc_pd()?;
    let handle = pd.address_handle(&path_of(pd.context(), address)?)?;
    Ok((Post::new(&pd)?, Post::new(&pd)?, handle))
}

/// F89: 40 bytes in front, counted in the length.
fn a_datagram_arrives_behind_its_header() -> TestResult {
    let (mut one, mut other, handle) = two()?;
    other.receive(7, 500)?;
    let message = pattern(3, 33);
    let mut batch = one.qp.send_half().batch();
    batch
        .send_datagram_immediate(1, to(&handle, &other.qp), 0x0102_0304)
        .signaled()
        .inline(&message)?;
    batch.submit()?;
    next_success(&mut one.cq)?;
    let completion = next_success(&mut other.cq)?;
    let received = completion.result()?;
    assert_eq!(
        (completion.wr_id(), received.opcode()),
        (7, Opcode::Receive)
    );
    assert_eq!((received.byte_len(), received.datagram_len()), (73, 33));
    assert_eq!(received.source_qp(), one.qp.number());
    assert_eq!(received.immediate(), Some(0x0102_0304));
    let is_routed = environment::context().port(1)?.link_layer != LinkLayer::InfiniBand;
    assert_eq!(received.has_grh(), is_routed);
    assert_holds(&other.inbox, GRH_LENGTH, &message);
    Ok(Outcome::Pass)
}

/// Over IPv4 and IPv6, whose headers differ.
fn a_datagram_can_be_answered() -> TestResult {
    let context = environment::context();
    if context.port(1)?.link_layer == LinkLayer::InfiniBand {
        return Ok(Outcome::Skip("on InfiniBand there is no header".into()));
    }
    for address in environment::addresses() {
        let (mut one, mut other, handle) = two_at(address)?;
        other.receive(1, 100)?;
        one.send(to(&handle, &other.qp), b"question")?;
        let completion = next_success(&mut other.cq)?;
        let received = completion.result()?;
        let mut header = [0; GRH_LENGTH];
        other.inbox.read(0, &mut header)?;
        let back = context.reply_path(&received, &header, 1)?;
        let own = path_of(&context, address)?;
        assert_eq!(
            (back.gid, back.source_gid_index, back.port),
            (own.gid, own.source_gid_index, own.port)
        );
        let answer = handle.pd().address_handle(&back)?;
        one.receive(2, 100)?;
        let sender = Destination {
            handle: &answer,
            qp_num: received.source_qp(),
            qkey: QKEY,
        };
        other.send(sender, b"answer")?;
        next_success(&mut one.cq)?;
        assert_holds(&one.inbox, GRH_LENGTH, b"answer");
    }
    Ok(Outcome::Pass)
}

/// The header tells what the packet had. On RoCE the kernel takes the hop limit from the route
/// instead, and rxe writes no flow label.
fn a_handle_says_how_packets_travel() -> TestResult {
    const TRAFFIC_CLASS: u8 = 0x68;
    let context = environment::context();
    if context.port(1)?.link_layer == LinkLayer::InfiniBand {
        return Ok(Outcome::Skip("on InfiniBand there is no header".into()));
    }
    for address in environment::addresses() {
        let (mut one, mut other, plain) = two_at(address)?;
        let path = rdmacm::Path {
            traffic_class: TRAFFIC_CLASS,
            flow_label: 0x1_2345,
            ..path_of(&context, address)?
        };
        let handle = plain.pd().address_handle(&path)?;
        other.receive(1, 100)?;
        one.send(to(&handle, &other.qp), b"express")?;
        next_success(&mut other.cq)?;
        let header = other.inbox.read_vec(0, GRH_LENGTH)?;
        let found = match address {
            // That of IPv4 is in the second half.
            IpAddr::V4(_) => header[21],
            IpAddr::V6(_) => header[0] << 4 | header[1] >> 4,
        };
        assert_eq!(found, TRAFFIC_CLASS, "{address}: {header:x?}");
        assert_holds(&other.inbox, GRH_LENGTH, b"express");
    }
    Ok(Outcome::Pass)
}

/// F89: what has no room for header and message together, is not what the message goes to.
fn a_receive_without_room_for_the_header_gets_nothing() -> TestResult {
    let (mut one, mut other, handle) = two()?;
    other.receive(1, 8)?;
    one.send(to(&handle, &other.qp), b"8 bytes.")?;
    let mut entry = [Completion::default()];
    if let Ok([completion]) = other.cq.wait(&mut entry, Some(QUIET)) {
        assert!(completion.result().is_err(), "{completion:?}");
    }
    assert_holds(&other.inbox, 0, &[0; 64]);
    Ok(Outcome::Pass)
}

fn a_wrong_queue_key_reaches_nobody() -> TestResult {
    let (mut one, mut other, handle) = two()?;
    other.receive(1, 100)?;
    let wrong = Destination {
        qkey: QKEY + 1,
        ..to(&handle, &other.qp)
    };
    one.send(wrong, b"lost")?;
    other.hears_nothing();
    one.send(to(&handle, &other.qp), b"found")?;
    next_success(&mut other.cq)?;
    assert_holds(&other.inbox, GRH_LENGTH, b"found");
    Ok(Outcome::Pass)
}

fn a_packet_is_filled_to_the_last_byte() -> TestResult {
    let (mut one, mut other, handle) = two()?;
    let max = environment::context().port(1)?.active_mtu.bytes();
    let length = max as usize;
    let mut outbox = handle.pd().alloc(length + 1, Access::LOCAL_WRITE)?;
    let message = pattern(5, length);
    outbox.write(0, &message)?;
    other.receive(1, length + GRH_LENGTH)?;
    let destination = to(&handle, &other.qp);
    let (whole, fits) = (outbox.slice(..)?, outbox.slice(..length)?);
    let mut batch = one.qp.send_half().batch();
    assert_eq!(
        batch.send_datagram(1, destination).from(&[whole]),
        Err(PostError::DatagramTooLong {
            length: length + 1,
            max
        })
    );
    batch
        .send_datagram(2, destination)
        .signaled()
        .from(&[fits])?;
    batch.submit()?;
    assert_eq!(next_success(&mut one.cq)?.wr_id(), 2);
    let completion = next_success(&mut other.cq)?;
    assert_eq!(completion.result()?.datagram_len(), max);
    assert_holds(&other.inbox, GRH_LENGTH, &message);
    Ok(Outcome::Pass)
}

/// Numbers of handles are used again; none is left behind.
fn handles_of_addresses_come_and_go() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let path = own_path(pd.context())?;
    let before = Usage::now()?;
    for round in 0..200 {
        let handles: Vec<_> = (0..10)
            .map(|_| pd.address_handle(&path))
            .collect::<Result<_>>()?;
        // One of two ways to go.
        for (number, handle) in handles.into_iter().enumerate() {
            if (round + number) % 2 == 0 {
                handle.destroy()?;
            }
        }
    }
    assert_eq!(Usage::now()?, before);
    // The domain could not be freed while one is left.
    pd.dealloc()?;
    Ok(Outcome::Pass)
}

/// What the documentation says of a handle that goes too early.
fn a_handle_that_is_gone_is_no_way() -> TestResult {
    let (mut one, other, handle) = two()?;
    let mut batch = one.qp.send_half().batch();
    batch
        .send_datagram(1, to(&handle, &other.qp))
        .signaled()
        .inline(b"late")?;
    handle.destroy()?;
    batch.submit()?;
    let completion = crate::pair::next_completion(&mut one.cq)?;
    assert!(completion.result().is_err(), "{completion:?}");
    assert_eq!(one.qp.query_state()?, rdmacm::QpState::Error);
    Ok(Outcome::Pass)
}
