//! Whatever the program does, in whatever order: the queue pair goes before the id, and nothing is
//! left.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdmacm_kernel_abi::ucma::{Command, EventType};

use super::groups::GROUPS;
use super::pair::{self, Pair, Side, address, connect, expect, furnish, resolve};
use crate::cm::id::find;
use crate::cm::{CmId, ConnParam, Ece, EventChannel, PathRecord, PortSpace, Service, Status};
use crate::error::{ErrorKind, Result};
use crate::fastpath::PostError;
use crate::sys::twin::{CREATE_QP, Call, DESTROY_QP, GET_CONTEXT, Twin};
use crate::verbs::{QpAttr, QpState};

/// Where in the order of all calls the first match is.
#[track_caller]
fn position(twin: &Twin, is_it: impl Fn(&Call) -> bool) -> usize {
    let calls = twin.calls();
    calls.iter().position(is_it).expect("the call was made")
}

fn is_destroy_id(call: &Call) -> bool {
    call.is_cm(Command::DestroyId)
}

fn is_destroy_qp(call: &Call) -> bool {
    call.is_method(DESTROY_QP)
}

/// One side with its route resolved and everything made.
fn furnished(twin: &Arc<Twin>) -> Side {
    let registry = twin.registry();
    let (channel, id) = resolve(registry).unwrap();
    furnish(twin, channel, id).unwrap()
}

#[test]
fn destroying_the_id_destroys_its_queue_pair_first() {
    let twin = Twin::new();
    let side = furnished(&twin);
    twin.forget_calls();
    side.id.destroy().unwrap();
    assert!(position(&twin, is_destroy_qp) < position(&twin, is_destroy_id));
    drop(side);
    twin.assert_clean();
}

#[test]
fn dropping_the_id_destroys_its_queue_pair_first() {
    let twin = Twin::new();
    let Side { id, send, recv, .. } = furnished(&twin);
    twin.forget_calls();
    drop(id);
    assert!(position(&twin, is_destroy_qp) < position(&twin, is_destroy_id));
    drop((send, recv));
    twin.assert_clean();
}

#[test]
fn an_id_lives_as_long_as_one_handle_or_event_of_it() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    let event = expect(&channel, "ADDR_RESOLVED").unwrap();
    let clone = id.clone();
    drop((id, channel));
    drop(clone);
    assert_eq!(twin.census().ids, 1, "the event holds it");
    drop(event);
    twin.assert_clean();
}

#[test]
fn any_order_of_drops_is_a_right_one() {
    // Miri is slow, and sees some of the orders only.
    let stride = if cfg!(miri) { 700 } else { 1 };
    let mut number = 0;
    let mut order: Vec<usize> = (0..7).collect();
    for_each_permutation(&mut order, 0, &mut |order| {
        number += 1;
        if number % stride != 0 {
            return;
        }
        let twin = Twin::new();
        let mut pieces = pieces(&twin);
        assert_eq!(pieces.len(), order.len());
        for piece in order {
            pieces[*piece] = Box::new(());
        }
        twin.assert_clean();
    });
}

/// What a program holds of a connection under way, each for itself.
fn pieces(twin: &Arc<Twin>) -> Vec<Box<dyn Any>> {
    let registry = twin.registry();
    let channel = EventChannel::open_on(registry).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    let event = expect(&channel, "ADDR_RESOLVED").unwrap();
    let side = furnish(twin, channel, id).unwrap();
    vec![
        Box::new(side.id),
        Box::new(side.channel),
        Box::new(side.pd),
        Box::new((side.cq, side.completions)),
        Box::new((side.send, side.recv)),
        Box::new(side.buffer),
        Box::new(event),
    ]
}

/// Calls `visit` with each order of the items from `from` on.
pub(super) fn for_each_permutation(
    items: &mut [usize],
    from: usize,
    visit: &mut dyn FnMut(&[usize]),
) {
    if from == items.len() {
        return visit(items);
    }
    for other in from..items.len() {
        items.swap(from, other);
        for_each_permutation(items, from + 1, visit);
        items.swap(from, other);
    }
}

#[test]
fn a_panic_unwinds_in_the_right_order() {
    let twin = Twin::new();
    let registry = twin.registry();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _pair = connect(&twin, registry).unwrap();
        std::panic::resume_unwind(Box::new("not printed"));
    }));
    assert!(panicked.is_err());
    twin.assert_clean();
}

