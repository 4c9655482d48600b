//! What differs between the types of queue pairs, and what they say of themselves.

use std::sync::Arc;

use super::{ALL, End, context, ends};
use crate::device::{Context, Gid};
use crate::error::{ErrorKind, Result};
use crate::fastpath::{PostError, QpFlags, QpType};
use crate::sys::twin::{ADDRESS, Twin, TwinDevice};
use crate::verbs::{Access, Path, QpAttr, QpModify, QpState, SrqAttr};

/// A kernel with a device that has XRC.
fn twin_with_xrc() -> Arc<Twin> {
    let device = TwinDevice {
        has_xrc: true,
        ..TwinDevice::rxe(0, ADDRESS)
    };
    Twin::with_devices(vec![device])
}

#[test]
fn a_queue_pair_tells_what_was_set() {
    let twin = Twin::new();
    let (one, other) = ends(&twin);
    let info = one.qp.query().unwrap();
    assert_eq!(info.state, QpState::Rts);
    assert_eq!(info.remote_qp_num, other.qp.number());
    assert_eq!((info.timeout, info.retry_count), (14, 6));
    assert_eq!((info.rnr_retry_count, info.min_rnr_timer), (7, 12));
    assert_eq!((info.initiator_depth, info.responder_resources), (4, 4));
    assert_eq!((info.path_mtu.bytes(), info.access), (1024, ALL));
    let path = Path {
        gid: Gid([0; 16]),
        source_gid_index: 0,
        port: 1,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        service_level: 0,
        lid: 0,
    };
    assert_eq!((info.path, info.port), (path, 1));
    assert_eq!(info.capabilities, one.qp.capabilities());
}

#[test]
fn a_type_has_its_own_transitions() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let cq = pd.context().completion_queue(4).build().unwrap();
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let datagrams = pd.create_qp(&attr.clone().qp_type(QpType::Ud)).unwrap();
    let init = QpModify::to(QpState::Init).port(1).pkey_index(0);
    let error = datagrams.modify(&init.clone().access(ALL)).unwrap_err();
    assert!(
        error.to_string().contains("needs QpAttrMask(QKEY)"),
        "{error}"
    );
    datagrams.modify(&init.clone().qkey(5)).unwrap();
    assert_eq!(datagrams.query().unwrap().qkey, 5);

    let unreliable = pd.create_qp(&attr.qp_type(QpType::Uc)).unwrap();
    unreliable.modify(&init.access(Access::empty())).unwrap();
    let error = unreliable.modify(&QpModify::to(QpState::Rtr)).unwrap_err();
    assert!(error.to_string().contains("RQ_PSN"), "{error}");
    assert!(!error.to_string().contains("RD_ATOMIC"), "{error}");
}

#[test]
fn a_device_without_xrc_says_so() {
    let twin = Twin::new();
    let context = context(&twin);
    let error = context.open_xrcd().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(
        error.to_string().contains("rxe0 has no extended"),
        "{error}"
    );
}

/// A sender, a receiver and the queue that it receives into.
#[test]
fn xrc_queue_pairs_have_the_queues_of_their_side() -> Result<()> {
    let twin = twin_with_xrc();
    let context = context(&twin);
    let pd = context.alloc_pd()?;
    let xrcd = context.open_xrcd()?;
    let cq = context.completion_queue(8).build()?;
    let mut srq = pd.create_xrc_srq(&SrqAttr::default(), &xrcd, &cq)?;
    assert!(srq.number().is_some());
    srq.post(1, &[]).unwrap();

    let sender = QpAttr::new(&pd).qp_type(QpType::XrcSend).send_cq(&cq);
    let mut sender = pd.create_qp(&sender)?;
    assert!(sender.send_half().depth() > 0);
    assert_eq!(sender.capabilities().max_recv_wr, 0);
    let wrong = |qp_type| Err(PostError::WrongQpType { qp_type });
    assert_eq!(sender.recv_half().post(1, &[]), wrong(QpType::XrcSend));

    let receiver = QpAttr::new(&pd).qp_type(QpType::XrcRecv).xrcd(&xrcd);
    let mut receiver = pd.create_qp(&receiver)?;
    assert_eq!(receiver.capabilities().max_send_wr, 0);
    let mut batch = receiver.send_half().batch();
    assert_eq!(batch.send(1).from(&[]), wrong(QpType::XrcRecv));
    drop(batch);
    assert_eq!(receiver.recv_half().post(1, &[]), wrong(QpType::XrcRecv));

    let error = xrcd.close().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EBUSY), "{error}");
    drop((sender, receiver, cq, pd));
    assert_eq!(twin.census().xrcds, 1, "the shared queue is left");
    drop(srq);
    assert_eq!(twin.census().xrcds, 0);
    drop(context);
    twin.assert_clean();
    Ok(())
}

