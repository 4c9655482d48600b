//! What queue pairs say of themselves, and of types that a device does not have.

use rdmacm::{ErrorKind, Opcode, PostError, QpAttr, QpFlags, QpModify, QpState, QpType};

use super::{QKEY, connect, datagram_qp, next_success, own_path, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{ANY_ACCESS, assert_holds};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        what_was_set_is_read_back,
        a_datagram_queue_pair_tells_its_key,
        an_unreliable_connection_carries_messages,
        xrc_is_said_to_be_missing,
        a_queue_that_is_not_wanted_is_not_made,
        what_is_special_and_not_there_is_named,
    ]
}

/// F88: the timeout among others.
fn what_was_set_is_read_back() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let cq = queue(pd.context(), 64)?;
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let (one, other) = (pd.create_qp(&attr)?, pd.create_qp(&attr)?);
    assert_eq!(one.query()?.state, QpState::Reset);
    let mut path = own_path(pd.context())?;
    path.traffic_class = 0x68;
    connect(&one, &other, path)?;
    let info = one.query()?;
    assert_eq!(info.state, QpState::Rts);
    assert_eq!(info.remote_qp_num, other.number());
    assert_eq!((info.timeout, info.retry_count), (14, 6));
    assert_eq!((info.rnr_retry_count, info.min_rnr_timer), (5, 12));
    assert_eq!((info.path.traffic_class, info.path.gid), (0x68, path.gid));
    assert_eq!(info.path.source_gid_index, path.source_gid_index);
    assert_eq!((info.path_mtu.bytes(), info.port), (1024, 1));
    // rxe rounds the depths of reads up to powers of two.
    assert!(info.initiator_depth >= 2 && info.responder_resources >= 3);
    let granted = one.capabilities();
    assert_eq!(info.capabilities.max_send_sge, granted.max_send_sge);
    assert_eq!(info.capabilities.max_recv_sge, granted.max_recv_sge);
    Ok(Outcome::Pass)
}

fn a_datagram_queue_pair_tells_its_key() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let (qp, _cq) = datagram_qp(&pd)?;
    let info = qp.query()?;
    assert_eq!((info.qkey, info.state), (QKEY, QpState::Rts));
    Ok(Outcome::Pass)
}

fn an_unreliable_connection_carries_messages() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut cqs = [queue(pd.context(), 16)?, queue(pd.context(), 16)?];
    let [one, other] = [0, 1].map(|end: usize| {
        let attr = QpAttr::new(&pd).qp_type(QpType::Uc).max_inline_data(16);
        pd.create_qp(&attr.send_cq(&cqs[end]).recv_cq(&cqs[end]))
    });
    let (mut one, mut other) = (one?, other?);
    let path = own_path(pd.context())?;
    connect(&one, &other, path)?;
    connect(&other, &one, path)?;
    let inbox = pd.alloc(64, rdmacm::Access::LOCAL_WRITE)?;
    other.recv_half().post(5, &[inbox.slice(..)?])?;
    let mut batch = one.send_half().batch();
    batch.send(6).signaled().inline(b"maybe")?;
    batch.submit()?;
    assert_eq!(next_success(&mut cqs[0])?.wr_id(), 6);
    let completion = next_success(&mut cqs[1])?;
    assert_eq!(completion.result()?.opcode(), Opcode::Receive);
    assert_holds(&inbox, 0, b"maybe");
    Ok(Outcome::Pass)
}

fn xrc_is_said_to_be_missing() -> TestResult {
    let context = environment::context();
    let error = context.open_xrcd().expect_err("rxe has no XRC");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    let pd = context.alloc_pd()?;
    let cq = queue(&context, 4)?;
    let attr = QpAttr::new(&pd).qp_type(QpType::XrcSend).send_cq(&cq);
    let error = pd.create_qp(&attr).expect_err("rxe has no XRC");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    Ok(Outcome::Pass)
}

/// Queue pairs without the one or the other queue, of each type; and one that has neither, whose
/// memory peers write to.
fn a_queue_that_is_not_wanted_is_not_made() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let path = own_path(pd.context())?;
    let inbox = pd.alloc(64, ANY_ACCESS)?;
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (mut near_cq, mut far_cq) = (queue(pd.context(), 16)?, queue(pd.context(), 16)?);
        let attr = QpAttr::new(&pd).qp_type(qp_type);
        let sends = attr.clone().send_cq(&near_cq).max_recv_wr(0);
        let receives = attr.clone().recv_cq(&far_cq).max_send_wr(0);
        let mut near = pd.create_qp(&sends.max_inline_data(16))?;
        let mut far = pd.create_qp(&receives)?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        far.recv_half().post(1, &[inbox.slice(..)?])?;
        let mut batch = near.send_half().batch();
        batch.send(2).signaled().inline(b"one way")?;
        batch.submit()?;
        assert_eq!(next_success(&mut near_cq)?.wr_id(), 2);
        assert_eq!(next_success(&mut far_cq)?.wr_id(), 1);
        assert_holds(&inbox, 0, b"one way");
        let refused = near.recv_half().post(3, &[]);
        assert_eq!(refused, Err(PostError::NoQueue));
        let mut batch = far.send_half().batch();
        assert_eq!(batch.send(4).inline(b""), Err(PostError::NoQueue));
        drop(batch);
        far.modify(&QpModify::to(QpState::Error))?;
        near.modify(&QpModify::to(QpState::Error))?;

        let neither = attr.recv_cq(&far_cq).max_send_wr(0).max_recv_wr(0);
        let lender = pd.create_qp(&neither)?;
        let sends = QpAttr::new(&pd).qp_type(qp_type).send_cq(&near_cq);
        let mut near = pd.create_qp(&sends.max_recv_wr(0).max_inline_data(16))?;
        connect(&near, &lender, path)?;
        connect(&lender, &near, path)?;
        let mut batch = near.send_half().batch();
        let write = batch.write(5, inbox.remote().at(32)).signaled();
        write.inline(b"written")?;
        batch.submit()?;
        assert_eq!(next_success(&mut near_cq)?.wr_id(), 5);
        if qp_type == QpType::Rc {
            assert_holds(&inbox, 32, b"written");
        }
    }
    Ok(Outcome::Pass)
}

fn what_is_special_and_not_there_is_named() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let cq = queue(pd.context(), 4)?;
    let attr = QpAttr::new(&pd)
        .qp_type(QpType::Ud)
        .send_cq(&cq)
        .recv_cq(&cq);
    let error = pd.create_qp(&attr.flags(QpFlags::BLOCK_SELF_MCAST_LB));
    let error = error.expect_err("rxe has no such queue pairs");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("BLOCK_SELF_MCAST_LB"), "{error}");
    Ok(Outcome::Pass)
}
