//! Work queues: how much fits them, what is posted together, what is not posted at all.

use rdmacm::{Completion, Opcode, PostError, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, Pair, Plan, QUIET, assert_holds, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        full_exactly_at_the_depth,
        a_dropped_batch_posts_nothing,
        refused_requests_leave_the_batch_intact,
        unsignaled_requests_complete_silently,
        signal_all_signals_all,
        posting_after_destroy_is_refused,
    ]
}

/// F47: as many requests as the depth says, no more and no fewer, every time round the ring.
fn full_exactly_at_the_depth() -> TestResult {
    for depth in [1, 2, 3, 5, 31] {
        let plan = Plan {
            send_depth: depth,
            recv_depth: depth,
            inline: 16,
            ..Plan::default()
        };
        let mut pair = plan.connect()?;
        let granted = pair.client.qp.capabilities();
        assert!(granted.max_send_wr >= depth && granted.max_recv_wr >= depth);
        for round in 0..10 {
            fill_and_drain(&mut pair, 1000 * round)?;
        }
    }
    Ok(Outcome::Pass)
}

/// Fills both queues, checks that they are full, and lets everything through.
fn fill_and_drain(pair: &mut Pair, first: u64) -> Result<()> {
    let Pair { client, server } = pair;
    let depth = client.qp.send_half().depth();
    assert_eq!(server.qp.recv_half().depth(), depth, "made alike");
    let numbers = first..first + u64::from(depth);
    let full = Err(PostError::QueueFull { depth });

    let inbox = server.buffer(8 * depth as usize)?;
    let place = |number: u64| 8 * (number - first) as usize;
    for number in numbers.clone() {
        let segment = inbox.slice(place(number)..place(number) + 8)?;
        server.qp.recv_half().post(number, &[segment])?;
    }
    assert_eq!(server.qp.recv_half().post(0, &[inbox.slice(..)?]), full);

    client.post(|batch| {
        for number in numbers.clone() {
            batch
                .send(number)
                .signaled()
                .inline(&number.to_ne_bytes())?;
        }
        assert_eq!(batch.send(0).signaled().inline(&[]), full);
        Ok(())
    })?;
    for number in numbers {
        assert_eq!(client.sent()?.wr_id(), number);
        let received = server.received()?;
        assert_eq!(
            (received.wr_id(), received.result()?.byte_len()),
            (number, 8)
        );
        assert_holds(&inbox, place(number), &number.to_ne_bytes());
    }
    Ok(())
}

fn a_dropped_batch_posts_nothing() -> TestResult {
    let plan = Plan {
        inline: 8,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let inbox = server.buffer(8)?;
    for wr_id in 0..4 {
        server.post_recv(wr_id, &inbox)?;
    }
    let mut dropped = client.qp.send_half().batch();
    for wr_id in 1..=3 {
        dropped.send(wr_id).signaled().inline(b"dropped")?;
    }
    drop(dropped);
    client.post(|batch| batch.send(4).signaled().inline(b"posted"))?;
    assert_eq!(client.sent()?.wr_id(), 4);
    assert_eq!(server.received()?.result()?.byte_len(), 6);
    assert_holds(&inbox, 0, b"posted");
    assert_silent(&mut client)?;
    Ok(Outcome::Pass)
}

/// Checks that no further completion comes on either queue.
fn assert_silent(end: &mut End) -> Result<()> {
    for cq in [&mut end.send_cq, &mut end.recv_cq] {
        let mut entry = [Completion::default()];
        let waited = cq.wait(&mut entry, Some(QUIET));
        assert!(waited.is_err(), "{waited:?}");
    }
    Ok(())
}

fn refused_requests_leave_the_batch_intact() -> TestResult {
    let plan = Plan {
        send_depth: 3,
        inline: 16,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let outbox = client.buffer_of(&pattern(9, 100))?;
    let inbox = server.buffer(100)?;
    for wr_id in 0..4 {
        server.post_recv(wr_id, &inbox)?;
    }
    let segment = outbox.slice(..)?;
    client.post(|batch| {
        batch.send(1).signaled().inline(b"first")?;
        assert!(batch.send(90).inline(&[0; 4096]).is_err());
        assert!(batch.send(91).from(&[segment; 40]).is_err());
        batch.send(2).signaled().from(&[segment])?;
        batch.send(3).signaled().inline(b"third")?;
        assert!(batch.send(92).inline(b"full").is_err());
        Ok(())
    })?;
    for (wr_id, length) in [(1, 5), (2, 100), (3, 5)] {
        assert_eq!(client.sent()?.wr_id(), wr_id);
        assert_eq!(server.received()?.result()?.byte_len(), length);
    }
    assert_silent(&mut server)?;
    Ok(Outcome::Pass)
}

fn unsignaled_requests_complete_silently() -> TestResult {
    let plan = Plan {
        inline: 8,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let inbox = server.buffer(8)?;
    for wr_id in 0..9 {
        server.post_recv(wr_id, &inbox)?;
    }
    client.post(|batch| {
        for wr_id in 1..=8 {
            batch.send(wr_id).inline(&[])?;
        }
        batch.send(9).signaled().inline(&[])
    })?;
    assert_eq!(client.sent()?.wr_id(), 9, "the only one that was asked for");
    for wr_id in 0..9 {
        assert_eq!(server.received()?.wr_id(), wr_id);
    }
    assert_silent(&mut client)?;
    Ok(Outcome::Pass)
}

fn signal_all_signals_all() -> TestResult {
    let plan = Plan {
        signal_all: true,
        ..Plan::default()
    };
    let Pair { mut client, server } = plan.connect()?;
    let target = server.buffer(8)?.remote();
    client.post(|batch| {
        batch.write(1, target).from(&[])?;
        batch.write(2, target).signaled().from(&[])?;
        batch.write(3, target).from(&[])
    })?;
    for wr_id in 1..=3 {
        let sent = client.sent()?;
        assert_eq!(
            (sent.wr_id(), sent.result()?.opcode()),
            (wr_id, Opcode::Write)
        );
    }
    Ok(Outcome::Pass)
}

/// F15: a handle to a queue pair that its id has destroyed posts nothing.
fn posting_after_destroy_is_refused() -> TestResult {
    let mut client = Plan::default().connect()?.client;
    let buffer = client.buffer(8)?;
    assert!(client.id.destroy_qp()?);
    let refused = client.post(|batch| batch.send(1).signaled().from(&[]));
    assert_eq!(refused, Err(PostError::Destroyed));
    let refused = client.qp.recv_half().post(1, &[buffer.slice(..)?]);
    assert_eq!(refused, Err(PostError::Destroyed));
    assert!(!client.id.destroy_qp()?, "there is none any more");
    Ok(Outcome::Pass)
}
