//! Queues that change their depth, and completions one by one.

use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{self, Command};

use super::{ALL, End, context, ends};
use crate::error::ErrorKind;
use crate::fastpath::{Completion, PostError};
use crate::sys::twin::{Call, Twin, TwinDevice};
use crate::verbs::{Cq, QpAttr, SrqAttr};

/// Ends whose one has this many completions to poll.
fn with_completions(twin: &Arc<Twin>, count: u64) -> (End, End) {
    let (mut one, other) = ends(twin);
    complete(&mut one, 0..count);
    (one, other)
}

/// Requests that complete at once.
fn complete(end: &mut End, numbers: impl Iterator<Item = u64>) {
    for wr_id in numbers {
        let target = end.buffer.remote();
        let mut batch = end.qp.send_half().batch();
        batch.write(wr_id, target).signaled().inline(b"").unwrap();
        batch.submit().unwrap();
    }
}

fn numbers(cq: &mut Cq) -> Vec<u64> {
    cq.completions()
        .map(|completion| completion.wr_id())
        .collect()
}

#[test]
fn completions_come_one_by_one_and_stay_when_they_are_not_taken() {
    let twin = Twin::new();
    let (mut end, _other) = with_completions(&twin, 5);
    let mut first = end.cq.completions();
    assert_eq!(first.next().unwrap().wr_id(), 0);
    assert_eq!(first.next().unwrap().wr_id(), 1);
    drop(first);
    let mut entries = [Completion::default()];
    assert_eq!(end.cq.poll(&mut entries)[0].wr_id(), 2);
    // One that is never dropped takes what it took, and loses nothing.
    let mut forgotten = end.cq.completions();
    assert_eq!(forgotten.next().unwrap().wr_id(), 3);
    std::mem::forget(forgotten);
    assert_eq!(numbers(&mut end.cq), [4]);
    assert_eq!(numbers(&mut end.cq), [0u64; 0]);
    assert!(end.cq.completions().next().is_none());
}

/// An iterator ends with what was there when it was made, and gives the places back.
#[test]
fn places_are_given_back_when_the_iterator_is_dropped() {
    let twin = Twin::new();
    let (mut end, _other) = with_completions(&twin, 0);
    let depth = u64::from(end.cq.depth());
    for round in 0..3 {
        let first = round * depth;
        // In steps, since the send queue is shallower.
        for at in (0..depth).step_by(8) {
            complete(&mut end, first + at..(first + at + 8).min(first + depth));
        }
        let taken = numbers(&mut end.cq);
        assert_eq!(taken, (first..first + depth).collect::<Vec<_>>());
    }
}

#[test]
fn a_resized_queue_keeps_what_it_holds() {
    let twin = Twin::new();
    let (mut end, _other) = with_completions(&twin, 6);
    assert_eq!(end.cq.completions().next().unwrap().wr_id(), 0);
    // Taken, but the kernel was not told.
    std::mem::forget({
        let mut taken = end.cq.completions();
        taken.next();
        taken
    });
    end.cq.resize(1000).unwrap();
    assert_eq!(end.cq.depth(), 1023);
    complete(&mut end, 6..8);
    assert_eq!(end.cq.completions().next().unwrap().wr_id(), 2);
    end.cq.resize(5).unwrap();
    assert_eq!(end.cq.depth(), 7);
    complete(&mut end, 8..10);
    assert_eq!(numbers(&mut end.cq), (3..10).collect::<Vec<_>>());
    complete(&mut end, 10..12);
    assert_eq!(numbers(&mut end.cq), [10, 11]);
    drop((end, _other));
    twin.assert_clean();
}

