//! Steps of ids that wait: what ends them, and what does not.

use std::mem::offset_of;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::{Command, EventResp, EventType};

use super::super::SyncId;
use super::{PATIENCE, SHORT, address, on_twin};
use crate::cm::{AddrInfo, AddrInfoQuery, CmId, ConnParam, PortSpace};
use crate::error::{ErrorKind, Result};
use crate::sys::twin::{CREATE_QP, Call, SILENT, Twin, WITHOUT_RDMA};
use crate::verbs::QpAttr;

/// The kernel handle of the first id.
const FIRST: u32 = 0;

/// How long the kernel may take, which answers at once.
const KERNEL: Duration = Duration::from_secs(2);

fn attr() -> QpAttr<'static> {
    QpAttr::default().max_inline_data(32).signal_all(true)
}

/// An id whose calls fail when nothing ends them.
fn new() -> SyncId {
    let mut id = SyncId::create(PortSpace::Tcp).unwrap();
    id.set_timeout(Some(PATIENCE));
    id
}

pub(super) fn listening() -> SyncId {
    let mut listener = new();
    listener.set_request_attr(attr());
    listener.bind_addr(address()).unwrap();
    listener.listen(0).unwrap();
    listener
}

/// An id that can connect.
pub(super) fn resolved() -> SyncId {
    let mut id = new();
    id.resolve_addr(None, address(), KERNEL).unwrap();
    id.resolve_route(KERNEL).unwrap();
    id.create_qp(&attr()).unwrap();
    id
}

fn accept(listener: &SyncId) -> Result<SyncId> {
    let mut id = listener.get_request()?;
    id.accept(&ConnParam::new())?;
    Ok(id)
}

/// Two connected ids: the one that asked and the one that accepted.
pub(super) fn connected(twin: &Arc<Twin>) -> (SyncId, SyncId) {
    let registry = twin.registry();
    registry.stand_in();
    let listener = listening();
    let accepting = on_twin(registry, move || accept(&listener).unwrap());
    let mut active = resolved();
    active.connect(&ConnParam::new()).unwrap();
    (active, accepting.join().unwrap())
}

/// Events that end a step, with the status they come with, and the kind of error they are.
const ENDS: [(EventType, i32, ErrorKind); 8] = [
    (
        EventType::ADDR_ERROR,
        -libc::ENETUNREACH,
        ErrorKind::Unreachable,
    ),
    (
        EventType::ROUTE_ERROR,
        -libc::ENETUNREACH,
        ErrorKind::Unreachable,
    ),
    (
        EventType::CONNECT_ERROR,
        -libc::ECONNRESET,
        ErrorKind::Disconnected,
    ),
    (
        EventType::UNREACHABLE,
        -libc::ETIMEDOUT,
        ErrorKind::Unreachable,
    ),
    (EventType::REJECTED, 28, ErrorKind::Rejected),
    (EventType::DEVICE_REMOVAL, 0, ErrorKind::DeviceRemoved),
    (
        EventType::DISCONNECTED,
        -libc::ECONNRESET,
        ErrorKind::Disconnected,
    ),
    (EventType(77), 0, ErrorKind::Protocol),
];

/// Tells of another event where the kernel tells of `real`.
fn tell(twin: &Twin, real: EventType, told: EventType, status: i32) {
    twin.tamper(move |call, _, answer| {
        let event = offset_of!(EventResp, event);
        if call.is_cm(Command::GetEvent) && answer[event..event + 4] == real.0.to_ne_bytes() {
            let at = offset_of!(EventResp, status);
            answer[event..event + 4].copy_from_slice(&told.0.to_ne_bytes());
            answer[at..at + 4].copy_from_slice(&status.to_ne_bytes());
        }
    });
}

/// Runs a step on a new twin for each event that may come instead of `real`.
fn each_end(real: EventType, operation: &str, step: impl Fn(&Arc<Twin>) -> Result<()>) {
    // On a connection that is made it is news, and ends nothing.
    let is_news =
        |told| (real, told) == (EventType::DISCONNECTED, EventType::UNREACHABLE) || told == real;
    for (told, status, kind) in ENDS.into_iter().filter(|(told, ..)| !is_news(*told)) {
        let twin = Twin::new();
        twin.registry().stand_in();
        tell(&twin, real, told, status);
        let error = step(&twin).unwrap_err();
        assert_eq!(
            (error.operation(), error.kind()),
            (operation, kind),
            "{told:?}: {error}"
        );
        twin.assert_clean();
    }
}

