//! Multicast groups: joined, left, and whatever order things end in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::{Command, EventType};
use rdmacm_kernel_abi::uverbs;

use super::datagrams::{furnish, resolve_addr};
use super::pair::{expect, refused_first};
use crate::cm::multicast::is_known;
use crate::cm::{Address, CmId, Event, EventChannel, Membership, PortSpace, Status};
use crate::error::{ErrorKind, Result};
use crate::sys::twin::{Call, DESTROY_QP, Twin};
use crate::verbs::{Cq, Qp};

pub(super) const GROUPS: [SocketAddr; 2] = [group(1), group(2)];

const fn group(number: u8) -> SocketAddr {
    use std::net::{IpAddr, Ipv4Addr};
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 1, 2, number)), 0)
}

/// An id with a queue pair.
struct Member {
    channel: EventChannel,
    id: CmId,
    _queues: (Qp, Cq),
}

fn member(twin: &Arc<Twin>) -> Member {
    let (channel, id) = resolve_addr(twin.registry()).unwrap();
    let _queues = furnish(twin, &id).unwrap();
    Member {
        channel,
        id,
        _queues,
    }
}

impl Member {
    fn join(&self, group: SocketAddr) -> Result<Event> {
        self.id.join_multicast(group, Membership::Full)?;
        expect(&self.channel, "MULTICAST_JOIN")
    }
}

/// The calls that end things, in order.
fn ends(twin: &Twin) -> Vec<&'static str> {
    let word = |call: &Call| match call {
        call if call.is_write(uverbs::Command::DETACH_MCAST) => Some("detach"),
        call if call.is_cm(Command::LeaveMcast) => Some("leave"),
        call if call.is_method(DESTROY_QP) => Some("queue pair"),
        call if call.is_cm(Command::DestroyId) => Some("id"),
        _ => None,
    };
    twin.calls().iter().filter_map(word).collect()
}

fn attachments(twin: &Twin) -> usize {
    let calls = twin.calls();
    let attaches = |call: &&Call| call.is_write(uverbs::Command::ATTACH_MCAST);
    calls.iter().filter(attaches).count()
}

#[test]
fn a_full_member_is_attached_and_told_the_way() {
    let twin = Twin::new();
    let member = member(&twin);
    let joined = member.join(GROUPS[0]).unwrap();
    assert_eq!(attachments(&twin), 1);
    let Event::MulticastJoined { group, event } = &joined else {
        unreachable!("the name was checked")
    };
    assert_eq!(*group, Address::from(GROUPS[0]));
    let way = event.datagram().unwrap();
    assert_eq!((way.qp_num, way.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!(way.path.gid.to_ip(), GROUPS[0].ip());
    assert!(member.id.leave_multicast(GROUPS[0]).unwrap());
    assert!(!member.id.leave_multicast(GROUPS[0]).unwrap());
    assert_eq!(ends(&twin), ["detach", "leave"]);
    assert_eq!(twin.census().groups, 0);
    drop((member, joined));
    twin.assert_clean();
}

#[test]
fn who_only_sends_and_who_has_no_queue_pair_is_not_attached() {
    let twin = Twin::new();
    let member = member(&twin);
    let send_only = Membership::SendOnly;
    member.id.join_multicast(GROUPS[0], send_only).unwrap();
    expect(&member.channel, "MULTICAST_JOIN").unwrap();
    member.id.destroy_qp().unwrap();
    member.join(GROUPS[1]).unwrap();
    assert_eq!(attachments(&twin), 0);
    for group in GROUPS {
        assert!(member.id.leave_multicast(group).unwrap());
    }
    assert_eq!(ends(&twin), ["queue pair", "leave", "leave"]);
    drop(member);
    twin.assert_clean();
}

#[test]
fn a_group_that_was_joined_twice_stays_attached_until_it_is_left_twice() {
    let twin = Twin::new();
    let member = member(&twin);
    member.join(GROUPS[0]).unwrap();
    member.join(GROUPS[0]).unwrap();
    assert_eq!(twin.census().groups, 2);
    member.id.leave_multicast(GROUPS[0]).unwrap();
    assert_eq!(ends(&twin), ["leave"]);
    member.id.leave_multicast(GROUPS[0]).unwrap();
    assert_eq!(ends(&twin), ["leave", "detach", "leave"]);
    drop(member);
    twin.assert_clean();
}

#[test]
fn refused_calls_can_be_made_again() {
    let twin = Twin::new();
    let member = member(&twin);
    refused_first(&twin, Command::JoinMcast, || {
        member.id.join_multicast(GROUPS[0], Membership::Full)
    });
    expect(&member.channel, "MULTICAST_JOIN").unwrap();
    refused_first(&twin, Command::LeaveMcast, || {
        member.id.leave_multicast(GROUPS[0])
    });
    assert!(!member.id.leave_multicast(GROUPS[0]).unwrap());
    drop(member);
    twin.assert_clean();
}

#[test]
fn a_refused_detach_leaves_the_id_in_the_group() {
    let twin = Twin::new();
    let member = member(&twin);
    member.join(GROUPS[0]).unwrap();
    twin.fail(0, libc::ENOMEM, |call| {
        call.is_write(uverbs::Command::DETACH_MCAST)
    });
    let refused = member.id.leave_multicast(GROUPS[0]).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENOMEM));
    assert_eq!((ends(&twin), twin.census().groups), (vec!["detach"], 1));
    assert!(member.id.leave_multicast(GROUPS[0]).unwrap());
    drop(member);
    twin.assert_clean();
}

