//! What queue pairs say of themselves, and of types that a device does not have.

use rdmacm::{ErrorKind, Opcode, QpAttr, QpState, QpType};

use super::{QKEY, connect, datagram_qp, next_success, own_path, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::assert_holds;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        what_was_set_is_read_back,
        a_datagram_queue_pair_tells_its_key,
        an_unreliable_connection_carries_messages,
        xrc_is_said_to_be_missing,
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
