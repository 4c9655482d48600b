//! Queues of impossible sizes, and requests that do not fit them.

use rdmacm::{Completion, Cq, ErrorKind, Pd, QpAttr, Result};

use super::{Situation, check};
use crate::environment;
use crate::harness::{Test, TestResult, tests};
use crate::pair::{End, Plan, QUIET};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![completion_queues, queue_pairs, requests]
}

fn completion_queue(entries: u32) -> Result<Cq> {
    environment::context().completion_queue(entries).build()
}

const COMPLETION_QUEUES: &[Situation] = &[
    Situation {
        name: "a completion queue without entries",
        make: || completion_queue(0).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["create_cq: 0 entries", "allows 1 to 32767"],
    },
    Situation {
        name: "an entry more than the device allows",
        make: || completion_queue(32768).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["create_cq: 32768 entries", "allows 1 to 32767"],
    },
    Situation {
        name: "waiting on a queue without a channel",
        make: || {
            let mut cq = completion_queue(1)?;
            cq.wait(&mut [Completion::default()], Some(QUIET)).map(drop)
        },
        kind: ErrorKind::InvalidState,
        words: &["the queue has no completion channel"],
    },
];

fn completion_queues() -> TestResult {
    check(COMPLETION_QUEUES)
}

/// Makes a queue pair with attributes that are changed from the defaults.
fn queue_pair(change: for<'a> fn(QpAttr<'a>) -> QpAttr<'a>) -> Result<()> {
    let pd: Pd = environment::context().default_pd()?;
    let cq = completion_queue(4)?;
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    pd.create_qp(&change(attr)).map(drop)
}

/// F72.
const QUEUE_PAIRS: &[Situation] = &[
    Situation {
        name: "a send more than the device allows",
        make: || queue_pair(|attr| attr.max_send_wr(1048577)),
        kind: ErrorKind::InvalidInput,
        words: &["create_qp: max_send_wr is 1048577", "allows 0 to 1048576"],
    },
    Situation {
        name: "receives without end",
        make: || queue_pair(|attr| attr.max_recv_wr(u32::MAX)),
        kind: ErrorKind::InvalidInput,
        words: &[
            "create_qp: max_recv_wr is 4294967295",
            "allows 1 to 1048576",
        ],
    },
    Situation {
        name: "sends without segments",
        make: || queue_pair(|attr| attr.max_send_sge(0)),
        kind: ErrorKind::InvalidInput,
        words: &["create_qp: max_send_sge is 0", "allows 1 to 32"],
    },
    Situation {
        name: "a segment more than the device allows",
        make: || queue_pair(|attr| attr.max_recv_sge(33)),
        kind: ErrorKind::InvalidInput,
        words: &["create_qp: max_recv_sge is 33", "allows 1 to 32"],
    },
    Situation {
        name: "a byte inline more than the device allows",
        make: || queue_pair(|attr| attr.max_inline_data(513)),
        kind: ErrorKind::InvalidInput,
        words: &["create_qp: max_inline_data is 513", "allows 0 to 512"],
    },
    Situation {
        name: "no completion queue for receives",
        make: || {
            let pd = environment::context().default_pd()?;
            let cq = completion_queue(4)?;
            pd.create_qp(&QpAttr::new(&pd).send_cq(&cq)).map(drop)
        },
        kind: ErrorKind::InvalidInput,
        words: &["a completion queue for receives"],
    },
];

fn queue_pairs() -> TestResult {
    check(QUEUE_PAIRS)
}

fn client() -> Result<End> {
    Ok(Plan::default().connect()?.client)
}

const REQUESTS: &[Situation] = &[
    Situation {
        name: "more inline than was asked for",
        make: || Ok(client()?.post(|batch| batch.send(1).inline(&[0; 400]))?),
        kind: ErrorKind::InvalidInput,
        words: &["post: 400 bytes inline", "(max_inline_data)"],
    },
    Situation {
        name: "more segments than was asked for",
        make: || {
            let mut client = client()?;
            let segment = client.buffer(1)?.slice(..)?;
            Ok(client.qp.recv_half().post(1, &[segment; 20])?)
        },
        kind: ErrorKind::InvalidInput,
        words: &["post: 20 segments", "max_recv_sge"],
    },
    Situation {
        name: "a request more than fits",
        make: || {
            let mut client = client()?;
            let depth = client.qp.send_half().depth();
            Ok(client.post(|batch| (0..=depth).try_for_each(|_| batch.send(1).from(&[])))?)
        },
        kind: ErrorKind::QueueFull,
        words: &[
            "post: all ",
            "slots of the queue are in use",
            "poll for completions",
        ],
    },
    Situation {
        name: "sending before the connection is made",
        make: || {
            let mut client = super::ready_client()?;
            Ok(client.post(|batch| batch.send(1).from(&[]))?)
        },
        kind: ErrorKind::InvalidState,
        words: &["post: the queue pair is not connected yet"],
    },
    Situation {
        name: "sending after the queue pair was destroyed",
        make: || {
            let mut client = client()?;
            client.qp.destroy()?;
            Ok(client.post(|batch| batch.send(1).from(&[]))?)
        },
        kind: ErrorKind::Destroyed,
        words: &["post: the queue pair was destroyed"],
    },
];

fn requests() -> TestResult {
    check(REQUESTS)
}
