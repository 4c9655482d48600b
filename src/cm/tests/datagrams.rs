//! Ids for datagrams: one question, one answer, and no connection.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma::{Command, EventType};

use super::pair::{self, Listening, TIMEOUT, address, expect, refused_first};
use crate::cm::{
    CmId, ConnParam, Event, EventChannel, Membership, PortSpace, RejectReason, Status, Step,
};
use crate::device::Registry;
use crate::error::{ErrorKind, Result};
use crate::sys::twin::Twin;
use crate::verbs::{Cq, Qp, QpAttr, QpState};

/// An id that listens for datagrams' peers.
pub(super) fn listen(registry: &'static Registry) -> Result<Listening> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.bind_addr(address())?;
    id.listen(4)?;
    Ok(Listening { id, channel })
}

/// An id whose address is resolved.
pub(super) fn resolve_addr(registry: &'static Registry) -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.resolve_addr(None, address(), TIMEOUT)?;
    expect(&channel, "ADDR_RESOLVED")?;
    Ok((channel, id))
}

fn resolve(registry: &'static Registry) -> Result<(EventChannel, CmId)> {
    let (channel, id) = resolve_addr(registry)?;
    id.resolve_route(TIMEOUT)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    Ok((channel, id))
}

/// Makes the id's queue pair.
pub(super) fn furnish(twin: &Twin, id: &CmId) -> Result<(Qp, Cq)> {
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(8).build()?;
    let qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
    twin.note_owner(id.handle(), qp.number());
    Ok((qp, cq))
}

/// A listener that is asked, and the id that asks.
fn asked(registry: &'static Registry, data: &[u8]) -> Result<(Listening, EventChannel, CmId)> {
    let listening = listen(registry)?;
    let (channel, id) = resolve(registry)?;
    id.connect(&ConnParam::new().private_data(data)?)?;
    Ok((listening, channel, id))
}

/// A question with its answer, and two groups.
pub(super) fn live(twin: &Arc<Twin>, registry: &'static Registry) -> Result<()> {
    let (listening, channel, id) = asked(registry, b"who?")?;
    let (_new_channel, new) = pair::fetch(registry, &listening)?;
    let (qp, _cq) = furnish(twin, &new)?;
    new.accept(&ConnParam::new().private_data(b"I")?)?;
    let event = expect(&channel, "ESTABLISHED")?;
    let told = event.content().unwrap();
    assert_eq!(told.datagram().unwrap().qp_num, qp.number());
    assert_eq!(told.connection().trimmed(), b"I");
    id.disconnect()?;

    let (channel, member) = resolve_addr(registry)?;
    let _queues = furnish(twin, &member)?;
    for group in super::groups::GROUPS {
        member.join_multicast(group, Membership::Full)?;
        expect(&channel, "MULTICAST_JOIN")?;
    }
    for group in super::groups::GROUPS {
        assert!(member.leave_multicast(group)?);
    }
    Ok(())
}

#[test]
fn a_life_leaves_nothing() {
    let twin = Twin::new();
    live(&twin, twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn a_question_and_its_answer_arrive_padded() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (listening, channel, id) = asked(registry, &[7; 180]).unwrap();
    let Event::ConnectRequest(request) = expect(&listening.channel, "CONNECT_REQUEST").unwrap()
    else {
        unreachable!("the name was checked")
    };
    assert_eq!(request.connection().private_data, [7; 180]);
    let new = request.id();
    let (qp, _cq) = furnish(&twin, new).unwrap();
    let too_much = ConnParam::new().private_data(&[1; 137]).unwrap();
    twin.forget_calls();
    let refused = new.accept(&too_much).unwrap_err();
    assert!(refused.to_string().contains("136"), "{refused}");
    assert_eq!(twin.calls(), [], "the kernel was asked");
    new.accept(&ConnParam::new().private_data(b"here").unwrap())
        .unwrap();
    let event = expect(&channel, "ESTABLISHED").unwrap();
    let told = event.content().unwrap();
    assert_eq!(told.connection().private_data.len(), 136);
    assert_eq!(told.connection().trimmed(), b"here");
    let peer = told.datagram().unwrap();
    assert_eq!((peer.qp_num, peer.qkey), (qp.number(), 0x0123_4567));
    // The way is one that an address handle can be made of.
    id.protection_domain()
        .unwrap()
        .address_handle(&peer.path)
        .unwrap();
    assert!(listening.channel.try_next_event().unwrap().is_none());
    drop((listening, channel, id, request, qp, _cq, event));
    twin.assert_clean();
}

#[test]
fn the_limits_are_those_of_datagrams() {
    let twin = Twin::new();
    let (channel, id) = resolve(twin.registry()).unwrap();
    let steps = [Step::Connect, Step::Accept, Step::Reject];
    assert_eq!(steps.map(|step| id.max_private_data(step)), [180, 136, 136]);
    let too_much = ConnParam::new().private_data(&[1; 181]).unwrap();
    id.context().unwrap().attr().unwrap();
    twin.forget_calls();
    let refused = id.connect(&too_much).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("180"), "{refused}");
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop((channel, id));
    twin.assert_clean();
}

