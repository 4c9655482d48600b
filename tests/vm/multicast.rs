//! Multicast groups of ids, on one host.
//!
//! Whether packets travel between hosts is tested with two of them (`two_hosts`, by `mckey`). What one
//! host shows: that the kernel's network stack is in a group and out of it again, that the queue pair
//! is attached and detached, and that what is sent to the group comes back to other queue pairs of the host.

use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use rdmacm::{
    Access, Address, Buffer, CmId, Completion, Cq, DatagramPeer, Destination, ErrorKind, Event,
    EventChannel, GRH_LENGTH, Gid, Membership, Pd, PortSpace, Qp, QpAttr, Result,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{QUIET, any_port, assert_holds, expect, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_full_member_is_in_the_group_until_it_leaves,
        a_send_only_member_sends_and_is_not_in_the_group,
        members_on_one_host_hear_each_other,
        an_id_is_in_several_groups,
        a_group_that_is_joined_twice_is_left_twice,
        an_event_of_a_group_that_was_left_is_dropped,
        an_id_is_destroyed_while_it_is_in_a_group,
        a_queue_pair_is_destroyed_while_it_is_attached,
        a_queue_pair_that_comes_later_is_attached_by_hand,
        a_group_of_ipv6_is_refused_with_the_reason,
        what_is_no_group_or_no_datagram_is_refused,
        a_group_that_was_never_joined_is_not_left,
    ]
}

fn group(last: u8) -> SocketAddr {
    (Ipv4Addr::new(239, 7, 7, last), 0).into()
}

fn gid(last: u8) -> Gid {
    let mapped = Ipv4Addr::new(239, 7, 7, last).to_ipv6_mapped();
    Gid(mapped.octets())
}

/// Whether the host's network stack is in a group, so that the network delivers its packets.
fn host_is_in(last: u8) -> Result<bool, Box<dyn Error>> {
    // The kernel prints the address as a number in host byte order.
    let address = u32::from_ne_bytes([239, 7, 7, last]);
    let groups = fs::read_to_string("/proc/net/igmp")?;
    Ok(groups.contains(&format!("{address:08X}")))
}

/// An id for datagrams that has the device under test, and its channel.
fn bound() -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.bind_addr(any_port())?;
    Ok((channel, id))
}

/// An id with a queue pair for datagrams.
struct Member {
    id: CmId,
    channel: EventChannel,
    pd: Pd,
    cq: Cq,
    qp: Qp,
    inbox: Buffer,
}

impl Member {
    fn new() -> Result<Self> {
        let (channel, id) = bound()?;
        let pd = id.context()?.alloc_pd()?;
        let (cq, qp) = queues(&id, &pd)?;
        let inbox = pd.alloc(GRH_LENGTH + 64, Access::LOCAL_WRITE)?;
        Ok(Self {
            id,
            channel,
            pd,
            cq,
            qp,
            inbox,
        })
    }

    /// Joins a group and waits until it is in it.
    fn join(&self, last: u8, membership: Membership) -> Result<DatagramPeer> {
        self.id.join_multicast(group(last), membership)?;
        joined(&self.channel, last)
    }

    fn is_attached_to(&self, last: u8) -> Result<bool> {
        // There is no question for it, but whoever is not attached cannot be detached.
        let is_attached = self.qp.detach_multicast(gid(last), 0)?;
        if is_attached {
            self.qp.attach_multicast(gid(last), 0)?;
        }
        Ok(is_attached)
    }

    fn post_receive(&mut self, wr_id: u64) -> Result<()> {
        let place = self.inbox.slice(..)?;
        Ok(self.qp.recv_half().post(wr_id, &[place])?)
    }

    fn send(&mut self, way: &DatagramPeer, message: &[u8]) -> Result<()> {
        let handle = self.pd.address_handle(&way.path)?;
        let to = Destination {
            handle: &handle,
            qp_num: way.qp_num,
            qkey: way.qkey,
        };
        let mut batch = self.qp.send_half().batch();
        batch.send_datagram(1, to).signaled().inline(message)?;
        batch.submit()?;
        next_completion(&mut self.cq)?.result()?;
        Ok(())
    }

    fn hears(&mut self, wr_id: u64, message: &[u8]) -> Result<()> {
        let completion = next_completion(&mut self.cq)?;
        assert_eq!(completion.wr_id(), wr_id);
        let length = completion.result()?.datagram_len();
        assert_eq!(length as usize, message.len());
        assert_holds(&self.inbox, GRH_LENGTH, message);
        Ok(())
    }

    fn hears_nothing(&mut self) {
        let mut entry = [Completion::default()];
        let waited = self.cq.wait(&mut entry, Some(QUIET));
        assert!(waited.is_err(), "{waited:?}");
    }
}

