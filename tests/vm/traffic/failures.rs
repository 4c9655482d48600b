//! Requests that one of the two ends cannot carry out, and what both learn of it.

use std::thread;
use std::time::Duration;

use rdmacm::{
    Access, Buffer, CompletionStatus, ConnParam, PostError, QpState, RemoteAddress, Result, Segment,
};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{ANY_ACCESS, End, Pair, Plan, assert_holds, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        memory_of_the_peer_is_protected,
        a_segment_that_outlives_its_buffer,
        a_message_too_long_for_its_receive,
        no_receive_and_no_retries,
        reads_take_turns,
        no_reads_where_none_were_agreed_on,
    ]
}

/// How the next request of an end failed.
fn failure(end: &mut End) -> Result<CompletionStatus> {
    let sent = end.sent()?;
    let failure = sent.result().expect_err("the request cannot succeed");
    assert_eq!(
        (failure.wr_id, failure.qp_num),
        (sent.wr_id(), end.qp.number())
    );
    Ok(failure.status)
}

/// Something that a peer does not allow to be done to its 64 bytes.
struct Trespass {
    name: &'static str,
    access: Access,
    is_read: bool,
    /// Where it reaches instead of the 64 bytes.
    aim: fn(RemoteAddress) -> RemoteAddress,
}

const TRESPASSES: [Trespass; 5] = [
    Trespass {
        name: "a write to memory that may be read",
        access: Access::LOCAL_WRITE.union(Access::REMOTE_READ),
        is_read: false,
        aim: |remote| remote,
    },
    Trespass {
        name: "a read of memory that may be written",
        access: Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
        is_read: true,
        aim: |remote| remote,
    },
    Trespass {
        name: "a write with another key",
        access: ANY_ACCESS,
        is_read: false,
        aim: |remote| RemoteAddress {
            rkey: remote.rkey ^ 0xff,
            ..remote
        },
    },
    Trespass {
        name: "a write that reaches behind the end",
        access: ANY_ACCESS,
        is_read: false,
        aim: |remote| remote.at(1),
    },
    Trespass {
        name: "a read from before the beginning",
        access: ANY_ACCESS,
        is_read: true,
        aim: |remote| remote.at(u64::MAX),
    },
];

fn memory_of_the_peer_is_protected() -> TestResult {
    for trespass in TRESPASSES {
        let mut pair = Plan::default().connect()?;
        let mut target = pair.server.pd.alloc(64, trespass.access)?;
        target.write(0, &pattern(1, 64))?;
        let status = attempt(&mut pair, &target, &trespass)?;
        assert_eq!(status, CompletionStatus::RemoteAccess, "{}", trespass.name);
        assert_holds(&target, 0, &pattern(1, 64));
        // Either end is told by its queue pair.
        assert_eq!(pair.client.qp.query_state()?, QpState::Error);
        assert_eq!(pair.server.qp.query_state()?, QpState::Error);
    }
    Ok(Outcome::Pass)
}

fn attempt(pair: &mut Pair, target: &Buffer, trespass: &Trespass) -> Result<CompletionStatus> {
    let own = pair.client.buffer_of(&pattern(2, 64))?;
    let (remote, segment) = ((trespass.aim)(target.remote()), own.slice(..)?);
    pair.client.post(|batch| match trespass.is_read {
        true => batch.read(1, remote).signaled().into(&[segment]),
        false => batch.write(1, remote).signaled().from(&[segment]),
    })?;
    let status = failure(&mut pair.client)?;
    assert_holds(&own, 0, &pattern(2, 64));
    Ok(status)
}

/// F16: requests may keep naming memory that is gone. They fail and touch nothing.
fn a_segment_that_outlives_its_buffer() -> TestResult {
    let mut pair = Plan::default().connect()?;
    let dangling = pair.client.buffer(4096)?.slice(..)?;
    assert_ne!(
        send_to(&mut pair, dangling, None)?,
        CompletionStatus::Success
    );

    let mut pair = Plan::default().connect()?;
    let outbox = pair.client.buffer_of(&pattern(3, 4096))?;
    let dangling = pair.server.buffer(4096)?.slice(..)?;
    // What has the address now is not the receive's.
    let innocent = pair.server.buffer(4096)?;
    let status = send_to(&mut pair, outbox.slice(..)?, Some(dangling))?;
    assert_eq!(status, CompletionStatus::RemoteOperation);
    let received = pair.server.received()?;
    assert!(received.result().is_err(), "{received:?}");
    assert_holds(&innocent, 0, &[0; 4096]);
    Ok(Outcome::Pass)
}

/// Sends from a segment of the client's, with a receive of the server's if one is given.
fn send_to(pair: &mut Pair, from: Segment, to: Option<Segment>) -> Result<CompletionStatus> {
    if let Some(to) = to {
        pair.server.qp.recv_half().post(1, &[to])?;
    }
    pair.client
        .post(|batch| batch.send(1).signaled().from(&[from]))?;
    let sent = pair.client.sent()?;
    Ok(sent
        .result()
        .map_or_else(|failure| failure.status, |_| CompletionStatus::Success))
}

