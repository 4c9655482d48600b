//! Objects, in whatever order they go.

use super::{ALL, End, context, ends};
use crate::error::ErrorKind;
use crate::fastpath::{CompletionStatus, PostError};
use crate::sys::twin::{Call, DESTROY_CQ, DESTROY_MR, DESTROY_PD, Twin};
use crate::verbs::{Pd, QpAttr, QpModify, QpState};

#[test]
fn a_device_never_reaches_a_buffer_that_is_gone() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(1, 16);
    // The segment outlives the buffer; the registration does not.
    let pd = context(&twin).alloc_pd().unwrap();
    other.buffer = pd.alloc(16, ALL).unwrap();
    one.send(2, b"too late").unwrap();
    assert_eq!(one.status(), CompletionStatus::RemoteOperation);
    drop((one, other, pd));
    twin.assert_clean();
}

#[test]
fn a_destroyed_queue_pair_says_so() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let attr = QpModify::to(QpState::Error);
    assert!(one.qp.destroy().unwrap());
    assert!(!one.qp.destroy().unwrap());
    twin.forget_calls();
    assert_eq!(
        one.qp.query_state().unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    assert_eq!(
        one.qp.modify(&attr).unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    assert_eq!(one.send(1, b""), Err(PostError::Destroyed));
    assert_eq!(one.qp.recv_half().post(1, &[]), Err(PostError::Destroyed));
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn a_freed_protection_domain_says_so() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let clone = pd.clone();
    pd.dealloc().unwrap();
    // Its handle may be another object's by now.
    twin.forget_calls();
    let error = clone.alloc(64, ALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Destroyed, "{error}");
    let attr = QpAttr::new(&clone).send_cq(&cq).recv_cq(&cq);
    assert_eq!(
        clone.create_qp(&attr).unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    clone.clone().dealloc().unwrap();
    let commands = twin
        .calls()
        .into_iter()
        .filter(|call| matches!(call, Call::Write(..)))
        .count();
    assert_eq!(commands, 0, "the kernel was asked");
    drop((clone, cq));
    drop(context);
    twin.assert_clean();
}

#[test]
fn what_is_in_use_is_destroyed_after_its_last_user() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let qp = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap();
    let buffer = pd.alloc(64, ALL).unwrap();
    assert_eq!(cq.destroy().unwrap_err().errno(), Some(libc::EBUSY));
    assert_eq!(pd.dealloc().unwrap_err().errno(), Some(libc::EBUSY));
    drop(buffer);
    drop(qp);
    let census = twin.census();
    assert_eq!(
        (census.pds, census.cqs, census.qps, census.mrs),
        (0, 0, 0, 0)
    );
    drop(context);
    twin.assert_clean();
}

#[test]
#[expect(
    unsafe_code,
    reason = "regions that can be taken back explicitly are of raw memory"
)]
fn an_explicit_destroy_that_is_refused_is_told_and_made_good_by_the_drop() {
    let twin = Twin::new();
    let context = context(&twin);
    let refuse = |method| twin.fail(0, libc::ENOMEM, move |call| call.is_method(method));
    let pd = context.alloc_pd().unwrap();

    let cq = context.completion_queue(4).build().unwrap();
    refuse(DESTROY_CQ);
    assert_eq!(cq.destroy().unwrap_err().errno(), Some(libc::ENOMEM));

    let mut bytes = vec![0; 64];
    // SAFETY: the bytes live until after the region, and nobody posts anything.
    let mr = unsafe { pd.register_raw(bytes.as_mut_ptr(), bytes.len(), ALL) }.unwrap();
    refuse(DESTROY_MR);
    assert_eq!(mr.deregister().unwrap_err().errno(), Some(libc::ENOMEM));

    refuse(DESTROY_PD);
    assert_eq!(pd.dealloc().unwrap_err().errno(), Some(libc::ENOMEM));
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_queue_that_cannot_be_mapped_is_destroyed() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.fail(0, libc::ENOMEM, |call| *call == Call::MapDevice);
    let error = context.completion_queue(4).build().unwrap_err();
    assert_eq!(
        (error.operation(), error.errno()),
        ("map_queue", Some(libc::ENOMEM))
    );
    // The second ring of a queue pair, too.
    twin.fail(2, libc::ENOMEM, |call| *call == Call::MapDevice);
    End::new(&context).map(drop).unwrap_err();
    drop(context);
    twin.assert_clean();
}

#[test]
fn children_keep_their_parents() {
    let twin = Twin::new();
    let pd: Pd = context(&twin).alloc_pd().unwrap();
    let buffer = pd.alloc(64, ALL).unwrap();
    drop(pd);
    let census = twin.census();
    assert_eq!((census.pds, census.mrs, census.files), (1, 1, 1));
    drop(buffer);
    twin.assert_clean();
}

#[test]
fn a_removed_device_has_taken_its_objects_along() {
    let twin = Twin::new();
    let (one, other) = ends(&twin);
    twin.remove_device(0);
    twin.fail_from(0, libc::EIO, Call::is_verbs_destroy);
    assert!(one.qp.destroy().unwrap());
    assert!(!one.qp.destroy().unwrap());
    drop((one, other));
    twin.assert_nothing_left();
}

#[test]
fn an_io_error_of_a_device_that_is_there_destroys_nothing() {
    let twin = Twin::new();
    let (one, other) = ends(&twin);
    twin.fail(0, libc::EIO, Call::is_verbs_destroy);
    assert_eq!(one.qp.destroy().unwrap_err().errno(), Some(libc::EIO));
    assert!(one.qp.destroy().unwrap());
    drop((one, other));
    twin.assert_clean();
}
