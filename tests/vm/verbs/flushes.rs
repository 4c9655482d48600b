//! What a queue pair holds when it fails comes back: all of it, once.

use std::time::Duration;

use rdmacm::{
    Access, Buffer, Completion, CompletionStatus, Cq, Destination, ErrorKind, Failure, Qp,
    QpModify, QpState, QpType, Result,
};

use super::failures::{Ends, LENGTH};
use super::shared_queues::Line;
use super::{QKEY, datagram_qp, next_success, own_path};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{ANY_ACCESS, PATIENCE, QUIET};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        all_come_back_once,
        what_is_posted_after_the_failure_comes_back_once,
        a_shared_queue_keeps_its_receives,
    ]
}

/// Everything that a queue pair holds when it fails comes back once, whether a completion was asked
/// for or not.
fn all_come_back_once() -> TestResult {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut ends = Ends::new(qp_type, ANY_ACCESS, false)?;
        let depths = fill_receives(&mut ends.near, &ends.memory)?;
        let gone = ends.private()?.slice(..)?;
        let mut batch = ends.near.send_half().batch();
        for wr_id in 0..depths.sends {
            batch.send(wr_id).from(&[gone])?;
        }
        batch.submit()?;
        assert_all_once(&ends.near, &mut ends.near_cq, &depths)?;
    }

    let pd = environment::context().alloc_pd()?;
    let (mut qp, mut cq) = datagram_qp(&pd)?;
    let memory = pd.alloc(2 * LENGTH, Access::LOCAL_WRITE)?;
    let depths = fill_receives(&mut qp, &memory)?;
    let handle = pd.address_handle(&own_path(pd.context())?)?;
    let gone = pd.alloc(LENGTH, Access::LOCAL_WRITE)?.slice(..)?;
    let qp_num = qp.number();
    let mut batch = qp.send_half().batch();
    for wr_id in 0..depths.sends {
        let to = Destination {
            handle: &handle,
            qp_num,
            qkey: QKEY,
        };
        batch.send_datagram(wr_id, to).from(&[gone])?;
    }
    batch.submit()?;
    assert_all_once(&qp, &mut cq, &depths)?;
    Ok(Outcome::Pass)
}

/// How much was posted to a queue pair: requests are numbered from 0, receives from 1000.
struct Depths {
    sends: u64,
    receives: u64,
}

const FIRST_RECEIVE: u64 = 1000;

/// Posts as many receives as there is room for.
fn fill_receives(qp: &mut Qp, memory: &Buffer) -> Result<Depths> {
    let depths = Depths {
        sends: qp.send_half().depth().into(),
        receives: qp.recv_half().depth().into(),
    };
    for wr_id in 0..depths.receives {
        let segment = memory.slice(..)?;
        qp.recv_half().post(FIRST_RECEIVE + wr_id, &[segment])?;
    }
    Ok(depths)
}

/// Checks that all comes back and has failed: the first request for a reason of its own perhaps,
/// the others because of it. On some devices the failure is one of the send queue, and the receives
/// stay until the queue pair is moved on.
fn assert_all_once(qp: &Qp, cq: &mut Cq, depths: &Depths) -> Result<()> {
    let sends = 0..depths.sends;
    let receives = FIRST_RECEIVE..FIRST_RECEIVE + depths.receives;
    let expected: Vec<u64> = sends.chain(receives).collect();
    assert!(cq.depth() as usize >= expected.len(), "nothing gets lost");
    let first = next_failure(cq, PATIENCE)?.expect("one was asked for");
    if qp.query_state()? == QpState::Sqe {
        qp.modify(&QpModify::to(QpState::Error))?;
    }
    let mut failures = failures(cq, expected.len() - 1)?;
    failures.insert(0, first);
    let early = failures.iter().find(|failure| !failure.is_flush());
    assert!(early.is_none_or(|failure| failure.wr_id == 0), "{early:?}");
    let mut found: Vec<u64> = failures.iter().map(|failure| failure.wr_id).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    Ok(())
}

/// The completions up to a time of silence, all of which must be of failures: the time is short
/// when there are as many as were expected.
fn failures(cq: &mut Cq, expected: usize) -> Result<Vec<Failure>> {
    let mut failures = Vec::new();
    loop {
        let patience = match failures.len() < expected {
            true => PATIENCE,
            false => QUIET,
        };
        match next_failure(cq, patience)? {
            Some(failure) => failures.push(failure),
            None => return Ok(failures),
        }
    }
}

/// The next completion, which must be of a failure; `None` when there is none.
fn next_failure(cq: &mut Cq, patience: Duration) -> Result<Option<Failure>> {
    let mut entry = [Completion::default()];
    match cq.wait(&mut entry, Some(patience)) {
        Ok(taken) => Ok(Some(taken[0].result().expect_err("nothing succeeds"))),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

/// A request comes back at once. A receive that is posted too late, rxe only gives back by the next
/// move to ERROR: it is not told of receives.
fn what_is_posted_after_the_failure_comes_back_once() -> TestResult {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut ends = Ends::new(qp_type, ANY_ACCESS, false)?;
        ends.near.modify(&QpModify::to(QpState::Error))?;
        for wr_id in 0..3 {
            let mut batch = ends.near.send_half().batch();
            batch.send(wr_id).from(&[])?;
            batch.submit()?;
        }
        let found: Vec<u64> = failures(&mut ends.near_cq, 3)?
            .iter()
            .map(|failure| failure.wr_id)
            .collect();
        assert_eq!(found, [0, 1, 2]);

        ends.near.recv_half().post(FIRST_RECEIVE, &[])?;
        if !mlx5::is_under_test() {
            assert_eq!(failures(&mut ends.near_cq, 0)?, []);
            ends.near.modify(&QpModify::to(QpState::Error))?;
        }
        let [late] = failures(&mut ends.near_cq, 1)?[..] else {
            unreachable!("one was asked for")
        };
        assert_eq!(
            (late.wr_id, late.status),
            (FIRST_RECEIVE, CompletionStatus::Flushed)
        );
    }
    Ok(Outcome::Pass)
}

/// They are not the failed queue pair's, and serve the others.
fn a_shared_queue_keeps_its_receives() -> TestResult {
    let mut ends = Ends::new(QpType::Rc, ANY_ACCESS, true)?;
    let srq = ends.srq.as_mut().expect("asked for");
    let depth = u64::from(srq.depth());
    for wr_id in 0..depth {
        srq.post(wr_id, &[])?;
    }
    // Another pair on the same queue.
    let srq = ends.srq.as_ref().expect("asked for");
    let mut other = Line::new(&ends.pd, srq)?;
    ends.far.modify(&QpModify::to(QpState::Error))?;
    assert_eq!(failures(&mut ends.far_cq, 0)?, []);
    for wr_id in 0..depth {
        other.send(wr_id, &[])?;
        next_success(&mut other.near_cq)?;
        let received = next_success(&mut other.far_cq)?;
        assert_eq!(received.wr_id(), wr_id);
    }
    Ok(Outcome::Pass)
}
