//! Requests that siw carries out, fails, or does not have.

use rdmacm::{
    AsyncEvent, Completion, CompletionStatus, Cq, ErrorKind, MwType, Opcode, PostError,
    RdmaDatagram, SrqAttr,
};

use super::assert_is_over;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Pair, Plan, QUIET, assert_holds, expect, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        limits_are_siws,
        empty_segments_are_left_out,
        an_empty_read_completes,
        what_is_not_there_is_refused,
        sockets_for_datagrams_are_refused,
        an_invalidated_key_is_dead,
        a_trespass_ends_the_connection,
        a_message_too_long_for_its_receive,
        wrong_local_keys,
        what_is_posted_after_the_end,
        any_completion_is_solicited,
        everything_comes_back_at_the_end,
        a_completion_queue_overflows,
    ]
}

fn limits_are_siws() -> TestResult {
    let context = environment::context();
    let attr = context.attr()?;
    assert_eq!((attr.max_sge(), attr.max_qp_wr()), (6, 32768));
    assert_eq!(attr.max_responder_resources(), 128);
    let plan = Plan {
        inline: 81,
        ..Plan::default()
    };
    let error = plan.connect().expect_err("80 bytes fit inline");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("80"), "{error}");
    let pd = context.default_pd()?;
    let srq = pd.create_srq(&SrqAttr {
        max_wr: 10,
        max_sge: 2,
    })?;
    assert_eq!(srq.depth(), 16);
    srq.arm_limit(3)?;
    assert_eq!(srq.query()?.limit, 3);
    Ok(Outcome::Pass)
}

