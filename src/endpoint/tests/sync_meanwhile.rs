//! Ids that wait, when something else happens meanwhile or happened before.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::EventType;
use rdmacm_kernel_abi::uverbs::Command;

use super::super::SyncId;
use super::sync_steps::{connected, listening, resolved};
use super::{PATIENCE, SHORT, address, on_twin};
use crate::cm::{ConnParam, Event, EventChannel, Membership, PortSpace};
use crate::error::ErrorKind;
use crate::sys::twin::{Call, Twin};
use crate::verbs::QpAttr;

/// Longer than anything here takes that is not to wait for ever.
const A_WHILE: Option<Duration> = Some(Duration::from_millis(300));

fn group(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn an_end_that_was_read_elsewhere_is_not_waited_for() {
    let twin = Twin::new();
    let (active, passive) = connected(&twin);
    let channel = EventChannel::open().unwrap();
    let (id, _queues) = active.into_id(&channel).unwrap();
    passive.id().disconnect().unwrap();
    let event = channel.next_event(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Event::Disconnected(_)));
    drop(event);
    let mut back = SyncId::from_id(id).unwrap();
    back.set_timeout(A_WHILE);
    back.disconnect().unwrap();
}

#[test]
fn a_rejection_that_was_read_elsewhere_is_not_waited_for() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let listener = listening();
    let channel = EventChannel::open().unwrap();
    let (id, _queues) = resolved().into_id(&channel).unwrap();
    id.connect(&ConnParam::new()).unwrap();
    listener.get_request().unwrap().reject(b"").unwrap();
    let event = channel.next_event(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Event::Rejected(_)));
    let mut back = SyncId::from_id(id).unwrap();
    back.set_timeout(A_WHILE);
    back.disconnect().unwrap();
}

#[test]
fn every_wait_for_requests_ends_when_the_device_is_removed() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut listener = listening();
    listener.set_timeout(A_WHILE);
    twin.remove_device(0);
    assert_eq!(
        listener.get_request().unwrap_err().kind(),
        ErrorKind::DeviceRemoved
    );
    let second = listener.get_request().unwrap_err();
    assert_eq!(second.kind(), ErrorKind::DeviceRemoved, "{second}");
}

#[test]
fn a_join_tells_the_way_to_its_own_group() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let (a, b) = (group("239.1.1.1:0"), group("239.2.2.2:0"));
    let channel = EventChannel::open().unwrap();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.bind_addr((address().ip(), 0)).unwrap();
    id.join_multicast(a, Membership::Full).unwrap();
    let mut id = SyncId::from_id(id).unwrap();
    id.set_timeout(Some(PATIENCE));
    let way = id.join_multicast(b, Membership::Full).unwrap();
    assert_eq!(way.path.gid.to_ip(), b.ip());
}

#[test]
fn a_rejection_of_datagrams_is_a_rejection() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let mut listener = SyncId::create(PortSpace::Udp).unwrap();
    listener.set_timeout(Some(PATIENCE));
    listener.bind_addr(address()).unwrap();
    listener.listen(0).unwrap();
    let rejecting = on_twin(registry, move || {
        listener.get_request().unwrap().reject(b"no").unwrap()
    });
    let mut id = SyncId::create(PortSpace::Udp).unwrap();
    id.set_timeout(Some(PATIENCE));
    id.resolve_addr(None, address(), PATIENCE).unwrap();
    id.resolve_route(PATIENCE).unwrap();
    let error = id.connect(&ConnParam::new()).unwrap_err();
    rejecting.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
}

#[test]
fn a_new_link_address_ends_no_disconnect() {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    twin.inject(1, EventType::UNREACHABLE, |_| ());
    passive.id().disconnect().unwrap();
    active.disconnect().unwrap();
}

#[test]
fn queues_handed_over_do_not_block() {
    let twin = Twin::new();
    let (active, _passive) = connected(&twin);
    let channel = EventChannel::open().unwrap();
    let (_id, _queues) = active.into_id(&channel).unwrap();
    let calls = twin.calls();
    assert!(
        calls
            .iter()
            .any(|call| matches!(call, Call::SetNonblocking)),
        "no completion channel was made non-blocking"
    );
}