#[test]
fn a_second_destroy_of_a_queue_pair_does_nothing() {
    let twin = Twin::new();
    let mut side = furnished(&twin);
    assert!(side.id.destroy_qp().unwrap());
    assert!(!side.id.destroy_qp().unwrap());
    let destroys = twin.calls().into_iter().filter(is_destroy_qp).count();
    assert_eq!(destroys, 1);
    let segment = side.buffer.slice(..4).unwrap();
    assert_eq!(side.recv.post(1, &[segment]), Err(PostError::Destroyed));
    assert_eq!(
        side.send_inline(b"x").unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    drop(side);
    twin.assert_clean();
}

#[test]
fn an_id_can_have_another_queue_pair_after_its_first_is_destroyed() {
    let twin = Twin::new();
    let side = furnished(&twin);
    let attr = QpAttr::new(&side.pd).send_cq(&side.cq).recv_cq(&side.cq);
    let refused = side.id.create_qp(&attr).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    side.id.destroy_qp().unwrap();
    let second = side.id.create_qp(&attr).unwrap();
    // Destroyed through its own handle it is no less gone.
    assert!(second.destroy().unwrap());
    assert_eq!(
        side.id.connect(&ConnParam::new()).unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    let third = side.id.create_qp(&attr).unwrap();
    side.id.connect(&ConnParam::new()).unwrap();
    drop((side, second, third));
    twin.assert_clean();
}

#[test]
fn a_queue_pair_that_cannot_be_moved_to_init_is_destroyed() {
    let twin = Twin::new();
    let Pair { active, .. } = connect(&twin, twin.registry()).unwrap();
    active.id.destroy_qp().unwrap();
    let qps = twin.census().qps;
    twin.fail(0, libc::EINVAL, |call| {
        call.is_write(rdmacm_kernel_abi::uverbs::Command::MODIFY_QP)
    });
    let attr = QpAttr::new(&active.pd)
        .send_cq(&active.cq)
        .recv_cq(&active.cq);
    active.id.create_qp(&attr).unwrap_err();
    assert_eq!(twin.census().qps, qps);
}

#[test]
fn every_call_on_a_destroyed_id_says_so() {
    let twin = Twin::new();
    let side = furnished(&twin);
    side.id.destroy().unwrap();
    twin.forget_calls();
    for (name, call) in calls_of_an_id(&side) {
        let error = call().expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Destroyed, "{name}: {error}");
    }
    assert!(!side.id.destroy_qp().unwrap());
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop(side);
    twin.assert_clean();
}

const ECE: Ece = Ece {
    vendor_id: 1,
    options: 2,
};

type CallOfAnId<'a> = Box<dyn Fn() -> Result<()> + 'a>;

fn calls_of_an_id(side: &Side) -> Vec<(&'static str, CallOfAnId<'_>)> {
    let Side {
        id,
        channel,
        pd,
        cq,
        ..
    } = side;
    let param = ConnParam::new();
    vec![
        ("destroy", Box::new(|| id.destroy())),
        ("bind_addr", Box::new(|| id.bind_addr(address()))),
        (
            "resolve_addr",
            Box::new(|| id.resolve_addr(None, address(), pair::TIMEOUT)),
        ),
        (
            "resolve_route",
            Box::new(|| id.resolve_route(pair::TIMEOUT)),
        ),
        ("listen", Box::new(|| id.listen(1))),
        (
            "connect",
            Box::new({
                let param = param.clone();
                move || id.connect(&param)
            }),
        ),
        ("accept", Box::new(move || id.accept(&param))),
        ("reject", Box::new(|| id.reject(b""))),
        ("disconnect", Box::new(|| id.disconnect())),
        ("migrate", Box::new(|| id.migrate(channel))),
        (
            "create_qp",
            Box::new(|| {
                id.create_qp(&QpAttr::new(pd).send_cq(cq).recv_cq(cq))
                    .map(drop)
            }),
        ),
        (
            "init_qp_attr",
            Box::new(|| id.init_qp_attr(QpState::Rtr).map(drop)),
        ),
        ("establish", Box::new(|| id.establish())),
        ("notify", Box::new(|| id.notify_established())),
        ("reject_ece", Box::new(|| id.reject_ece(b""))),
        ("set_local_ece", Box::new(|| id.set_local_ece(ECE))),
        ("remote_ece", Box::new(|| id.remote_ece().map(drop))),
        ("set_ack_timeout", Box::new(|| id.set_ack_timeout(1))),
        ("local_ib_addr", Box::new(|| id.local_ib_addr().map(drop))),
        ("peer_ib_addr", Box::new(|| id.peer_ib_addr().map(drop))),
        ("paths", Box::new(|| id.paths().map(drop))),
        (
            "set_path",
            Box::new(|| id.set_path(&[PathRecord::from_bytes([0; 64])])),
        ),
        ("write_user_event", Box::new(|| id.write_user_event(1))),
        ("query_addrinfo", Box::new(|| id.query_addrinfo().map(drop))),
        (
            "resolve_service",
            Box::new(|| id.resolve_service(Service::Id(1))),
        ),
        (
            "leave_multicast",
            Box::new(|| id.leave_multicast(GROUPS[0]).map(drop)),
        ),
        ("context", Box::new(|| id.context().map(drop))),
        ("port", Box::new(|| id.port().map(drop))),
        (
            "protection_domain",
            Box::new(|| id.protection_domain().map(drop)),
        ),
    ]
}

#[test]
fn a_destroyed_id_lets_go_of_its_device_though_an_event_of_it_is_held() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    let event = expect(&channel, "ADDR_RESOLVED").unwrap();
    id.destroy().unwrap();
    assert_eq!(twin.census().files, 1, "only the channel is open");
    assert_eq!(event.id(), &id);
    assert_eq!(
        event.id().destroy().unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    drop((channel, id, event));
    twin.assert_clean();
}

#[test]
fn events_that_wait_go_with_their_id() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    id.destroy().unwrap();
    assert!(channel.try_next_event().unwrap().is_none());
    let timed_out = channel
        .next_event(Some(std::time::Duration::from_millis(1)))
        .unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn events_with_a_stale_cookie_are_dropped() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let gone = channel.create_id(PortSpace::Tcp).unwrap();
    let stale = gone.cookie();
    gone.destroy().unwrap();
    // The kernel uses the handle again at once.
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    assert_eq!(id.handle(), gone.handle());
    assert_ne!(id.cookie(), stale);
    assert!(find(stale).is_none(), "though a handle of it is held");
    for uid in [stale, 0, u64::MAX] {
        twin.inject(id.handle(), EventType::DISCONNECTED, |event| {
            event.uid = uid
        });
    }
    twin.inject(id.handle(), EventType::TIMEWAIT_EXIT, |_| ());
    let event = channel.try_next_event().unwrap().unwrap();
    assert_eq!((event.name(), event.id()), ("TIMEWAIT_EXIT", &id));
    drop((event, id, gone, channel));
    twin.assert_clean();
}