fn sockets_for_datagrams_are_refused() -> TestResult {
    let error = RdmaDatagram::bind((environment::addr(), 0)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
    Ok(Outcome::Pass)
}

/// The kernel would die of a segment without bytes.
fn empty_segments_are_left_out() -> TestResult {
    let plan = Plan {
        segments: 4,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let outbox = client.buffer_of(&pattern(3, 300))?;
    let inbox = server.buffer(400)?;
    let own = [
        outbox.slice(..100)?,
        outbox.slice(100..100)?,
        outbox.slice(200..300)?,
    ];
    let receives = [
        inbox.slice(..10)?,
        inbox.slice(10..10)?,
        inbox.slice(10..300)?,
    ];
    server.qp.recv_half().post(7, &receives)?;
    client.post(|batch| batch.send(1).signaled().from(&own))?;
    client.sent()?.result()?;
    assert_eq!(server.received()?.result()?.byte_len(), 200);
    assert_holds(&inbox, 0, &pattern(3, 300)[..100]);
    assert_holds(&inbox, 100, &pattern(3, 300)[200..]);

    let remote = inbox.remote();
    client.post(|batch| batch.write(2, remote).signaled().from(&[own[1]; 3]))?;
    client.sent()?.result()?;
    // Nothing but empty segments, also to receive into.
    server.qp.recv_half().post(8, &[receives[1]])?;
    client.post(|batch| batch.send(3).signaled().from(&[own[1]]))?;
    client.sent()?.result()?;
    assert_eq!(server.received()?.result()?.byte_len(), 0);
    Ok(Outcome::Pass)
}

fn an_empty_read_completes() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let own = client.buffer(64)?;
    let (remote, segment) = (server.buffer(64)?, own.slice(..)?);
    let remote = remote.remote();
    client.post(|batch| batch.read(1, remote).signaled().into(&[]))?;
    assert_eq!(client.sent()?.result()?.byte_len(), 0);
    let two = Plan {
        segments: 2,
        ..Plan::default()
    };
    let Pair { mut client, .. } = two.connect()?;
    let refused = client.post(|batch| batch.read(2, remote).signaled().into(&[segment, segment]));
    assert_eq!(
        refused,
        Err(PostError::TooManySegments {
            segments: 2,
            max: 1
        })
    );
    Ok(Outcome::Pass)
}

fn what_is_not_there_is_refused() -> TestResult {
    let plan = Plan {
        inline: 80,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let own = client.buffer(64)?;
    let (segment, remote) = (own.slice(..8)?, server.buffer(64)?.remote());
    let refusals = [
        client.post(|batch| batch.send_immediate(1, 2).from(&[])),
        client.post(|batch| batch.write_immediate(1, remote, 2).from(&[])),
        client.post(|batch| batch.compare_swap(1, remote, 2, 3).into(segment)),
        client.post(|batch| batch.fetch_add(1, remote, 2).into(segment)),
        client.post(|batch| batch.read(1, remote).fence().into(&[segment])),
        client.post(|batch| batch.send_invalidate(1, 2).inline(b"x")),
    ];
    for (index, refused) in refusals.into_iter().enumerate() {
        let error = refused.expect_err("siw does not have it");
        assert!(
            matches!(error, PostError::NotOnDevice { .. }),
            "{index}: {error}"
        );
    }
    let error = client.pd.alloc_mw(MwType::Two).expect_err("no windows");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    let refused = server.qp.recv_half().post(1, &[]);
    assert_eq!(refused, Err(PostError::NoSegments));
    // Nothing of it is in the queue.
    let inbox = server.buffer(8)?;
    server.post_recv(2, &inbox)?;
    client.post(|batch| batch.send(9).signaled().inline(b"the rest"))?;
    assert_eq!(client.sent()?.wr_id(), 9);
    assert_eq!(server.received()?.wr_id(), 2);
    assert_holds(&inbox, 0, b"the rest");
    Ok(Outcome::Pass)
}

/// A send takes a key of the peer's away; a later write with it ends the connection.
fn an_invalidated_key_is_dead() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let (own, target) = (client.buffer_of(&[7; 8])?, server.buffer(8)?);
    let inbox = server.buffer(8)?;
    let (segment, remote) = (own.slice(..)?, target.remote());
    client.post(|batch| batch.write(1, remote).signaled().from(&[segment]))?;
    client.sent()?.result()?;
    server.post_recv(2, &inbox)?;
    client.post(|batch| {
        let rkey = remote.rkey;
        batch.send_invalidate(3, rkey).signaled().from(&[segment])
    })?;
    assert_eq!(client.sent()?.result()?.opcode(), Opcode::Send);
    server.received()?.result()?;
    client.post(|batch| batch.write(4, remote).signaled().from(&[segment]))?;
    expect(&server.channel, "DISCONNECTED")?;
    expect(&client.channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}

/// What the peer does not allow is not told to the request, which was sent: it ends the connection.
fn a_trespass_ends_the_connection() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let own = client.buffer_of(&pattern(2, 64))?;
    let mut target = server.buffer(64)?;
    target.write(0, &pattern(1, 64))?;
    let mut remote = target.remote();
    remote.rkey ^= 0xff;
    let segment = own.slice(..)?;
    client.post(|batch| batch.write(1, remote).signaled().from(&[segment]))?;
    let sent = client.sent()?;
    assert!(sent.result().is_ok(), "{sent:?}");
    expect(&server.channel, "DISCONNECTED")?;
    expect(&client.channel, "DISCONNECTED")?;
    assert_holds(&target, 0, &pattern(1, 64));
    assert_is_over(&server.qp)?;
    // A read has an answer, and none comes.
    let Pair { mut client, server } = Plan::default().connect()?;
    let mut remote = server.buffer(64)?.remote();
    remote.rkey ^= 0xff;
    let own = client.buffer(64)?;
    let segment = own.slice(..)?;
    client.post(|batch| batch.read(1, remote).signaled().into(&[segment]))?;
    let failure = client.sent()?.result().map(drop).expect_err("no answer");
    assert!(
        matches!(
            failure.status,
            CompletionStatus::Flushed | CompletionStatus::RemoteAccess
        ),
        "{failure:?}"
    );
    Ok(Outcome::Pass)
}

fn a_message_too_long_for_its_receive() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let (outbox, inbox) = (client.buffer(100)?, server.buffer(50)?);
    let segment = outbox.slice(..)?;
    server.post_recv(5, &inbox)?;
    client.post(|batch| batch.send(1).signaled().from(&[segment]))?;
    let failure = server.received()?.result().map(drop).expect_err("too long");
    assert_eq!(
        (failure.wr_id, failure.status),
        (5, CompletionStatus::LocalLength)
    );
    expect(&server.channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}

/// Keys that are not those of the memory, on the sending and on the receiving side.
fn wrong_local_keys() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(64)?;
    server.post_recv(5, &inbox)?;
    let dangling = client.buffer(64)?.slice(..)?;
    client.post(|batch| batch.send(1).signaled().from(&[dangling]))?;
    let failure = client.sent()?.result().map(drop).expect_err("no memory");
    // The device has one status for all that it finds wrong before it sends.
    assert_eq!(failure.status, CompletionStatus::LocalQpOperation);

    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let dangling = server.buffer(64)?.slice(..)?;
    let outbox = client.buffer(64)?;
    server.qp.recv_half().post(6, &[dangling])?;
    let segment = outbox.slice(..)?;
    client.post(|batch| batch.send(2).signaled().from(&[segment]))?;
    let failure = server
        .received()?
        .result()
        .map(drop)
        .expect_err("no memory");
    assert_eq!(failure.wr_id, 6);
    assert_ne!(failure.status, CompletionStatus::Flushed);
    Ok(Outcome::Pass)
}