#[test]
fn resolving_the_address_ends_with_any_event_that_matters() {
    each_end(EventType::ADDR_RESOLVED, "resolve_addr", |_| {
        new().resolve_addr(None, address(), KERNEL)
    });
}

#[test]
fn resolving_the_route_ends_with_any_event_that_matters() {
    each_end(EventType::ROUTE_RESOLVED, "resolve_route", |_| {
        let mut id = new();
        id.resolve_addr(None, address(), KERNEL)?;
        id.resolve_route(KERNEL)
    });
}

#[test]
fn connecting_ends_with_any_event_that_matters() {
    each_end(EventType::CONNECT_RESPONSE, "connect", |twin| {
        let listener = listening();
        let accepting = on_twin(twin.registry(), move || accept(&listener).map(drop));
        let mut active = resolved();
        let outcome = active.connect(&ConnParam::new());
        // The connection is over or never was: neither call waits for anything.
        let _ = active.disconnect();
        drop(active);
        assert_eq!(
            accepting.join().unwrap().unwrap_err().kind(),
            ErrorKind::Rejected
        );
        outcome
    });
}

#[test]
fn accepting_ends_with_any_event_that_matters() {
    each_end(EventType::ESTABLISHED, "accept", |twin| {
        let listener = listening();
        let accepting = on_twin(twin.registry(), move || accept(&listener).map(drop));
        let mut active = resolved();
        let _ = active.connect(&ConnParam::new());
        accepting.join().unwrap()
    });
}

#[test]
fn disconnecting_ends_with_any_event_that_matters() {
    each_end(EventType::DISCONNECTED, "disconnect", |twin| {
        let (mut active, passive) = connected(twin);
        passive.id().disconnect().unwrap();
        active.disconnect()
    });
    // A peer that does not answer the disconnect.
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    tell(
        &twin,
        EventType::DISCONNECTED,
        EventType::DISCONNECTED,
        -libc::ETIMEDOUT,
    );
    passive.id().disconnect().unwrap();
    assert_eq!(
        active.disconnect().unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    active.disconnect().unwrap();
}

#[test]
fn waiting_for_requests_ends_when_the_device_is_removed() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let listener = listening();
    twin.inject(FIRST, EventType::UNREACHABLE, |_| ());
    twin.remove_device(0);
    let error = listener.get_request().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
    drop(listener);
    twin.assert_clean();
}

#[test]
fn news_end_no_step() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let news = |handle| {
        for kind in [EventType::ADDR_CHANGE, EventType::TIMEWAIT_EXIT] {
            twin.inject(handle, kind, |_| ());
        }
    };
    let mut active = new();
    news(FIRST);
    active.resolve_addr(None, address(), KERNEL).unwrap();
    news(FIRST);
    active.resolve_route(KERNEL).unwrap();
    active.create_qp(&attr()).unwrap();
    let listener = listening();
    news(FIRST + 1);
    let accepting = on_twin(registry, move || accept(&listener).unwrap());
    news(FIRST);
    active.connect(&ConnParam::new()).unwrap();
    let passive = accepting.join().unwrap();
    news(FIRST);
    // The peer's link address changed.
    twin.inject(FIRST, EventType::UNREACHABLE, |_| ());
    active.set_timeout(Some(SHORT));
    assert_eq!(
        active.recv_completion().unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    news(FIRST);
    active.set_timeout(Some(PATIENCE));
    passive.id().disconnect().unwrap();
    active.disconnect().unwrap();
    drop((active, passive));
    twin.assert_clean();
}