#[test]
fn objects_that_do_not_fit_the_type_are_refused_before_the_kernel_is_asked() -> Result<()> {
    let twin = twin_with_xrc();
    let context: Context = context(&twin);
    let pd = context.alloc_pd()?;
    let xrcd = context.open_xrcd()?;
    let cq = context.completion_queue(8).build()?;
    let srq = pd.create_srq(&SrqAttr::default())?;
    let xrc_srq = pd.create_xrc_srq(&SrqAttr::default(), &xrcd, &cq)?;
    let attr = |qp_type| QpAttr::new(&pd).qp_type(qp_type).send_cq(&cq).recv_cq(&cq);
    context.attr()?;
    twin.forget_calls();
    let refused = [
        ("send_cq", QpAttr::new(&pd).recv_cq(&cq)),
        ("recv_cq", QpAttr::new(&pd).send_cq(&cq)),
        ("XRC domain", attr(QpType::XrcRecv)),
        ("XRC domain", attr(QpType::Rc).xrcd(&xrcd)),
        ("takes no receives", attr(QpType::XrcSend).srq(&srq)),
        ("whose senders name it", attr(QpType::Rc).srq(&xrc_srq)),
    ];
    for (text, attr) in refused {
        let error = pd.create_qp(&attr).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
    Ok(())
}

#[test]
fn an_unreliable_connection_carries_messages() -> Result<()> {
    let twin = Twin::new();
    let context = context(&twin);
    let mut ends = [End::new(&context)?, End::new(&context)?];
    for end in &mut ends {
        let pd = context.default_pd()?;
        let attr = QpAttr::new(&pd).qp_type(QpType::Uc).max_inline_data(16);
        end.qp = pd.create_qp(&attr.send_cq(&end.cq).recv_cq(&end.cq))?;
        end.buffer = pd.alloc(64, ALL)?;
    }
    let [mut one, mut other] = ends;
    for (end, peer) in [(&one, &other), (&other, &one)] {
        let init = QpModify::to(QpState::Init).port(1).pkey_index(0);
        end.qp.modify(&init.access(ALL))?;
        let path = peer.qp.query()?.path;
        let rtr = QpModify::to(QpState::Rtr).path(path).receive_psn(0);
        let mtu = context.port(1)?.active_mtu;
        end.qp
            .modify(&rtr.path_mtu(mtu).remote_qp_num(peer.qp.number()))?;
        end.qp.modify(&QpModify::to(QpState::Rts).send_psn(0))?;
    }
    other.post_receive(1, 16);
    one.send(2, b"maybe")?;
    assert_eq!(other.completion().result()?.byte_len(), 5);
    assert_eq!(other.buffer.read_vec(0, 5)?, b"maybe");
    Ok(())
}

/// Queue pairs without the one or the other queue, and one that only lends its memory.
#[test]
fn a_queue_that_is_not_wanted_is_not_made() {
    let twin = Twin::new();
    let (mut near, mut far) = ends(&twin);
    let mappings = twin.census().mappings;
    let attr = QpAttr::new(&far.pd).recv_cq(&far.cq).max_send_wr(0);
    let receiver = far.pd.create_qp(&attr).unwrap();
    let attr = QpAttr::new(&near.pd).send_cq(&near.cq).max_recv_wr(0);
    let sender = near.pd.create_qp(&attr.max_inline_data(8)).unwrap();
    assert_eq!(twin.census().mappings, mappings + 2, "one for each");
    let granted = receiver.capabilities();
    assert_eq!((granted.max_send_wr, granted.max_send_sge), (0, 0));
    let granted = sender.capabilities();
    assert_eq!((granted.max_recv_wr, granted.max_recv_sge), (0, 0));
    (near.qp, far.qp) = (sender, receiver);
    near.raise(&far, QpState::Rts).unwrap();
    far.raise(&near, QpState::Rts).unwrap();
    far.post_receive(5, 16);
    near.send(6, b"x").unwrap();
    assert_eq!(
        (near.completion().wr_id(), far.completion().wr_id()),
        (6, 5)
    );
    assert_eq!(far.send(7, b""), Err(PostError::NoQueue));
    assert_eq!(far.qp.send_half().depth(), 0);
    let refused = near.qp.recv_half().post(8, &[]);
    assert_eq!(refused, Err(PostError::NoQueue));

    // It needs a completion queue all the same, and no more than one.
    let attr = QpAttr::new(&far.pd).max_send_wr(0).max_recv_wr(0);
    let error = far.pd.create_qp(&attr).unwrap_err();
    assert!(error.to_string().contains("completion queue"), "{error}");
    far.qp = far.pd.create_qp(&attr.send_cq(&far.cq)).unwrap();
    drop((near, far));
    twin.assert_clean();
}

#[test]
fn what_is_special_and_not_there_is_named() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let cq = pd.context().completion_queue(4).build().unwrap();
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    pd.create_qp(&attr.clone().flags(QpFlags::empty())).unwrap();
    twin.forget_calls();
    let flags = QpFlags::BLOCK_SELF_MCAST_LB | QpFlags::CVLAN_STRIPPING;
    let error = pd.create_qp(&attr.flags(flags)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    for name in ["BLOCK_SELF_MCAST_LB", "CVLAN_STRIPPING"] {
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
}
