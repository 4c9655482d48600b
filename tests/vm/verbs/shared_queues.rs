//! A receive queue that several queue pairs share.

use std::time::Duration;

use rdmacm::{Access, Cq, Pd, PostError, Qp, QpAttr, QpModify, QpState, Result, Srq, SrqAttr};

use super::{connect, next_success, own_path, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, Usage, tests};
use crate::pair::{assert_holds, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        two_queue_pairs_share_their_receives,
        the_receives_run_out_and_come_again,
        a_failed_queue_pair_takes_no_receives_along,
        a_shared_queue_goes_after_its_users,
    ]
}

/// A connection whose far end takes its receives from a shared queue.
pub struct Line {
    pub near: Qp,
    pub near_cq: Cq,
    pub far: Qp,
    pub far_cq: Cq,
}

impl Line {
    pub fn new(pd: &Pd, srq: &Srq) -> Result<Self> {
        let (near_cq, far_cq) = (queue(pd.context(), 64)?, queue(pd.context(), 64)?);
        let attr = QpAttr::new(pd).max_inline_data(64);
        let near = pd.create_qp(&attr.clone().send_cq(&near_cq).recv_cq(&near_cq))?;
        // F76: with a shared queue the own one has no size.
        let attr = attr.srq(srq).max_recv_wr(u32::MAX).max_recv_sge(u32::MAX);
        let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
        let path = own_path(pd.context())?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        Ok(Self {
            near,
            near_cq,
            far,
            far_cq,
        })
    }

    pub fn send(&mut self, wr_id: u64, bytes: &[u8]) -> Result<()> {
        let mut batch = self.near.send_half().batch();
        batch.send(wr_id).signaled().inline(bytes)?;
        Ok(batch.submit()?)
    }
}

pub const SIZE: SrqAttr = SrqAttr {
    max_wr: 16,
    max_sge: 2,
};

fn two_queue_pairs_share_their_receives() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut srq = pd.create_srq(&SIZE)?;
    let mut lines = [Line::new(&pd, &srq)?, Line::new(&pd, &srq)?];
    let inbox = pd.alloc(4096, Access::LOCAL_WRITE)?;
    let place = |wr_id: u64| 64 * wr_id as usize;
    for round in 0..4 {
        for wr_id in 0..8 {
            // In two pieces.
            let middle = place(wr_id) + 5;
            let segments = [
                inbox.slice(place(wr_id)..middle)?,
                inbox.slice(middle..place(wr_id + 1))?,
            ];
            srq.post(wr_id, &segments)?;
        }
        for number in 0..8 {
            let line = &mut lines[number as usize % 2];
            let message = pattern(round + 7 * number, 20);
            line.send(100 + number, &message)?;
            assert_eq!(next_success(&mut line.near_cq)?.wr_id(), 100 + number);
            let completion = next_success(&mut line.far_cq)?;
            assert_eq!(completion.wr_id(), number, "in order of arrival");
            assert_eq!(completion.qp_num(), line.far.number());
            assert_holds(&inbox, place(number), &message);
        }
    }
    let refused = lines[0].far.recv_half().post(1, &[]);
    assert_eq!(refused, Err(PostError::SharedReceiveQueue));
    Ok(Outcome::Pass)
}

fn the_receives_run_out_and_come_again() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut srq = pd.create_srq(&SIZE)?;
    let mut line = Line::new(&pd, &srq)?;
    let depth = srq.depth();
    assert!(depth >= SIZE.max_wr);
    let info = srq.query()?;
    assert!(info.max_wr >= SIZE.max_wr && info.max_sge >= SIZE.max_sge);
    for wr_id in 0..u64::from(depth) {
        srq.post(wr_id, &[])?;
    }
    assert_eq!(srq.post(0, &[]), Err(PostError::QueueFull { depth }));
    for wr_id in 0..u64::from(depth) {
        line.send(wr_id, &[])?;
        next_success(&mut line.near_cq)?;
        assert_eq!(next_success(&mut line.far_cq)?.wr_id(), wr_id);
    }
    // The sender is told to wait, and tries again: five times after 40 ms each.
    line.far
        .modify(&QpModify::to(QpState::Rts).min_rnr_timer(24))?;
    line.send(50, &[])?;
    std::thread::sleep(Duration::from_millis(20));
    srq.post(51, &[])?;
    assert_eq!(next_success(&mut line.near_cq)?.wr_id(), 50);
    assert_eq!(next_success(&mut line.far_cq)?.wr_id(), 51);
    Ok(Outcome::Pass)
}

fn a_failed_queue_pair_takes_no_receives_along() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut srq = pd.create_srq(&SIZE)?;
    let (mut one, other) = (Line::new(&pd, &srq)?, Line::new(&pd, &srq)?);
    srq.post(1, &[])?;
    other.far.modify(&QpModify::to(QpState::Error))?;
    drop(other);
    one.send(2, &[])?;
    assert_eq!(next_success(&mut one.far_cq)?.wr_id(), 1);
    Ok(Outcome::Pass)
}

fn a_shared_queue_goes_after_its_users() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let before = Usage::now()?;
    let srq = pd.create_srq(&SIZE)?;
    let line = Line::new(&pd, &srq)?;
    assert_eq!(srq.destroy().unwrap_err().errno(), Some(libc::EBUSY));
    drop(line);
    before.wait_until_restored(crate::harness::CLEANUP_TIME)?;
    // It would keep the domain.
    pd.dealloc()?;
    Ok(Outcome::Pass)
}
