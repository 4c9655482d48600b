//! Connections of ids that wait: their queues, their messages and their end.

use std::sync::Arc;

use super::super::SyncId;
use super::sync_steps::{connected, listening, resolved};
use super::{PATIENCE, address, on_twin};
use crate::cm::{ConnParam, Event, EventChannel, PortSpace};
use crate::error::ErrorKind;
use crate::fastpath::SendFlags;
use crate::sys::twin::Twin;
use crate::verbs::{Access, QpAttr, SrqAttr};

/// Sends a message from one id to the other.
fn pass(from: &mut SyncId, to: &mut SyncId, message: &[u8]) {
    let inbox = to.alloc(64).unwrap();
    to.post_recv(7, &[inbox.slice(..).unwrap()]).unwrap();
    from.post_send_inline(8, message, SendFlags::SIGNALED)
        .unwrap();
    assert_eq!(from.send_completion().unwrap().wr_id(), 8);
    let received = to.recv_completion().unwrap();
    let length = received.result().unwrap().byte_len() as usize;
    assert_eq!((received.wr_id(), length), (7, message.len()));
    assert_eq!(inbox.read_vec(0, length).unwrap(), message);
}

#[test]
fn messages_writes_and_reads_pass() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    pass(&mut active, &mut passive, b"there");
    pass(&mut passive, &mut active, b"back");
    let shared = passive
        .alloc_with(
            64,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        )
        .unwrap();
    let mut own = active.alloc(64).unwrap();
    own.write(0, b"written").unwrap();
    let all = SendFlags::empty();
    let (remote, part) = (shared.remote().at(8), own.slice(..7).unwrap());
    active.post_write(1, &[part], all, remote).unwrap();
    active.post_write_inline(2, b"W", all, remote).unwrap();
    let part = own.slice(32..39).unwrap();
    active.post_read(3, &[part], all, remote).unwrap();
    for number in 1..=3 {
        let completion = active.send_completion().unwrap();
        completion.result().unwrap();
        assert_eq!(completion.wr_id(), number);
    }
    assert_eq!(own.read_vec(32, 7).unwrap(), b"Written");
    let out = own.slice(..4).unwrap();
    let inbox = passive.alloc(64).unwrap();
    passive.post_recv(4, &[inbox.slice(..).unwrap()]).unwrap();
    active.post_send(5, &[out], all).unwrap();
    active.send_completion().unwrap().result().unwrap();
    passive.recv_completion().unwrap().result().unwrap();
    assert_eq!(inbox.read_vec(0, 4).unwrap(), b"writ");
    drop((active, passive, shared, own, inbox));
    twin.assert_clean();
}

/// F98.
#[test]
fn each_connection_has_queues_of_its_own_and_of_the_same_size() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let mut listener = listening();
    let attr = QpAttr::default()
        .max_send_wr(4)
        .max_recv_wr(4)
        .max_send_sge(2);
    listener.set_request_attr(attr);
    let accepting = on_twin(registry, move || {
        let accept = |_| {
            let mut id = listener.get_request().unwrap();
            id.accept(&ConnParam::new()).unwrap();
            id
        };
        (0..3).map(accept).collect::<Vec<_>>()
    });
    let actives: Vec<SyncId> = (0..3)
        .map(|_| {
            let mut id = resolved();
            id.connect(&ConnParam::new()).unwrap();
            id
        })
        .collect();
    let mut accepted = accepting.join().unwrap();
    let granted = accepted[0].qp().unwrap().query().unwrap().capabilities;
    assert!(granted.max_send_wr >= 4 && granted.max_send_sge >= 2);
    let mut tokens = Vec::new();
    for id in &mut accepted {
        assert_eq!(id.qp().unwrap().query().unwrap().capabilities, granted);
        let (send, recv) = (&id.queues.send_cq, &id.queues.recv_cq);
        tokens.push(format!("{:?}", send.as_ref().unwrap().token()));
        tokens.push(format!("{:?}", recv.as_ref().unwrap().token()));
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 6);
    drop((actives, accepted));
    twin.assert_clean();
}

