//! Shared receive queues.

use rdmacm_kernel_abi::uverbs;

use super::{ALL, End, context};
use crate::error::ErrorKind;
use crate::fastpath::{Completion, PostError};
use crate::sys::twin::{Call, Twin, TwinDevice};
use crate::verbs::{QpAttr, QpState, SrqAttr};

const SIZE: SrqAttr = SrqAttr {
    max_wr: 8,
    max_sge: 2,
};

/// Two connections whose far ends share a queue; a message over each.
#[test]
fn queue_pairs_take_their_receives_from_one_queue() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let mut srq = pd.create_srq(&SIZE).unwrap();
    let inbox = pd.alloc(64, ALL).unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let near = End::new(&context).unwrap();
        let mut far = End::new(&context).unwrap();
        let attr = QpAttr::new(&pd).send_cq(&far.cq).recv_cq(&far.cq);
        // F76: the depth of a queue that is not made has no limit.
        far.qp = pd
            .create_qp(&attr.srq(&srq).max_recv_wr(u32::MAX).max_recv_sge(0))
            .unwrap();
        near.raise(&far, QpState::Rts).unwrap();
        far.raise(&near, QpState::Rts).unwrap();
        ends.push((near, far));
    }
    for (wr_id, at) in [(1, 0), (2, 16)] {
        srq.post(wr_id, &[inbox.slice(at..at + 16).unwrap()])
            .unwrap();
    }
    for (index, (near, far)) in ends.iter_mut().enumerate().rev() {
        near.send(9, &[index as u8; 3]).unwrap();
        let completion = far.completion();
        assert_eq!(completion.wr_id(), 2 - index as u64, "in order of arrival");
        assert_eq!(completion.qp_num(), far.qp.number());
        let at = 16 * (completion.wr_id() as usize - 1);
        assert_eq!(inbox.read_vec(at, 3).unwrap(), [index as u8; 3]);

        assert_eq!(far.qp.capabilities().max_recv_wr, 0);
        assert_eq!(far.qp.recv_half().depth(), 0);
        let refused = far.qp.recv_half().post(1, &[]);
        assert_eq!(refused, Err(PostError::SharedReceiveQueue));
    }
    drop((ends, inbox, srq, pd));
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_failed_queue_pair_leaves_the_receives_to_the_others() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let mut srq = pd.create_srq(&SIZE).unwrap();
    let cq = context.completion_queue(8).build().unwrap();
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq).srq(&srq);
    let qp = pd.create_qp(&attr).unwrap();
    srq.post(1, &[]).unwrap();
    let init = crate::verbs::QpModify::to(QpState::Init);
    qp.modify(&init.port(1).pkey_index(0).access(ALL)).unwrap();
    qp.modify(&crate::verbs::QpModify::to(QpState::Error))
        .unwrap();
    let mut cq = cq;
    assert!(cq.poll(&mut [Completion::default()]).is_empty());
}

#[test]
fn a_shared_queue_goes_after_its_last_user() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let cq = pd.context().completion_queue(4).build().unwrap();
    let srq = pd.create_srq(&SIZE).unwrap();
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq).srq(&srq);
    let qp = pd.create_qp(&attr).unwrap();
    assert_eq!(srq.destroy().unwrap_err().errno(), Some(libc::EBUSY));
    assert_eq!(twin.census().srqs, 1);
    drop(qp);
    assert_eq!(twin.census().srqs, 0);
    let unused = pd.create_srq(&SIZE).unwrap();
    unused.destroy().unwrap();
    assert_eq!(twin.census().srqs, 0);
    drop((cq, pd));
    twin.assert_clean();
}

#[test]
fn a_shared_queue_is_full_exactly_at_its_depth() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let mut srq = pd.create_srq(&SIZE).unwrap();
    let depth = srq.depth();
    for wr_id in 0..u64::from(depth) {
        srq.post(wr_id, &[]).unwrap();
    }
    assert_eq!(srq.post(0, &[]), Err(PostError::QueueFull { depth }));
    let buffer = pd.alloc(8, ALL).unwrap();
    let segments = [buffer.slice(..).unwrap(); 3];
    let refused = PostError::TooManySegments {
        segments: 3,
        max: 2,
    };
    assert_eq!(srq.post(0, &segments), Err(refused));
}

#[test]
fn a_limit_is_set_and_read_back() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let srq = pd.create_srq(&SIZE).unwrap();
    let depth = srq.depth();
    srq.arm_limit(3).unwrap();
    let info = srq.query().unwrap();
    assert_eq!((info.max_wr, info.max_sge, info.limit), (depth, 2, 3));
    twin.forget_calls();
    let error = srq.arm_limit(depth + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(srq.number(), None);
    assert_eq!(twin.calls(), [], "the kernel was asked");
    twin.fail(0, libc::EIO, |call| {
        call.is_write(uverbs::Command::QUERY_SRQ)
    });
    assert_eq!(srq.query().unwrap_err().operation(), "query_srq");
}

#[test]
fn contradictions_are_found_before_the_kernel_is_asked() {
    let twin = Twin::with_devices(vec![
        TwinDevice::rxe(0, [10, 0, 0, 1].into()),
        TwinDevice::rxe(1, [10, 0, 0, 2].into()),
    ]);
    let [one, other] = [0, 1].map(|index| twin.registry().context_of_index(index).unwrap());
    let (pd, foreign) = (one.alloc_pd().unwrap(), other.alloc_pd().unwrap());
    let cq = one.completion_queue(4).build().unwrap();
    let srq = foreign.create_srq(&SIZE).unwrap();
    let size = |max_wr, max_sge| pd.create_srq(&SrqAttr { max_wr, max_sge }).map(drop);
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq).srq(&srq);
    let refused = [
        ("max_wr is 0", size(0, 1)),
        ("max_wr is 1048577", size(1_048_577, 1)),
        ("max_sge is 28", size(1, 28)),
        (
            "shared receive queue is of rxe1",
            pd.create_qp(&attr).map(drop),
        ),
    ];
    for (text, outcome) in refused {
        let error = outcome.expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

#[test]
fn a_shared_queue_that_cannot_be_mapped_is_destroyed() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    twin.fail(0, libc::ENOMEM, |call| *call == Call::MapDevice);
    assert_eq!(pd.create_srq(&SIZE).unwrap_err().operation(), "map_queue");
    twin.tamper_rings(|header| header.log2_elem_size = 5);
    let error = pd.create_srq(&SIZE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    drop(pd);
    twin.assert_clean();
}