#[test]
fn addresses_that_lead_nowhere_are_told_apart() {
    let twin = Twin::new();
    twin.registry().stand_in();
    for (ip, kind) in [
        (SILENT, ErrorKind::TimedOut),
        (WITHOUT_RDMA, ErrorKind::NoDevice),
        ([10, 9, 9, 9].into(), ErrorKind::Unreachable),
    ] {
        let error = new().resolve_addr(None, (ip, 1), KERNEL).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    twin.assert_clean();
}

#[test]
fn a_rejection_ends_all_that_waits() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    // Nobody listens.
    let mut active = resolved();
    assert_eq!(
        active.connect(&ConnParam::new()).unwrap_err().kind(),
        ErrorKind::Rejected
    );
    // In C these two wait for ever.
    active.disconnect().unwrap();
    assert_eq!(
        active.recv_completion().unwrap_err().kind(),
        ErrorKind::Rejected
    );
    drop(active);
    // The listener says why.
    let listener = listening();
    let rejecting = on_twin(registry, move || {
        listener.get_request().unwrap().reject(b"full")
    });
    let mut active = resolved();
    active.connect(&ConnParam::new()).unwrap_err();
    rejecting.join().unwrap().unwrap();
    assert_eq!(active.connection().unwrap().private_data[..4], *b"full");
    drop(active);
    twin.assert_clean();
}

#[test]
fn a_request_that_is_dropped_or_cannot_be_served_is_rejected() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = listening();
    let failing = twin.clone();
    let serving = on_twin(registry, move || {
        drop(listener.get_request().unwrap());
        failing.fail_here(0, libc::ENOMEM, |call| call.is_method(CREATE_QP));
        let error = listener.get_request().unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOMEM), "{error}");
        // The next one is served.
        accept(&listener).unwrap()
    });
    for _ in 0..2 {
        let refused = resolved().connect(&ConnParam::new()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected, "{refused}");
    }
    let mut active = resolved();
    active.connect(&ConnParam::new()).unwrap();
    drop((active, serving.join().unwrap()));
    twin.assert_clean();
}

#[test]
fn calls_out_of_turn_are_refused_at_once() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut id = new();
    let connect = id.connect(&ConnParam::new()).unwrap_err();
    let accept = id.accept(&ConnParam::new()).unwrap_err();
    let errors = [
        connect,
        accept,
        id.get_request().unwrap_err(),
        id.disconnect().unwrap_err(),
        id.reject(b"").unwrap_err(),
        id.create_qp(&attr()).unwrap_err(),
        id.recv_completion().unwrap_err(),
        id.post_send_inline(1, b"", Default::default()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    }
}

#[test]
fn each_wait_ends_in_time() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let mut listener = listening();
    listener.set_timeout(Some(SHORT));
    let mut active = resolved();
    active.set_timeout(Some(SHORT));
    let timed_out = |error: crate::error::Error, operation| {
        assert_eq!(
            (error.kind(), error.operation()),
            (ErrorKind::TimedOut, operation)
        );
    };
    timed_out(listener.get_request().unwrap_err(), "get_request");
    timed_out(active.connect(&ConnParam::new()).unwrap_err(), "connect");
    // The active side does not read the answer.
    let mut passive = listener.get_request().unwrap();
    timed_out(passive.accept(&ConnParam::new()).unwrap_err(), "accept");
    timed_out(passive.recv_completion().unwrap_err(), "recv_completion");
    timed_out(passive.send_completion().unwrap_err(), "send_completion");
    // Neither has a connection to wait for the end of.
    passive.disconnect().unwrap();
    active.disconnect().unwrap();
    drop((listener, active, passive));
    let (mut active, mut passive) = connected(&twin);
    active.set_timeout(Some(SHORT));
    timed_out(active.disconnect().unwrap_err(), "disconnect");
    passive.disconnect().unwrap();
    active.disconnect().unwrap();
    drop((active, passive));
    twin.assert_clean();
}

/// Ends a wait in another thread, and returns how it ended.
fn end_of(
    twin: &Arc<Twin>,
    mut id: SyncId,
    wait: impl FnOnce(&mut SyncId) -> Result<()> + Send + 'static,
    end: impl FnOnce(&CmId),
) -> ErrorKind {
    id.set_timeout(Some(PATIENCE));
    let handle = id.id().clone();
    let waiting = on_twin(twin.registry(), move || wait(&mut id).unwrap_err().kind());
    thread::sleep(SHORT);
    end(&handle);
    waiting.join().unwrap()
}