/// siw would not say that it does not carry them out.
fn what_is_posted_after_the_end() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    client.id.disconnect()?;
    let refused = client.post(|batch| batch.send(1).signaled().from(&[]));
    assert_eq!(refused, Err(PostError::Disconnected));
    expect(&server.channel, "DISCONNECTED")?;
    let refused = server.post(|batch| batch.send(1).signaled().from(&[]));
    assert_eq!(refused, Err(PostError::Disconnected));
    Ok(Outcome::Pass)
}

/// F50: there is no arming for solicited messages only.
fn any_completion_is_solicited() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(8)?;
    server.post_recv(1, &inbox)?;
    server.recv_cq.arm(true)?;
    let channel = server.recv_cq.channel().expect("it has one").clone();
    assert!(channel.next_event(Some(QUIET)).is_err());
    client.post(|batch| batch.send(2).signaled().from(&[]))?;
    assert_eq!(
        channel.next_event(Some(PATIENCE))?,
        server.recv_cq.token(),
        "an ordinary message"
    );
    server.received()?.result()?;
    Ok(Outcome::Pass)
}

fn everything_comes_back_at_the_end() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let inbox = client.buffer(8)?;
    for wr_id in 100..116 {
        client.post_recv(wr_id, &inbox)?;
    }
    let depth = client.qp.capabilities().max_recv_wr;
    assert_eq!(depth, 16, "so they are all of them");
    server.id.disconnect()?;
    expect(&client.channel, "DISCONNECTED")?;
    for wr_id in 100..116 {
        let failure = client.received()?.result().map(drop).expect_err("flushed");
        assert_eq!(
            (failure.wr_id, failure.status),
            (wr_id, CompletionStatus::Flushed)
        );
    }
    assert_nothing_comes(&mut client.recv_cq)
}

fn assert_nothing_comes(cq: &mut Cq) -> TestResult {
    let mut entry = [Completion::default()];
    let more = cq.wait(&mut entry, Some(QUIET));
    assert!(more.is_err(), "{more:?}");
    Ok(Outcome::Pass)
}

/// Completions for which there is no room are lost, and the device tells of each.
fn a_completion_queue_overflows() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let plan = Plan {
        send_depth: 1,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let room = u64::from(client.send_cq.depth());
    assert_eq!(room, 2);
    let inbox = server.buffer(8)?;
    for wr_id in 0..room + 2 {
        server.post_recv(wr_id, &inbox)?;
        client.post(|batch| batch.send(wr_id).signaled().from(&[]))?;
        server.received()?.result()?;
    }
    let overflow = AsyncEvent::CqError(client.send_cq.token());
    for _ in 0..2 {
        assert_eq!(events.next_event(Some(PATIENCE))?, overflow);
    }
    for wr_id in 0..room {
        assert_eq!(client.sent()?.wr_id(), wr_id);
    }
    assert_nothing_comes(&mut client.send_cq)?;
    // What was taken out made room.
    server.post_recv(9, &inbox)?;
    client.post(|batch| batch.send(9).signaled().from(&[]))?;
    assert_eq!(client.sent()?.wr_id(), 9);
    Ok(Outcome::Pass)
}