#[test]
fn an_attachment_that_is_refused_is_an_error_of_the_group() {
    let twin = Twin::new();
    let member = member(&twin);
    member
        .id
        .join_multicast(GROUPS[0], Membership::Full)
        .unwrap();
    twin.fail(0, libc::ENOMEM, |call| {
        call.is_write(uverbs::Command::ATTACH_MCAST)
    });
    let failed = expect(&member.channel, "MULTICAST_ERROR").unwrap();
    assert_eq!(failed.status(), Status::Errno(libc::ENOMEM));
    // The kernel has joined it: it is for the program to leave.
    assert!(member.id.leave_multicast(GROUPS[0]).unwrap());
    drop((member, failed));
    twin.assert_clean();
}

#[test]
fn an_id_that_ends_in_groups_detaches_then_destroys_queue_pair_and_id() {
    let order = ["detach", "detach", "queue pair", "id"];
    type End = fn(Member);
    let by_call: End = |member| member.id.destroy().unwrap();
    let by_drop: End = drop;
    for end in [by_call, by_drop] {
        let twin = Twin::new();
        let member = member(&twin);
        let held: Vec<Event> = GROUPS.map(|group| member.join(group).unwrap()).into();
        drop(held);
        end(member);
        assert_eq!(ends(&twin), order);
        twin.assert_clean();
    }
}

#[test]
fn what_is_refused_when_an_id_in_groups_ends_is_tried_again() {
    for what in ["detach", "queue pair", "id"] {
        let twin = Twin::new();
        let member = member(&twin);
        for group in GROUPS {
            member.join(group).unwrap();
        }
        twin.fail(0, libc::EINTR, move |call| match what {
            "detach" => call.is_write(uverbs::Command::DETACH_MCAST),
            "queue pair" => call.is_method(DESTROY_QP),
            _ => call.is_cm(Command::DestroyId),
        });
        let refused = member.id.destroy().unwrap_err();
        assert!(refused.errno().is_some(), "{what}: {refused}");
        drop(member);
        twin.assert_clean();
    }
}

#[test]
fn an_unread_join_goes_with_its_group_or_with_its_id() {
    let twin = Twin::new();
    let member = member(&twin);
    for group in GROUPS {
        member.id.join_multicast(group, Membership::Full).unwrap();
    }
    assert!(member.id.leave_multicast(GROUPS[0]).unwrap());
    let Event::MulticastJoined { group, .. } = expect(&member.channel, "MULTICAST_JOIN").unwrap()
    else {
        unreachable!("the name was checked")
    };
    assert_eq!(group, Address::from(GROUPS[1]));
    member
        .id
        .join_multicast(GROUPS[0], Membership::Full)
        .unwrap();
    member.id.destroy().unwrap();
    assert!(member.channel.try_next_event().unwrap().is_none());
    drop(member);
    twin.assert_clean();
}

#[test]
fn events_of_unknown_groups_are_dropped() {
    let twin = Twin::new();
    let member = member(&twin);
    member.join(GROUPS[0]).unwrap();
    for kind in [EventType::MULTICAST_JOIN, EventType::MULTICAST_ERROR] {
        // An id's cookie, and numbers that nobody gave.
        for uid in [0, member.id.cookie(), u64::MAX] {
            twin.inject_for_group(0, kind, |event| event.uid = uid);
            let event = member.channel.try_next_event().unwrap();
            if let Some(event) = event {
                // Cookies of ids and of groups are counted apart, and may be the same.
                assert_eq!((uid, event.id()), (member.id.cookie(), &member.id));
            }
        }
    }
    // What was read before the group was left finds it gone afterwards.
    let mut stale = 0;
    twin.inject_for_group(0, EventType::MULTICAST_ERROR, |event| stale = event.uid);
    expect(&member.channel, "MULTICAST_ERROR").unwrap();
    assert!(is_known(stale));
    member.id.leave_multicast(GROUPS[0]).unwrap();
    assert!(!is_known(stale));
    member.join(GROUPS[0]).unwrap();
    twin.inject_for_group(0, EventType::MULTICAST_ERROR, |event| event.uid = stale);
    assert!(member.channel.try_next_event().unwrap().is_none());
    twin.inject_for_group(0, EventType::MULTICAST_ERROR, |event| stale = event.uid);
    assert!(is_known(stale));
    member.id.destroy().unwrap();
    assert!(!is_known(stale));
    drop(member);
    twin.assert_clean();
}