/// What the C library's inventory of mistakes calls I-27: queues made along the way stay, or go
/// twice.
#[test]
fn queues_made_for_a_queue_pair_go_with_it_and_no_others() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut id = resolved();
    assert_eq!((twin.census().qps, twin.census().cqs), (1, 2));
    assert!(id.destroy_qp().unwrap());
    assert_eq!((twin.census().qps, twin.census().cqs), (0, 0));
    assert!(!id.destroy_qp().unwrap());
    assert_eq!(
        id.send_completion().unwrap_err().kind(),
        ErrorKind::InvalidState
    );

    // One queue of the program's for both.
    let own = id
        .id()
        .context()
        .unwrap()
        .completion_queue(8)
        .build()
        .unwrap();
    id.create_qp(&QpAttr::default().send_cq(&own).recv_cq(&own))
        .unwrap();
    assert_eq!(twin.census().cqs, 1);
    assert_eq!(
        id.recv_completion().unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    assert!(id.destroy_qp().unwrap());
    assert_eq!(twin.census().cqs, 1);

    // One of the program's, one made along the way.
    id.create_qp(&QpAttr::default().send_cq(&own)).unwrap();
    assert_eq!(twin.census().cqs, 2);
    let second = id.create_qp(&QpAttr::default()).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::InvalidState);
    assert_eq!(twin.census().cqs, 2);
    id.destroy().unwrap();
    assert_eq!(twin.census().cqs, 1);
    drop(own);
    twin.assert_clean();
}

#[test]
fn receives_come_from_a_shared_queue() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let mut listener = SyncId::create(PortSpace::Tcp).unwrap();
    listener.set_timeout(Some(PATIENCE));
    listener.bind_addr(address()).unwrap();
    listener.listen(0).unwrap();
    let accepting = on_twin(registry, move || {
        let mut id = listener.get_request().unwrap();
        let size = SrqAttr {
            max_wr: 4,
            max_sge: 1,
        };
        id.create_srq(&size).unwrap();
        assert_eq!(
            id.create_srq(&size).unwrap_err().kind(),
            ErrorKind::InvalidState
        );
        id.create_qp(&QpAttr::default().max_inline_data(32))
            .unwrap();
        id.accept(&ConnParam::new()).unwrap();
        id
    });
    let mut active = resolved();
    active.connect(&ConnParam::new()).unwrap();
    assert!(active.connection().unwrap().has_srq);
    let mut passive = accepting.join().unwrap();
    pass(&mut active, &mut passive, b"into the shared queue");
    pass(&mut passive, &mut active, b"answer");
    // A refused destroy changes nothing.
    assert_eq!(
        passive.destroy_srq().unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    pass(&mut active, &mut passive, b"once more");
    assert!(passive.destroy_qp().unwrap());
    assert!(passive.destroy_srq().unwrap());
    assert!(!passive.destroy_srq().unwrap());
    assert_eq!(twin.census().srqs, 0);
    drop((active, passive));
    twin.assert_clean();
}

#[test]
fn what_was_sent_before_the_end_is_received_after_it() {
    let twin = Twin::new();
    let (mut active, mut passive) = connected(&twin);
    let inbox = passive.alloc(64).unwrap();
    passive.post_recv(1, &[inbox.slice(..).unwrap()]).unwrap();
    passive.post_recv(2, &[inbox.slice(..).unwrap()]).unwrap();
    active
        .post_send_inline(3, b"last", SendFlags::empty())
        .unwrap();
    drop(active);
    passive.recv_completion().unwrap().result().unwrap();
    for _ in 0..2 {
        let error = passive.recv_completion().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    }
    // Once this side has ended the connection too, what was posted is flushed.
    passive.disconnect().unwrap();
    let flushed = passive.recv_completion().unwrap();
    assert_eq!(flushed.wr_id(), 2);
    assert!(flushed.result().unwrap_err().is_flush());
    drop((passive, inbox));
    twin.assert_clean();
}

#[test]
fn a_removed_device_ends_the_wait_for_completions() {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    twin.remove_device(0);
    for _ in 0..2 {
        let error = active.recv_completion().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
    }
    drop((active, passive));
    twin.assert_clean();
}