#[test]
fn a_refused_destroy_leaves_everything_as_it_was() {
    let twin = Twin::new();
    let mut pair = connect(&twin, twin.registry()).unwrap();
    let id = pair.active.id.clone();
    for is_it in [is_destroy_qp, is_destroy_id] {
        twin.fail(0, libc::ENOMEM, is_it);
        assert_eq!(id.destroy().unwrap_err().errno(), Some(libc::ENOMEM));
        if twin.census().qps == 2 {
            pair::exchange(&mut pair).unwrap();
        }
    }
    // The queue pair went before the id was refused, and is not destroyed twice.
    id.destroy().unwrap();
    drop((pair, id));
    twin.assert_clean();
}

#[test]
fn the_channel_may_be_closed_first() {
    let twin = Twin::new();
    let Pair {
        listening,
        active,
        passive,
    } = connect(&twin, twin.registry()).unwrap();
    let ids: Vec<CmId> = [&listening.id, &active.id, &passive.id]
        .map(CmId::clone)
        .to_vec();
    drop((listening, active, passive));
    assert_eq!(twin.census().ids, 3);
    drop(ids);
    twin.assert_clean();
}

#[test]
fn a_migrated_id_keeps_its_events_and_lets_go_of_its_old_channel() {
    let twin = Twin::new();
    let old = EventChannel::open_on(twin.registry()).unwrap();
    let id = old.create_id(PortSpace::Tcp).unwrap();
    let other = old.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    other.resolve_addr(None, address(), pair::TIMEOUT).unwrap();
    let new = EventChannel::open_on(twin.registry()).unwrap();
    id.migrate(&new).unwrap();
    assert_eq!(expect(&old, "ADDR_RESOLVED").unwrap().id(), &other);
    assert_eq!(expect(&new, "ADDR_RESOLVED").unwrap().id(), &id);
    drop((old, other));
    id.resolve_route(pair::TIMEOUT).unwrap();
    expect(&new, "ROUTE_RESOLVED").unwrap();
    drop((new, id));
    twin.assert_clean();
}

#[test]
fn a_removed_device_lets_everything_be_destroyed() {
    let twin = Twin::new();
    let Pair {
        listening,
        active,
        passive,
    } = connect(&twin, twin.registry()).unwrap();
    twin.remove_device(0);
    let removed = expect(&active.channel, "DEVICE_REMOVAL").unwrap();
    assert_eq!(removed.status(), Status::Success);
    assert_eq!(
        removed.into_error("connection").kind(),
        ErrorKind::DeviceRemoved
    );
    assert_eq!(
        active.id.disconnect().unwrap_err().kind(),
        ErrorKind::DeviceRemoved
    );
    active.id.destroy().unwrap();
    drop((listening, active, passive));
    twin.assert_clean();
}

#[test]
fn one_context_serves_all_ids_of_a_device() {
    let twin = Twin::new();
    let pair = connect(&twin, twin.registry()).unwrap();
    let contexts = twin
        .calls()
        .into_iter()
        .filter(|call| call.is_method(GET_CONTEXT))
        .count();
    let qps = twin
        .calls()
        .into_iter()
        .filter(|call| call.is_method(CREATE_QP))
        .count();
    assert_eq!((contexts, qps), (1, 2));
    drop(pair);
    twin.assert_clean();
}
