//! Asynchronous events, and whom they are about.

use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{AsyncEventType as Kind, Command};

use super::{ALL, End, context, ends};
use crate::device::{AsyncEvent, CqToken};
use crate::error::ErrorKind;
use crate::fastpath::Completion;
use crate::sys::twin::Twin;
use crate::verbs::{QpAttr, QpModify, QpState, SrqAttr};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Every number that the kernel has is an event of its own, and of the right object.
#[test]
fn events_are_told_with_whom_they_are_about() {
    let twin = Twin::new();
    let context = context(&twin);
    let events = context.async_events().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let srq = pd.create_srq(&SrqAttr::default()).unwrap();
    let qp = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap();
    let (of_cq, of_qp, of_srq) = (cq.token(), qp.token(), srq.token());
    use AsyncEvent as E;
    let about_queues = [
        (of_cq.to_kernel(), Kind::CQ_ERR, E::CqError(of_cq)),
        (of_qp.to_kernel(), Kind::QP_FATAL, E::QpFatal(of_qp)),
        (
            of_qp.to_kernel(),
            Kind::QP_REQ_ERR,
            E::QpRequestError(of_qp),
        ),
        (
            of_qp.to_kernel(),
            Kind::QP_ACCESS_ERR,
            E::QpAccessError(of_qp),
        ),
        (
            of_qp.to_kernel(),
            Kind::COMM_EST,
            E::CommunicationEstablished(of_qp),
        ),
        (
            of_qp.to_kernel(),
            Kind::SQ_DRAINED,
            E::SendQueueDrained(of_qp),
        ),
        (of_qp.to_kernel(), Kind::PATH_MIG, E::PathMigrated(of_qp)),
        (
            of_qp.to_kernel(),
            Kind::PATH_MIG_ERR,
            E::PathMigrationError(of_qp),
        ),
        (
            of_qp.to_kernel(),
            Kind::QP_LAST_WQE_REACHED,
            E::LastWqeReached(of_qp),
        ),
        (of_srq.to_kernel(), Kind::SRQ_ERR, E::SrqError(of_srq)),
        (
            of_srq.to_kernel(),
            Kind::SRQ_LIMIT_REACHED,
            E::SrqLimitReached(of_srq),
        ),
    ];
    for (token, kind, expected) in about_queues {
        twin.raise_for(token, kind);
        assert_eq!(events.next_event(AT_ONCE).unwrap(), expected);
    }
    let port = 1;
    let about_the_device = [
        (Kind::DEVICE_FATAL, E::DeviceFatal),
        (Kind::PORT_ACTIVE, E::PortActive { port }),
        (Kind::PORT_ERR, E::PortError { port }),
        (Kind::LID_CHANGE, E::LidChange { port }),
        (Kind::PKEY_CHANGE, E::PkeyChange { port }),
        (Kind::SM_CHANGE, E::SmChange { port }),
        (Kind::CLIENT_REREGISTER, E::ClientReregister { port }),
        (Kind::GID_CHANGE, E::GidChange { port }),
        (Kind::DEVICE_SPEED_CHANGE, E::SpeedChange { port }),
    ];
    for (kind, expected) in about_the_device {
        twin.raise(kind, 1);
        assert_eq!(events.next_event(AT_ONCE).unwrap(), expected);
    }
    // No object of ours, and a number that nobody knows yet.
    for kind in [Kind::WQ_FATAL.0, 77] {
        twin.raise(Kind(kind), u64::MAX);
        let element = u64::MAX;
        let expected = E::Other { kind, element };
        assert_eq!(events.next_event(AT_ONCE).unwrap(), expected);
    }
    assert_eq!(events.try_next_event().unwrap(), None);
}

#[test]
fn a_limit_names_its_queue_once() {
    let twin = Twin::new();
    let (mut near, mut far) = ends(&twin);
    let events = far.context.async_events().unwrap();
    let pd = far.context.alloc_pd().unwrap();
    let other = pd.create_srq(&SrqAttr::default()).unwrap();
    let mut srq = pd.create_srq(&SrqAttr::default()).unwrap();
    let attr = QpAttr::new(&pd).send_cq(&far.cq).recv_cq(&far.cq);
    far.qp = pd.create_qp(&attr.srq(&srq)).unwrap();
    // Connected anew, with the queue pair that has the shared queue.
    near.qp.modify(&QpModify::to(QpState::Reset)).unwrap();
    near.raise(&far, QpState::Rts).unwrap();
    far.raise(&near, QpState::Rts).unwrap();
    let inbox = pd.alloc(64, ALL).unwrap();
    for wr_id in 0..3 {
        srq.post(wr_id, &[inbox.slice(..).unwrap()]).unwrap();
    }
    other.arm_limit(1).unwrap();
    srq.arm_limit(2).unwrap();
    near.send(1, b"one").unwrap();
    assert_eq!(events.try_next_event().unwrap(), None, "two are left");
    near.send(2, b"two").unwrap();
    let reached = AsyncEvent::SrqLimitReached(srq.token());
    assert_eq!(events.next_event(AT_ONCE).unwrap(), reached);
    assert_eq!(srq.query().unwrap().limit, 0);
    near.send(3, b"three").unwrap();
    assert_eq!(events.try_next_event().unwrap(), None);
    far.qp.modify(&QpModify::to(QpState::Error)).unwrap();
    let last = AsyncEvent::LastWqeReached(far.qp.token());
    assert_eq!(events.next_event(AT_ONCE).unwrap(), last);
}