/// What whoever asks hears in the end, with its status.
fn heard(channel: &EventChannel) -> Status {
    let event = expect(channel, "UNREACHABLE").unwrap();
    let content = event.content().unwrap();
    assert_eq!(content.connection().private_data, [0; 136]);
    let status = event.status();
    assert_eq!(event.into_error("connect").kind(), ErrorKind::Rejected);
    status
}

const NOBODY_LISTENS: Status = Status::Rejected(RejectReason(1));
const REJECTED: Status = Status::Rejected(RejectReason(2));

#[test]
fn nobody_listening_and_a_rejection_are_told_apart() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (channel, id) = resolve(registry).unwrap();
    id.connect(&ConnParam::new()).unwrap();
    assert_eq!(heard(&channel), NOBODY_LISTENS);
    drop((channel, id));

    type End = fn(CmId);
    let ends: [End; 3] = [
        |id| id.reject(b"no").unwrap(),
        drop,
        |id| id.destroy().unwrap(),
    ];
    for end in ends {
        let (listening, channel, id) = asked(registry, b"").unwrap();
        let (_new_channel, new) = pair::fetch(registry, &listening).unwrap();
        end(new);
        assert_eq!(heard(&channel), REJECTED);
        assert!(id.connect(&ConnParam::new()).is_err(), "it has asked");
    }
    let (listening, channel, _id) = asked(registry, b"").unwrap();
    listening.id.destroy().unwrap();
    assert_eq!(heard(&channel), REJECTED, "nobody fetched the question");
    drop((listening, channel, _id));
    twin.assert_clean();
}

#[test]
fn a_datagram_listener_hears_no_connections_and_the_other_way_round() {
    let twin = Twin::new();
    let registry = twin.registry();
    // The same address and port, in two port spaces.
    let (datagrams, connections) = (listen(registry).unwrap(), pair::listen(registry).unwrap());
    let (channel, id) = resolve(registry).unwrap();
    id.connect(&ConnParam::new()).unwrap();
    assert!(connections.channel.try_next_event().unwrap().is_none());
    expect(&datagrams.channel, "CONNECT_REQUEST").unwrap();
    drop((datagrams, connections, channel, id));
    twin.assert_clean();
}

#[test]
fn an_answer_to_a_peer_that_is_gone_is_sent_all_the_same() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (listening, channel, id) = asked(registry, b"").unwrap();
    let (new_channel, new) = pair::fetch(registry, &listening).unwrap();
    drop((channel, id));
    let queues = furnish(&twin, &new).unwrap();
    new.accept(&ConnParam::new()).unwrap();
    drop((listening, new_channel, new, queues));
    twin.assert_clean();
}

#[test]
fn refused_calls_can_be_made_again() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    refused_first(&twin, Command::CreateId, || {
        listening.channel.create_id(PortSpace::Udp)
    });
    let (channel, id) = resolve(registry).unwrap();
    let shared_by_all = id.protection_domain().unwrap();
    refused_first(&twin, Command::InitQpAttr, || furnish(&twin, &id).map(drop));
    refused_first(&twin, Command::Connect, || id.connect(&ConnParam::new()));
    expect(&listening.channel, "CONNECT_REQUEST").unwrap();
    assert_eq!(heard(&channel), REJECTED);
    drop((listening, channel, id, shared_by_all));
    twin.assert_clean();
}

#[test]
fn a_refused_answer_rejects_the_peer_and_leaves_nothing() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (listening, channel, id) = asked(registry, b"").unwrap();
    let (new_channel, new) = pair::fetch(registry, &listening).unwrap();
    let queues = furnish(&twin, &new).unwrap();
    twin.fail(0, libc::ENOMEM, |call| call.is_cm(Command::Accept));
    let refused = new.accept(&ConnParam::new()).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENOMEM));
    drop(new);
    assert_eq!(heard(&channel), REJECTED);
    drop((listening, channel, id, new_channel, queues));
    twin.assert_clean();
}

#[test]
fn an_answer_with_an_absurd_length_ends_with_its_record() {
    let twin = Twin::new();
    let (channel, id) = resolve(twin.registry()).unwrap();
    for kind in [EventType::ESTABLISHED, EventType::UNREACHABLE] {
        twin.inject(id.handle(), kind, |event| event.param = [u32::MAX; 76]);
        let event = channel.try_next_event().unwrap().unwrap();
        let content = event.content().unwrap();
        assert_eq!(content.connection().private_data, [0xff; 255]);
        let way = content.datagram().map(|peer| peer.path);
        assert_eq!(way.is_some(), kind == EventType::ESTABLISHED);
        if let Some(way) = way {
            let handle = id.protection_domain().unwrap().address_handle(&way);
            assert!(handle.is_err(), "port 255");
        }
    }
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn proposals_for_datagrams_can_be_applied() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.bind_addr((address().ip(), 0)).unwrap();
    let pd = id.protection_domain().unwrap();
    let cq = pd.context().completion_queue(8).build().unwrap();
    let attr = QpAttr::new(&pd).qp_type(crate::fastpath::QpType::Ud);
    let qp = pd.create_qp(&attr.send_cq(&cq).recv_cq(&cq)).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify(&id.init_qp_attr(state).unwrap()).unwrap();
    }
}

#[test]
fn an_event_without_a_way() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    let event = expect(&channel, "ADDR_RESOLVED").unwrap();
    assert_eq!(event.content().unwrap().datagram(), None);
}
