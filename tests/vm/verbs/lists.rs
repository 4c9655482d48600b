//! Lists of requests.

use rdmacm::{
    Data, ListError, Opcode, PostError, RecvRequest, Result, SendFlags, SendRequest, SrqAttr, Work,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{Pair, Plan, assert_holds};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_list_is_posted_in_order,
        a_refused_request_leaves_the_earlier_ones_posted,
        a_list_longer_than_the_queue_fills_it,
        a_refused_receive_leaves_the_earlier_ones_posted,
    ]
}

const PLAN_SEGMENTS: u32 = 2;

fn pair() -> Result<Pair> {
    Plan {
        segments: PLAN_SEGMENTS,
        inline: 16,
        ..Plan::default()
    }
    .connect()
}

fn request(wr_id: u64, work: Work<'_>) -> SendRequest<'_> {
    let flags = SendFlags::SIGNALED;
    SendRequest { wr_id, flags, work }
}

fn a_list_is_posted_in_order() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = pair()?;
    let (own, other) = (client.buffer_of(b"abcdefgh01234567")?, server.buffer(64)?);
    let inbox = server.buffer(64)?;
    for wr_id in 0..2 {
        server.post_recv(wr_id, &inbox)?;
    }
    let (to, segments) = (other.remote(), [own.slice(..4)?, own.slice(4..8)?]);
    let (into, answer) = ([own.slice(12..16)?], own.slice(8..16)?);
    client.qp.send_half().post_list([
        request(
            1,
            Work::Write {
                to,
                data: Data::Segments(&segments),
            },
        ),
        request(2, Work::Send(Data::Inline(b"one"))),
        request(
            3,
            Work::Read {
                from: to,
                into: &into,
            },
        ),
        request(
            4,
            Work::FetchAdd {
                at: to.at(16),
                add: 7,
                into: answer,
            },
        ),
        request(
            5,
            Work::CompareSwap {
                at: to.at(16),
                compare: 7,
                swap: 9,
                into: answer,
            },
        ),
        request(
            6,
            Work::WriteImmediate {
                to: to.at(32),
                data: Data::Inline(b"xy"),
                immediate: 11,
            },
        ),
    ])?;
    let expected = [
        Opcode::Write,
        Opcode::Send,
        Opcode::Read,
        Opcode::FetchAdd,
        Opcode::CompareSwap,
        Opcode::Write,
    ];
    for (wr_id, opcode) in (1..).zip(expected) {
        let done = client.sent()?;
        assert_eq!((done.wr_id(), done.result()?.opcode()), (wr_id, opcode));
    }
    assert_holds(&other, 0, b"abcdefgh");
    assert_holds(&other, 16, &9u64.to_ne_bytes());
    assert_holds(&other, 32, b"xy");
    assert_holds(&own, 8, &7u64.to_ne_bytes());
    assert_eq!(server.received()?.result()?.byte_len(), 3);
    assert_eq!(server.received()?.result()?.immediate(), Some(11));
    // An empty list rings no doorbell and is no error.
    client.qp.send_half().post_list([])?;
    Ok(Outcome::Pass)
}

fn a_refused_request_leaves_the_earlier_ones_posted() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = pair()?;
    let inbox = server.buffer(64)?;
    for wr_id in 0..4 {
        server.post_recv(wr_id, &inbox)?;
    }
    let refused = client.qp.send_half().post_list([
        request(1, Work::Send(Data::Inline(b"1"))),
        request(2, Work::Send(Data::Inline(b"22"))),
        request(3, Work::Send(Data::Inline(&[0; 500]))),
        request(4, Work::Send(Data::Inline(b"4444"))),
    ]);
    let source = PostError::InlineTooLong {
        length: 500,
        max: client.qp.capabilities().max_inline_data,
    };
    let Err(ListError {
        index, source: why, ..
    }) = refused
    else {
        panic!("it was posted");
    };
    assert_eq!((index, why), (2, source));
    for (wr_id, length) in [(1, 1), (2, 2)] {
        assert_eq!(client.sent()?.wr_id(), wr_id);
        assert_eq!(server.received()?.result()?.byte_len(), length);
    }
    // Nothing of the rest is left in the queue.
    client
        .qp
        .send_half()
        .post_list([request(5, Work::Send(Data::Inline(b"55555")))])?;
    assert_eq!(client.sent()?.wr_id(), 5);
    assert_eq!(server.received()?.result()?.byte_len(), 5);
    Ok(Outcome::Pass)
}

fn a_list_longer_than_the_queue_fills_it() -> TestResult {
    let Pair { mut client, server } = pair()?;
    let memory = server.buffer(8)?;
    let to = memory.remote();
    let depth = client.qp.capabilities().max_send_wr;
    let endless = (0..).map(|wr_id| {
        request(
            wr_id,
            Work::Write {
                to,
                data: Data::Inline(b"x"),
            },
        )
    });
    let refused = client.qp.send_half().post_list(endless);
    let refused = refused.expect_err("the queue has an end");
    assert_eq!(refused.source, PostError::QueueFull { depth });
    // Those that the kernel was done with meanwhile made room for more.
    assert!(refused.index >= depth as usize, "{refused}");
    for wr_id in 0..refused.index as u64 {
        assert_eq!(client.sent()?.wr_id(), wr_id);
    }
    Ok(Outcome::Pass)
}

fn a_refused_receive_leaves_the_earlier_ones_posted() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = pair()?;
    let inbox = server.buffer(64)?;
    let (fits, too_many) = ([inbox.slice(..)?], [inbox.slice(..8)?; 5]);
    let max = server.qp.capabilities().max_recv_sge;
    assert!(max < 5, "{max}");
    let receives = [&fits[..], &[], &too_many, &fits].into_iter().zip(10..);
    let receives = receives.map(|(segments, wr_id)| RecvRequest { wr_id, segments });
    let refused = server.qp.recv_half().post_list(receives.clone());
    let refused = refused.expect_err("too many segments");
    let source = PostError::TooManySegments { segments: 5, max };
    assert_eq!((refused.index, refused.source), (2, source));
    client.post(|batch| {
        batch.send(1).inline(b"first")?;
        batch.send(2).inline(b"")
    })?;
    for (wr_id, length) in [(10, 5), (11, 0)] {
        let received = server.received()?;
        assert_eq!(
            (received.wr_id(), received.result()?.byte_len()),
            (wr_id, length)
        );
    }

    let pd = environment::context().alloc_pd()?;
    let mut srq = pd.create_srq(&SrqAttr {
        max_wr: 4,
        max_sge: 1,
    })?;
    let depth = srq.depth();
    let endless = (0..).map(|wr_id| RecvRequest {
        wr_id,
        segments: &[],
    });
    let refused = srq.post_list(endless).expect_err("the queue has an end");
    assert_eq!(
        (refused.index, refused.source),
        (depth as usize, PostError::QueueFull { depth })
    );
    Ok(Outcome::Pass)
}