fn a_message_too_long_for_its_receive() -> TestResult {
    let mut pair = Plan::default().connect()?;
    let outbox = pair.client.buffer_of(&pattern(4, 64))?;
    let inbox = pair.server.buffer(64)?;
    let (message, room) = (outbox.slice(..)?, inbox.slice(..63)?);
    let status = send_to(&mut pair, message, Some(room))?;
    assert_eq!(status, CompletionStatus::RemoteOperation);
    let received = pair.server.received()?;
    let failure = received.result().expect_err("it does not fit");
    // What the InfiniBand specification calls a local length error is this one on rxe.
    assert_eq!(failure.status, CompletionStatus::LocalQpOperation);
    assert_holds(&inbox, 63, &[0]);
    Ok(Outcome::Pass)
}

/// F116: how often a side repeats a message that finds no receive is what its peer granted, once
/// it is at all.
fn no_receive_and_no_retries() -> TestResult {
    let none = || ConnParam::new().rnr_retry_count(0);
    let mut pair = Plan {
        asked: none(),
        ..Plan::default()
    }
    .connect()?;
    assert_waits_for_its_receive(&mut pair.client, &mut pair.server)?;
    assert_finds_no_receive(&mut pair.server)?;

    let mut pair = Plan {
        answered: none(),
        ..Plan::default()
    }
    .connect()?;
    assert_waits_for_its_receive(&mut pair.server, &mut pair.client)?;
    assert_finds_no_receive(&mut pair.client)?;
    Ok(Outcome::Pass)
}

fn assert_finds_no_receive(sender: &mut End) -> Result<()> {
    sender.post(|batch| batch.send(1).signaled().from(&[]))?;
    assert_eq!(failure(sender)?, CompletionStatus::RnrRetryExceeded);
    Ok(())
}

fn assert_waits_for_its_receive(sender: &mut End, receiver: &mut End) -> Result<()> {
    let outbox = sender.buffer_of(&pattern(5, 64))?;
    let inbox = receiver.buffer(64)?;
    let segment = outbox.slice(..)?;
    sender.post(|batch| batch.send(1).signaled().from(&[segment]))?;
    thread::sleep(Duration::from_millis(200));
    receiver.post_recv(1, &inbox)?;
    sender.sent()?.result()?;
    receiver.received()?.result()?;
    assert_holds(&inbox, 0, &pattern(5, 64));
    Ok(())
}

/// F71: more reads at once than the sides agreed on take turns.
fn reads_take_turns() -> TestResult {
    const LENGTH: usize = 5000;
    let plan = Plan {
        asked: ConnParam::new().initiator_depth(1),
        ..Plan::default()
    };
    let Pair { mut client, server } = plan.connect()?;
    let from = server.buffer_of(&pattern(6, 4 * LENGTH))?;
    let to = client.buffer(4 * LENGTH)?;
    let parts = (0..4)
        .map(|part| to.slice(part * LENGTH..(part + 1) * LENGTH))
        .collect::<Result<Vec<_>>>()?;
    client.post(|batch| {
        for (wr_id, part) in (0..).zip(&parts) {
            let remote = from.remote().at(wr_id * LENGTH as u64);
            batch.read(wr_id, remote).signaled().into(&[*part])?;
        }
        Ok(())
    })?;
    for wr_id in 0..4 {
        let sent = client.sent()?;
        assert_eq!((sent.wr_id(), sent.result().map(drop)), (wr_id, Ok(())));
    }
    assert_holds(&to, 0, &pattern(6, 4 * LENGTH));
    Ok(Outcome::Pass)
}

/// F71: where either side wants no reads, none is posted: the kernel would never end it.
fn no_reads_where_none_were_agreed_on() -> TestResult {
    let plans = [
        Plan {
            asked: ConnParam::new().initiator_depth(0),
            ..Plan::default()
        },
        Plan {
            answered: ConnParam::new().responder_resources(0),
            ..Plan::default()
        },
    ];
    for plan in plans {
        let Pair {
            mut client,
            mut server,
        } = plan.connect()?;
        let (own, other) = (client.buffer(64)?, server.buffer(64)?);
        let (segment, remote) = (own.slice(..)?, other.remote());
        let refused = client.post(|batch| batch.read(1, remote).signaled().into(&[segment]));
        assert_eq!(refused, Err(PostError::NoReads));
        client.post(|batch| batch.write(2, remote).signaled().from(&[segment]))?;
        assert_eq!(client.sent()?.result().map(drop), Ok(()));

        // The other direction is another matter.
        let (segment, remote) = (other.slice(..)?, own.remote());
        server.post(|batch| batch.read(3, remote).signaled().into(&[segment]))?;
        assert_eq!(server.sent()?.result().map(drop), Ok(()));
    }
    Ok(Outcome::Pass)
}