fn queues(id: &CmId, pd: &Pd) -> Result<(Cq, Qp)> {
    let completions = pd.context().completion_channel()?;
    let cq = pd
        .context()
        .completion_queue(64)
        .channel(&completions)
        .build()?;
    let attr = QpAttr::new(pd).send_cq(&cq).recv_cq(&cq);
    let qp = id.create_qp(&attr.max_inline_data(64))?;
    Ok((cq, qp))
}

/// Waits for the event that a group was joined.
fn joined(channel: &EventChannel, last: u8) -> Result<DatagramPeer> {
    match expect(channel, "MULTICAST_JOIN")? {
        Event::MulticastJoined { group: of, event } => {
            assert_eq!(of, Address::from(group(last)));
            Ok(*event.datagram().expect("the way to the group"))
        }
        other => unreachable!("{other:?}"),
    }
}

fn is_silent(channel: &EventChannel) {
    let waited = channel.next_event(Some(QUIET));
    assert_eq!(
        waited.map_err(|error| error.kind()).err(),
        Some(ErrorKind::TimedOut)
    );
}

fn a_full_member_is_in_the_group_until_it_leaves() -> TestResult {
    let member = Member::new()?;
    let way = member.join(1, Membership::Full)?;
    assert_eq!((way.path.gid, way.path.lid), (gid(1), 0));
    assert_eq!((way.qp_num, way.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!(member.qp.query()?.qkey, way.qkey);
    assert!(host_is_in(1)? && member.is_attached_to(1)?);
    assert!(member.id.leave_multicast(group(1))?);
    assert!(!host_is_in(1)? && !member.is_attached_to(1)?);
    assert!(!member.id.leave_multicast(group(1))?);
    Ok(Outcome::Pass)
}

fn a_send_only_member_sends_and_is_not_in_the_group() -> TestResult {
    let mut member = Member::new()?;
    let way = member.join(2, Membership::SendOnly)?;
    assert!(!host_is_in(2)? && !member.is_attached_to(2)?);
    member.send(&way, b"to whom it may concern")?;
    assert!(member.id.leave_multicast(group(2))?);
    Ok(Outcome::Pass)
}

fn members_on_one_host_hear_each_other() -> TestResult {
    let (mut sender, mut receiver) = (Member::new()?, Member::new()?);
    receiver.join(3, Membership::Full)?;
    let way = sender.join(3, Membership::SendOnly)?;
    receiver.post_receive(7)?;
    sender.send(&way, b"hello, all")?;
    receiver.hears(7, b"hello, all")?;
    // Who has left hears no more.
    assert!(receiver.id.leave_multicast(group(3))?);
    receiver.post_receive(8)?;
    sender.send(&way, b"hello?")?;
    receiver.hears_nothing();
    Ok(Outcome::Pass)
}

fn an_id_is_in_several_groups() -> TestResult {
    let member = Member::new()?;
    for last in 10..20 {
        member.id.join_multicast(group(last), Membership::Full)?;
    }
    let mut gids: Vec<_> = (0..10)
        .map(|_| match expect(&member.channel, "MULTICAST_JOIN")? {
            Event::MulticastJoined { group, event } => {
                let way = *event.datagram().expect("the way to the group");
                // The event is about the group that it names.
                assert_eq!(group.ip().map(|at| at.ip()), Some(way.path.gid.to_ip()));
                Ok(way.path.gid)
            }
            other => unreachable!("{other:?}"),
        })
        .collect::<Result<_>>()?;
    gids.sort_by_key(|gid| gid.0);
    assert_eq!(gids, (10..20).map(gid).collect::<Vec<_>>());
    assert!(member.id.leave_multicast(group(15))?);
    for last in 10..20 {
        assert_eq!(host_is_in(last)?, last != 15, "{last}");
        assert_eq!(member.is_attached_to(last)?, last != 15, "{last}");
    }
    Ok(Outcome::Pass)
}

fn a_group_that_is_joined_twice_is_left_twice() -> TestResult {
    let member = Member::new()?;
    member.join(4, Membership::Full)?;
    member.join(4, Membership::Full)?;
    assert!(member.id.leave_multicast(group(4))?);
    assert!(host_is_in(4)? && member.is_attached_to(4)?);
    assert!(member.id.leave_multicast(group(4))?);
    assert!(!host_is_in(4)? && !member.is_attached_to(4)?);
    assert!(!member.id.leave_multicast(group(4))?);
    Ok(Outcome::Pass)
}

fn an_event_of_a_group_that_was_left_is_dropped() -> TestResult {
    let member = Member::new()?;
    member.id.join_multicast(group(5), Membership::Full)?;
    assert!(member.id.leave_multicast(group(5))?);
    is_silent(&member.channel);
    assert!(!host_is_in(5)? && !member.is_attached_to(5)?);
    // The next join of the group has an event of its own.
    member.join(5, Membership::Full)?;
    Ok(Outcome::Pass)
}

fn an_id_is_destroyed_while_it_is_in_a_group() -> TestResult {
    for round in 0..4 {
        let member = Member::new()?;
        member.join(6, Membership::Full)?;
        // One event is read, the other never is.
        member.id.join_multicast(group(7), Membership::Full)?;
        assert!(host_is_in(6)?);
        match round % 2 {
            0 => member.id.destroy()?,
            _ => drop(member),
        }
        assert!(!host_is_in(6)? && !host_is_in(7)?);
    }
    Ok(Outcome::Pass)
}

fn a_queue_pair_is_destroyed_while_it_is_attached() -> TestResult {
    let member = Member::new()?;
    member.join(8, Membership::Full)?;
    assert!(member.id.destroy_qp()?);
    // The id is in the group without it, until it leaves.
    assert!(host_is_in(8)?);
    let (_cq, second) = queues(&member.id, &member.pd)?;
    assert!(!second.detach_multicast(gid(8), 0)?);
    assert!(member.id.leave_multicast(group(8))?);
    assert!(!host_is_in(8)?);
    Ok(Outcome::Pass)
}

fn a_queue_pair_that_comes_later_is_attached_by_hand() -> TestResult {
    let (channel, id) = bound()?;
    id.join_multicast(group(9), Membership::Full)?;
    let way = joined(&channel, 9)?;
    let pd = id.context()?.alloc_pd()?;
    let (mut cq, mut qp) = queues(&id, &pd)?;
    let inbox = pd.alloc(GRH_LENGTH + 64, Access::LOCAL_WRITE)?;
    qp.recv_half().post(5, &[inbox.slice(..)?])?;
    let mut sender = Member::new()?;
    sender.join(9, Membership::SendOnly)?;
    sender.send(&way, b"too early")?;
    let mut entry = [Completion::default()];
    let waited = cq.wait(&mut entry, Some(QUIET));
    assert!(waited.is_err(), "{waited:?}");

    qp.attach_multicast(way.path.gid, way.path.lid)?;
    sender.send(&way, b"in time")?;
    assert_eq!(next_completion(&mut cq)?.wr_id(), 5);
    assert_holds(&inbox, GRH_LENGTH, b"in time");
    // What was attached by hand is the program's to detach.
    assert!(id.leave_multicast(group(9))?);
    assert!(qp.detach_multicast(way.path.gid, way.path.lid)?);
    Ok(Outcome::Pass)
}

fn a_group_of_ipv6_is_refused_with_the_reason() -> TestResult {
    let (channel, id) = bound()?;
    let group: SocketAddr = "[ff05::7]:0".parse()?;
    let error = id
        .join_multicast(group, Membership::Full)
        .expect_err("RoCE has none");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("IPv4"), "{error}");
    // Nothing is left of the attempt.
    assert!(!id.leave_multicast(group)?);
    is_silent(&channel);
    Ok(Outcome::Pass)
}

fn what_is_no_group_or_no_datagram_is_refused() -> TestResult {
    let (channel, id) = bound()?;
    let connected = channel.create_id(PortSpace::Tcp)?;
    connected.bind_addr(any_port())?;
    let nowhere = channel.create_id(PortSpace::Udp)?;
    let unicast = SocketAddr::from((environment::addr(), 0));
    for (refused, kind) in [
        (
            id.join_multicast(unicast, Membership::Full),
            ErrorKind::InvalidInput,
        ),
        (
            connected.join_multicast(group(1), Membership::Full),
            ErrorKind::InvalidInput,
        ),
        (
            nowhere.join_multicast(group(1), Membership::Full),
            ErrorKind::InvalidState,
        ),
    ] {
        let error = refused.expect_err("it cannot be joined");
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert!(!host_is_in(1)?);
    is_silent(&channel);
    Ok(Outcome::Pass)
}

fn a_group_that_was_never_joined_is_not_left() -> TestResult {
    let member = Member::new()?;
    assert!(!member.id.leave_multicast(group(1))?);
    member.join(2, Membership::Full)?;
    assert!(!member.id.leave_multicast(group(1))?);
    // Not in this spelling either: a group is left as it was joined.
    let other = SocketAddr::from((group(2).ip(), 9));
    assert!(!member.id.leave_multicast(other)?);
    member.id.destroy()?;
    let error = member
        .id
        .leave_multicast(group(2))
        .expect_err("the id is gone");
    assert_eq!(error.kind(), ErrorKind::Destroyed);
    Ok(Outcome::Pass)
}
