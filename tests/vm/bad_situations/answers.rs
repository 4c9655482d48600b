//! Parameters of a connection beyond what its messages can carry or the device can do.

use rdmacm::{ConnParam, ErrorKind, EventChannel, Result};

use super::{Situation, check, ready_client};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, Plan, any_port, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        parameters_of_a_request,
        parameters_of_an_answer,
        a_refused_answer_leaves_the_request_open,
    ]
}

fn connect(param: &ConnParam) -> Result<()> {
    ready_client()?.id.connect(param)
}

/// F68, F70, F71.
const REQUESTS: &[Situation] = &[
    Situation {
        name: "ask with 57 bytes of private data",
        make: || connect(&ConnParam::new().private_data(&[0; 57])?),
        kind: ErrorKind::InvalidInput,
        words: &["connect: 57 bytes of private data", "up to 56"],
    },
    Situation {
        name: "255 bytes of private data, which a parameter set can hold",
        make: || connect(&ConnParam::new().private_data(&[0; 255])?),
        kind: ErrorKind::InvalidInput,
        words: &["connect: 255 bytes of private data", "up to 56"],
    },
    Situation {
        name: "256 bytes of private data, which it cannot",
        make: || ConnParam::new().private_data(&[0; 256]).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["256 bytes of private data", "up to 255"],
    },
    Situation {
        name: "more reads than the device can have under way",
        make: || connect(&ConnParam::new().initiator_depth(129)),
        kind: ErrorKind::InvalidInput,
        words: &["initiator_depth is 129", "the most is 128"],
    },
    Situation {
        name: "more reads than the device can answer",
        make: || connect(&ConnParam::new().responder_resources(255)),
        kind: ErrorKind::InvalidInput,
        words: &["responder_resources is 255", "the most is 128"],
    },
    Situation {
        name: "8 retries",
        make: || connect(&ConnParam::new().retry_count(8)),
        kind: ErrorKind::InvalidInput,
        words: &["connect: retry_count is 8", "the most is 7"],
    },
    Situation {
        name: "255 retries for want of a receive",
        make: || connect(&ConnParam::new().rnr_retry_count(255)),
        kind: ErrorKind::InvalidInput,
        words: &["rnr_retry_count is 255", "the most is 7"],
    },
];

fn parameters_of_a_request() -> TestResult {
    check(REQUESTS)
}

/// A client that asks, and a server that is ready to accept it.
fn asked() -> Result<(End, End)> {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let server = plan.end(request(&channel)?.into_id(), channel)?;
    Ok((client, server))
}

fn accept(param: &ConnParam) -> Result<()> {
    let (_client, server) = asked()?;
    server.id.accept(param)
}

const ANSWERS: &[Situation] = &[
    Situation {
        name: "accept with 197 bytes of private data",
        make: || accept(&ConnParam::new().private_data(&[0; 197])?),
        kind: ErrorKind::InvalidInput,
        words: &["accept: 197 bytes of private data", "up to 196"],
    },
    Situation {
        name: "reject with 149 bytes of private data",
        make: || {
            let (_client, server) = asked()?;
            server.id.reject(&[0; 149])
        },
        kind: ErrorKind::InvalidInput,
        words: &["reject: 149 bytes of private data", "up to 148"],
    },
    Situation {
        name: "accept more reads than the device can answer",
        make: || accept(&ConnParam::new().responder_resources(129)),
        kind: ErrorKind::InvalidInput,
        words: &["accept: responder_resources is 129", "the most is 128"],
    },
];

fn parameters_of_an_answer() -> TestResult {
    check(ANSWERS)
}

/// What is refused before the kernel is asked does not reject the peer, as the kernel would.
fn a_refused_answer_leaves_the_request_open() -> TestResult {
    let (client, server) = asked()?;
    let too_long = ConnParam::new().private_data(&[0; 197])?;
    assert!(server.id.accept(&too_long).is_err());
    assert!(server.id.reject(&[0; 149]).is_err());
    server.id.accept(&ConnParam::new())?;
    expect(&client.channel, "ESTABLISHED")?;
    expect(&server.channel, "ESTABLISHED")?;
    Ok(Outcome::Pass)
}