#[test]
fn an_overflow_names_the_queue() {
    let twin = Twin::new();
    let context = context(&twin);
    let events = context.async_events().unwrap();
    let [mut one, mut other] = [(); 2].map(|()| End::new(&context).unwrap());
    one.raise(&other, QpState::Rts).unwrap();
    other.raise(&one, QpState::Rts).unwrap();
    for wr_id in 0..u64::from(other.cq.depth()) {
        other.post_receive(wr_id, 16);
        one.send(wr_id, b"x").unwrap();
        one.completion();
    }
    assert_eq!(events.try_next_event().unwrap(), None, "it is just full");
    other.post_receive(1, 16);
    one.send(1, b"x").unwrap();
    let expected = AsyncEvent::CqError(other.cq.token());
    assert_eq!(events.next_event(AT_ONCE).unwrap(), expected);
    assert_eq!(events.try_next_event().unwrap(), None);
}

/// Of a queue, the oldest stream that was open when it was made; of the device, all.
#[test]
fn streams_share_the_events() {
    let twin = Twin::new();
    let context = context(&twin);
    let queue = || context.completion_queue(4).build().unwrap();
    let early = queue();
    let first = context.async_events().unwrap();
    let of_first = queue();
    let second = context.async_events().unwrap();
    let of_first_too = queue();
    drop(first);
    let of_second = queue();
    for cq in [&early, &of_first, &of_first_too, &of_second] {
        twin.raise_for(cq.token().to_kernel(), Kind::CQ_ERR);
    }
    let expected = AsyncEvent::CqError(of_second.token());
    assert_eq!(second.next_event(AT_ONCE).unwrap(), expected);
    assert_eq!(second.try_next_event().unwrap(), None);
    let third = context.async_events().unwrap();
    twin.raise(Kind::PORT_ACTIVE, 1);
    for stream in [&second, &third] {
        let event = stream.next_event(AT_ONCE).unwrap();
        assert_eq!(event, AsyncEvent::PortActive { port: 1 });
    }
    drop((early, of_first, of_first_too, of_second, second, third));
    drop(context);
    twin.assert_clean();
}

/// A signal before a record is no error, in either kind of file.
#[test]
fn a_signal_ends_no_wait() {
    let twin = Twin::new();
    let context = context(&twin);
    let events = context.async_events().unwrap();
    let channel = context.completion_channel().unwrap();
    let interrupt = || twin.fail(0, libc::EINTR, |call| *call == crate::sys::twin::Call::Read);
    interrupt();
    assert_eq!(events.try_next_event().unwrap(), None);
    interrupt();
    assert_eq!(channel.try_next_event().unwrap(), None);
    twin.raise(Kind::PORT_ERR, 1);
    interrupt();
    let event = events.next_event(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(event, AsyncEvent::PortError { port: 1 });
}

/// A queue that waits by itself does so alone on its channel.
#[test]
fn queues_on_one_channel_do_not_wait_by_themselves() {
    let twin = Twin::new();
    let context = context(&twin);
    let channel = context.completion_channel().unwrap();
    let queue = || {
        let builder = context.completion_queue(4).channel(&channel);
        builder.build().unwrap()
    };
    let mut cq = queue();
    let other = queue();
    let mut entries = [Completion::default()];
    twin.forget_calls();
    let error = cq.wait(&mut entries, AT_ONCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(error.to_string().contains("has 2 queues"), "{error}");
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop(other);
    let alone = cq.wait(&mut entries, AT_ONCE).unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::TimedOut);
}

/// The event of a queue that is gone is not the event of the one that is left.
#[test]
fn an_event_of_another_queue_is_not_ones_own() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let mut survivor = other
        .context
        .completion_queue(4)
        .channel(&other.completions)
        .build()
        .unwrap();
    other.post_receive(1, 16);
    other.cq.arm(false).unwrap();
    one.send(1, b"for the other").unwrap();
    // Its queue pair keeps the kernel's queue, and the event stays on the channel.
    let gone: CqToken = other.cq.token();
    drop(other.cq);
    assert_ne!(gone, survivor.token());
    twin.forget_calls();
    let mut entries = [Completion::default()];
    let error = survivor
        .wait(&mut entries, Some(Duration::from_millis(1)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let calls = twin.calls();
    let armed = calls
        .iter()
        .filter(|call| call.is_write(Command::REQ_NOTIFY_CQ));
    assert_eq!(armed.count(), 1, "its own event is still to come");
    assert_eq!(other.completions.try_next_event().unwrap(), None);
}