#[test]
fn a_size_that_cannot_be_is_refused_before_the_kernel_is_asked() {
    let twin = Twin::new();
    let (mut end, _other) = with_completions(&twin, 6);
    twin.forget_calls();
    for (entries, text) in [(0, "1 to 32767"), (32_768, "1 to 32767"), (5, "holds 6")] {
        let error = end.cq.resize(entries).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
    // More came since it was looked.
    twin.fail(0, libc::EINVAL, |call| call.is_write(Command::RESIZE_CQ));
    let error = end.cq.resize(6).unwrap_err();
    assert!(error.to_string().contains("poll first"), "{error}");
    assert_eq!(numbers(&mut end.cq).len(), 6, "it is as it was");
}

#[test]
fn what_could_not_be_mapped_is_mapped_at_the_next_attempt() {
    let twin = Twin::new();
    let (mut end, _other) = with_completions(&twin, 6);
    twin.fail(0, libc::ENOMEM, |call| *call == Call::MapDevice);
    let error = end.cq.resize(100).unwrap_err();
    assert_eq!(error.operation(), "map_queue");
    assert_eq!(numbers(&mut end.cq), [0u64; 0], "nothing is told twice");
    assert!(end.cq.poll(&mut [Completion::default()]).is_empty());
    assert_eq!(end.cq.depth(), 0);
    complete(&mut end, 6..8);
    let error = end.cq.resize(7).unwrap_err();
    assert!(error.to_string().contains("poll first"), "{error}");
    end.cq.resize(100).unwrap();
    assert_eq!(numbers(&mut end.cq), (0..8).collect::<Vec<_>>());
    twin.tamper_rings(|header| header.index_mask = u32::MAX);
    assert_eq!(end.cq.resize(4).unwrap_err().kind(), ErrorKind::Protocol);
    drop((end, _other));
    twin.assert_clean();
}

#[test]
fn a_shared_receive_queue_grows_and_shrinks_under_its_receives() {
    let twin = Twin::new();
    let (mut near, mut far) = ends(&twin);
    let pd = far.context.alloc_pd().unwrap();
    let mut srq = pd.create_srq(&SrqAttr::default()).unwrap();
    let attr = QpAttr::new(&pd).send_cq(&far.cq).recv_cq(&far.cq);
    far.qp = pd.create_qp(&attr.srq(&srq)).unwrap();
    let reset = crate::verbs::QpModify::to(crate::verbs::QpState::Reset);
    near.qp.modify(&reset).unwrap();
    near.raise(&far, crate::verbs::QpState::Rts).unwrap();
    far.raise(&near, crate::verbs::QpState::Rts).unwrap();
    let inbox = pd.alloc(64, ALL).unwrap();
    let segment = [inbox.slice(..).unwrap()];
    let mut posted = 0..;
    let mut post = |srq: &mut crate::verbs::Srq, count| {
        for wr_id in posted.by_ref().take(count) {
            srq.post(wr_id, &segment).unwrap();
        }
    };
    let mut receive = |count: usize| {
        for _ in 0..count {
            near.send(1, b"x").unwrap();
            near.completion();
        }
        numbers(&mut far.cq)
    };
    // Somewhere behind the beginning of the ring.
    post(&mut srq, 20);
    assert_eq!(receive(15), (0..15).collect::<Vec<_>>());
    post(&mut srq, 20);
    srq.resize(100).unwrap();
    assert_eq!((srq.depth(), srq.query().unwrap().max_wr), (127, 127));
    post(&mut srq, 60);
    assert_eq!(receive(75), (15..90).collect::<Vec<_>>());

    let error = srq.resize(9).unwrap_err();
    assert!(error.to_string().contains("holds 10 receives"), "{error}");
    srq.resize(10).unwrap();
    assert_eq!(srq.depth(), 15);
    post(&mut srq, 5);
    assert!(matches!(
        srq.post(0, &segment),
        Err(PostError::QueueFull { .. })
    ));

    srq.arm_limit(12).unwrap();
    twin.forget_calls();
    for size in [0, 1 << 21] {
        let error = srq.resize(size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
    assert_eq!(receive(8), (90..98).collect::<Vec<_>>());
    srq.arm_limit(12).unwrap();
    let error = srq.resize(11).unwrap_err();
    assert!(error.to_string().contains("armed limit"), "{error}");

    twin.fail(0, libc::ENOMEM, |call| *call == Call::MapDevice);
    let error = srq.resize(50).unwrap_err();
    assert_eq!(error.operation(), "map_queue");
    let full = PostError::QueueFull { depth: 0 };
    assert_eq!(srq.post(0, &segment), Err(full));
    assert_eq!(receive(2), [98, 99], "what was posted is used");
    let error = srq.resize(6).unwrap_err();
    assert!(error.to_string().contains("holds 7"), "{error}");
    srq.resize(50).unwrap();
    post(&mut srq, 3);
    assert_eq!(receive(8), (100..108).collect::<Vec<_>>());
    drop((near, far, srq, inbox, pd));
    twin.assert_clean();
}

#[test]
fn events_wait_for_completions_where_the_device_can() {
    let twin = Twin::new();
    let cq = context(&twin).completion_queue(4).build().unwrap();
    cq.context().attr().unwrap();
    twin.forget_calls();
    let error = cq.moderate(8, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert_eq!(twin.calls(), [], "the kernel was asked");

    let mut device = TwinDevice::rxe(0, [10, 0, 0, 1].into());
    device.moderation = (16, 100);
    let twin = Twin::with_devices(vec![device]);
    let cq = context(&twin).completion_queue(4).build().unwrap();
    cq.moderate(16, Duration::from_micros(100)).unwrap();
    assert_eq!(twin.moderations(), [(16, 100)]);
    for (completions, period) in [(17, 0), (0, 101)] {
        let error = cq.moderate(completions, Duration::from_micros(period));
        assert!(error.unwrap_err().to_string().contains("allows 16"));
    }
    let command = Command(uverbs::ExCommand::MODIFY_CQ.0 | uverbs::CMD_FLAG_EXTENDED);
    twin.fail(0, libc::EIO, move |call| call.is_write(command));
    let error = cq.moderate(0, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved);
}

#[test]
fn a_vector_that_the_device_does_not_have_is_refused() {
    let mut device = TwinDevice::rxe(0, [10, 0, 0, 1].into());
    device.completion_vectors = 2;
    let twin = Twin::with_devices(vec![device]);
    let context = context(&twin);
    let with = |vector| context.completion_queue(4).vector(vector).build();
    with(1).unwrap();
    twin.forget_calls();
    let error = with(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("has 2"), "{error}");
    assert_eq!(twin.calls(), [], "the kernel was asked");
}