#[test]
fn an_id_that_is_waited_for_stays_on_its_channel() {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    let channel = EventChannel::open().unwrap();
    let refused = active.id().migrate(&channel).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    passive.id().disconnect().unwrap();
    active.set_timeout(A_WHILE);
    let ended = active.recv_completion().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Disconnected);
    active.id().destroy().unwrap();
    let refused = active.id().migrate(&channel).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Destroyed);
}

#[test]
fn a_user_event_ends_no_step() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut id = SyncId::create(PortSpace::Tcp).unwrap();
    id.set_timeout(Some(SHORT));
    id.id().write_user_event(7).unwrap();
    id.resolve_addr(None, address(), PATIENCE).unwrap();
}

#[test]
fn dropping_a_sync_id_ends_its_connection() {
    let twin = Twin::new();
    let (active, mut passive) = connected(&twin);
    let kept = active.id().clone();
    drop(active);
    passive.set_timeout(A_WHILE);
    let error = passive.recv_completion().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    drop(kept);
}

#[test]
fn a_failed_join_leaves_nothing() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut id = SyncId::create(PortSpace::Udp).unwrap();
    id.set_timeout(Some(PATIENCE));
    id.bind_addr((address().ip(), 0)).unwrap();
    id.create_qp(&QpAttr::default()).unwrap();
    twin.fail(0, libc::ENOMEM, |call| call.is_write(Command::ATTACH_MCAST));
    id.join_multicast(group("239.1.1.1:0"), Membership::Full)
        .unwrap_err();
    assert_eq!(twin.census().groups, 0);
}

#[test]
fn news_leave_the_way_to_the_peer() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let mut listener = SyncId::create(PortSpace::Udp).unwrap();
    listener.set_timeout(Some(PATIENCE));
    listener.set_request_attr(QpAttr::default());
    listener.bind_addr(address()).unwrap();
    listener.listen(0).unwrap();
    let accepting = on_twin(registry, move || {
        let mut id = listener.get_request().unwrap();
        id.accept(&ConnParam::new()).unwrap();
        (listener, id)
    });
    let mut id = SyncId::create(PortSpace::Udp).unwrap();
    id.set_timeout(Some(PATIENCE));
    id.resolve_addr(None, address(), PATIENCE).unwrap();
    id.resolve_route(PATIENCE).unwrap();
    id.create_qp(&QpAttr::default()).unwrap();
    id.connect(&ConnParam::new()).unwrap();
    let _server = accepting.join().unwrap();
    let way = id.datagram().copied().unwrap();
    for handle in 0..3 {
        twin.inject(handle, EventType::ADDR_CHANGE, |_| ());
    }
    id.set_timeout(Some(SHORT));
    id.recv_completion().unwrap_err();
    assert_eq!(id.datagram().copied(), Some(way));
}

#[test]
fn a_connection_that_was_not_finished_has_no_end_to_wait_for() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = listening();
    let accepting = on_twin(registry, move || {
        let id = listener.get_request().unwrap();
        id.id().accept(&ConnParam::new()).unwrap();
        (id, listener)
    });
    let mut id = SyncId::create(PortSpace::Tcp).unwrap();
    id.set_timeout(Some(PATIENCE));
    id.resolve_addr(None, address(), PATIENCE).unwrap();
    id.resolve_route(PATIENCE).unwrap();
    id.connect(&ConnParam::new().own_qp(77, false)).unwrap();
    let _server = accepting.join().unwrap();
    id.set_timeout(A_WHILE);
    id.disconnect().unwrap();
}

#[test]
fn a_completion_that_comes_after_the_end_is_waited_for() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    let inbox = active.alloc(8).unwrap();
    active.post_recv(3, &[inbox.slice(..).unwrap()]).unwrap();
    // The end is known before the message is there.
    active.ended = Some((ErrorKind::Disconnected, "the connection ended"));
    let sending = on_twin(twin.registry(), move || {
        std::thread::sleep(SHORT);
        passive
            .post_send_inline(1, b"late", crate::fastpath::SendFlags::SIGNALED)
            .unwrap();
        passive
    });
    assert_eq!(active.recv_completion().unwrap().wr_id(), 3);
    drop(sending.join().unwrap());
    let ended = active.recv_completion().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Disconnected);
}