#[test]
fn disconnecting_waits_for_the_peer_unless_that_was_first_or_is_gone() {
    let twin = Twin::new();
    // The peer was first.
    let (mut active, mut passive) = connected(&twin);
    passive.id().disconnect().unwrap();
    active.disconnect().unwrap();
    active.disconnect().unwrap();
    passive.disconnect().unwrap();
    drop((active, passive));
    // Its end was noticed by a wait for completions.
    let (mut active, passive) = connected(&twin);
    passive.id().disconnect().unwrap();
    active.recv_completion().unwrap_err();
    active.disconnect().unwrap();
    drop((active, passive));
    // Both at once.
    let (mut active, mut passive) = connected(&twin);
    let other = on_twin(twin.registry(), move || passive.disconnect());
    active.disconnect().unwrap();
    other.join().unwrap().unwrap();
    drop(active);
    // The peer is gone, before and meanwhile.
    let (mut active, passive) = connected(&twin);
    drop(passive);
    active.disconnect().unwrap();
    drop(active);
    let (mut active, passive) = connected(&twin);
    let other = on_twin(twin.registry(), move || active.disconnect());
    drop(passive);
    other.join().unwrap().unwrap();
    twin.assert_clean();
}

/// F30: what a waiting call has read does not come again; what follows comes on the channel.
#[test]
fn an_id_goes_over_to_a_channel_and_back() {
    let twin = Twin::new();
    let (active, mut passive) = connected(&twin);
    let channel = EventChannel::open().unwrap();
    let (id, mut queues) = active.into_id(&channel).unwrap();
    assert!(channel.try_next_event().unwrap().is_none());
    passive.id().disconnect().unwrap();
    let event = channel.next_event(Some(PATIENCE)).unwrap();
    assert!(
        matches!(&event, Event::Disconnected(of) if *of.id() == id),
        "{event:?}"
    );
    // F31: the event is still held.
    let mut back = SyncId::from_id(id).unwrap();
    back.set_timeout(Some(PATIENCE));
    let qp = queues.qp.as_mut().unwrap();
    assert!(qp.query_state().is_ok());
    back.id().disconnect().unwrap();
    drop(event);
    passive.disconnect().unwrap();
    drop((back, queues, passive, channel));
    twin.assert_clean();
}

/// F30, the other order: the connection is asked for after the id went over.
#[test]
fn an_id_that_went_over_before_connecting_hears_of_it_on_the_channel() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = listening();
    let accepting = on_twin(registry, move || {
        let mut id = listener.get_request().unwrap();
        id.accept(&ConnParam::new()).unwrap();
        id
    });
    let channel = EventChannel::open().unwrap();
    let (id, queues) = resolved().into_id(&channel).unwrap();
    id.connect(&ConnParam::new()).unwrap();
    let event = channel.next_event(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Event::Established(_)), "{event:?}");
    // An event keeps its id.
    drop(event);
    // Back while the end waits to be read, which comes along.
    let passive = accepting.join().unwrap();
    passive.id().disconnect().unwrap();
    let mut id = SyncId::from_id(id).unwrap();
    id.set_timeout(Some(PATIENCE));
    id.disconnect().unwrap();
    drop((id, queues, passive, channel));
    twin.assert_clean();
}

#[test]
fn several_threads_take_requests_of_one_listener() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = Arc::new(listening());
    let accepting: Vec<_> = (0..2)
        .map(|_| {
            let listener = Arc::clone(&listener);
            on_twin(registry, move || {
                let mut id = listener.get_request().unwrap();
                id.accept(&ConnParam::new()).unwrap();
                id
            })
        })
        .collect();
    let connect = || {
        let mut active = resolved();
        active.connect(&ConnParam::new()).unwrap();
        active
    };
    let actives = [connect(), connect()];
    // Which thread took which request is open.
    for thread in accepting {
        drop(thread.join().unwrap());
    }
    drop(actives);
    drop(listener);
    twin.assert_clean();
}