#[test]
fn whoever_waits_is_woken_when_another_thread_destroys_the_id() {
    let twin = Twin::new();
    twin.registry().stand_in();
    let destroy = |id: &CmId| id.destroy().unwrap();
    let requests = end_of(&twin, listening(), |id| id.get_request().map(drop), destroy);
    assert_eq!(requests, ErrorKind::Destroyed);

    let listener = listening();
    let connecting = end_of(
        &twin,
        resolved(),
        |id| id.connect(&ConnParam::new()),
        destroy,
    );
    assert_eq!(connecting, ErrorKind::Destroyed);
    drop(listener);

    let (active, passive) = connected(&twin);
    let receiving = end_of(&twin, active, |id| id.recv_completion().map(drop), destroy);
    assert_eq!(receiving, ErrorKind::Destroyed);
    drop(passive);

    let (active, passive) = connected(&twin);
    let disconnecting = end_of(&twin, active, |id| id.disconnect(), destroy);
    assert_eq!(disconnecting, ErrorKind::Destroyed);
    drop(passive);
    twin.assert_clean();
}

#[test]
fn whoever_waits_is_woken_when_another_thread_destroys_the_queue_pair() {
    let twin = Twin::new();
    let (active, passive) = connected(&twin);
    let destroy = |id: &CmId| assert!(id.destroy_qp().unwrap());
    let receiving = end_of(&twin, active, |id| id.recv_completion().map(drop), destroy);
    assert_eq!(receiving, ErrorKind::Destroyed);
    drop(passive);
    let (active, passive) = connected(&twin);
    let sending = end_of(&twin, passive, |id| id.send_completion().map(drop), destroy);
    assert_eq!(sending, ErrorKind::Destroyed);
    drop(active);
    twin.assert_clean();
}

fn info(passive: bool) -> AddrInfo {
    let query = AddrInfoQuery::new()
        .node(address().ip().to_string())
        .service("7471");
    let query = if passive { query.passive() } else { query };
    query.numeric_host().resolve().unwrap().remove(0)
}

#[test]
fn an_endpoint_is_made_out_of_address_information() {
    let twin = Twin::new();
    let registry = twin.registry();
    registry.stand_in();
    let listener = SyncId::create_ep(&info(true), Some(attr())).unwrap();
    assert_eq!(listener.id().local_addr(), Some(address()));
    listener.listen(0).unwrap();
    let accepting = on_twin(registry, move || accept(&listener).unwrap());
    let mut active = SyncId::create_ep(&info(false), Some(attr())).unwrap();
    active.connect(&ConnParam::new()).unwrap();
    drop((active, accepting.join().unwrap()));
    // Without attributes there is no queue pair.
    let mut bare = SyncId::create_ep(&info(false), None).unwrap();
    assert_eq!(bare.qp().unwrap_err().kind(), ErrorKind::InvalidState);
    drop(bare);
    twin.assert_clean();
}

#[test]
fn an_endpoint_that_cannot_be_made_leaves_nothing_behind() {
    for passive in [true, false] {
        let twin = Twin::new();
        twin.registry().stand_in();
        let info = info(passive);
        let mut failures = 0;
        for skip in 0.. {
            let before = twin.refused().len();
            twin.fail_here(skip, libc::ENOMEM, |_: &Call| true);
            let outcome = SyncId::create_ep(&info, Some(attr())).map(drop);
            twin.behave();
            if twin.refused().len() == before {
                outcome.unwrap();
                break;
            }
            failures += usize::from(outcome.is_err());
            twin.assert_nothing_left();
        }
        assert!(failures >= if passive { 3 } else { 15 }, "{failures}");
    }
}

#[test]
fn an_endpoint_needs_the_address_of_its_side() {
    let twin = Twin::new();
    twin.registry().stand_in();
    for passive in [true, false] {
        let mut info = info(passive);
        (info.source, info.destination) = (None, None);
        let error = SyncId::create_ep(&info, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    twin.assert_clean();
}