#[test]
fn a_join_of_nonsense_is_an_error_or_an_event_and_ends_well() {
    for word in [0, 0x7f7f_7f7f, u32::MAX] {
        let twin = Twin::new();
        let member = member(&twin);
        member
            .id
            .join_multicast(GROUPS[0], Membership::Full)
            .unwrap();
        member.channel.try_next_event().unwrap().unwrap();
        twin.inject_for_group(0, EventType::MULTICAST_JOIN, |event| {
            event.param = [word; 76];
        });
        let event = member.channel.try_next_event().unwrap().unwrap();
        let known = ["MULTICAST_JOIN", "MULTICAST_ERROR"];
        assert!(known.contains(&event.name()), "{event:?}");
        drop((member, event));
        twin.assert_clean();
    }
}

#[test]
fn a_group_can_be_left_and_everything_destroyed_while_its_event_is_handled() {
    let twin = Twin::new();
    let member = member(&twin);
    let joined = member.join(GROUPS[0]).unwrap();
    assert!(joined.id().leave_multicast(GROUPS[0]).unwrap());
    let again = member.join(GROUPS[1]).unwrap();
    assert!(again.id().destroy_qp().unwrap());
    let elsewhere = EventChannel::open_on(member.channel.registry()).unwrap();
    again.id().migrate(&elsewhere).unwrap();
    again.id().destroy().unwrap();
    let gone = joined.id().leave_multicast(GROUPS[1]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Destroyed);
    assert_eq!(twin.census().groups, 0);
    drop((member, joined, again, elsewhere));
    twin.assert_clean();
}

#[test]
fn a_migrated_member_hears_of_its_groups_on_the_new_channel() {
    let twin = Twin::new();
    let member = member(&twin);
    for group in GROUPS {
        member.id.join_multicast(group, Membership::Full).unwrap();
    }
    let held = expect(&member.channel, "MULTICAST_JOIN").unwrap();
    let new = EventChannel::open_on(member.channel.registry()).unwrap();
    refused_first(&twin, Command::MigrateId, || member.id.migrate(&new));
    assert!(member.channel.try_next_event().unwrap().is_none());
    expect(&new, "MULTICAST_JOIN").unwrap();
    for group in GROUPS {
        assert!(member.id.leave_multicast(group).unwrap());
    }
    drop((member, held, new));
    twin.assert_clean();
}

#[test]
fn nothing_waits_for_a_reader_that_sleeps() {
    let twin = Twin::new();
    let Member {
        channel,
        id,
        _queues,
    } = member(&twin);
    id.join_multicast(GROUPS[0], Membership::Full).unwrap();
    let held = expect(&channel, "MULTICAST_JOIN").unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| channel.next_event(None).unwrap_err());
        thread::sleep(Duration::from_millis(20));
        assert!(id.leave_multicast(GROUPS[0]).unwrap());
        assert!(id.destroy_qp().unwrap());
        id.destroy().unwrap();
        channel.close();
        assert_eq!(reader.join().unwrap().kind(), ErrorKind::Closed);
    });
    drop((channel, id, _queues, held));
    twin.assert_clean();
}

#[test]
fn who_cannot_join_is_told_before_the_kernel_is_asked() {
    let twin = Twin::new();
    let member = member(&twin);
    let unbound = member.channel.create_id(PortSpace::Udp).unwrap();
    let connections = member.channel.create_id(PortSpace::Tcp).unwrap();
    let unicast: SocketAddr = "10.0.0.1:0".parse().unwrap();
    twin.forget_calls();
    let refused = [
        member.id.join_multicast(unicast, Membership::Full),
        unbound.join_multicast(GROUPS[0], Membership::Full),
        connections.join_multicast(GROUPS[0], Membership::Full),
    ];
    for refusal in refused {
        let kind = refusal.unwrap_err().kind();
        let of_input = [ErrorKind::InvalidInput, ErrorKind::InvalidState];
        assert!(of_input.contains(&kind), "{kind:?}");
    }
    assert_eq!(twin.calls(), []);
    let v6: SocketAddr = "[ff02::1234]:0".parse().unwrap();
    let unknown = member.id.join_multicast(v6, Membership::Full).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotSupported, "{unknown}");
    drop((member, unbound, connections));
    twin.assert_clean();
}

#[test]
fn leaving_lets_a_later_queue_pair_be() {
    let twin = Twin::new();
    let member = member(&twin);
    let joined = member.join(GROUPS[0]).unwrap();
    let way = joined.content().unwrap().datagram().unwrap().path;
    member.id.destroy_qp().unwrap();
    let (later, _cq) = furnish(&twin, &member.id).unwrap();
    later.attach_multicast(way.gid, way.lid).unwrap();
    twin.forget_calls();
    assert!(member.id.leave_multicast(GROUPS[0]).unwrap());
    assert_eq!(ends(&twin), ["leave"]);
    assert!(later.detach_multicast(way.gid, way.lid).unwrap());
}
