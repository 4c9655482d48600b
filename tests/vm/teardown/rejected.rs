//! A connection that one side does not want: the other one destroys its queue pair before its id,
//! and says why it failed.

use std::thread;

use rdmacm::{ErrorKind, Incoming};
use rdmacm_kernel_abi::ucma;

use super::order::{self, Checked};
use crate::environment;
use crate::exchange::{self, PATIENCE};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair;
use crate::tracer::{Trace, Tracer};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        by_an_answer,
        by_a_dropped_request,
        by_a_dropped_listener,
        by_nobody,
        accepting_a_client_that_gave_up,
    ]
}

fn by_an_answer() -> TestResult {
    turn_away(|request| request.reject(b"full").expect("the peer waits"))
}

fn by_a_dropped_request() -> TestResult {
    turn_away(drop)
}

/// A listener gets the request of a traced client.
fn turn_away(answer: fn(Incoming)) -> TestResult {
    let listener = exchange::listen(pair::any_port())?;
    let address = listener.local_addr().expect("it listens");
    let client = Tracer::own("exchange")
        .args(["client", &address.to_string()])
        .start()?;
    answer(listener.incoming(Some(PATIENCE))?);
    assert_rejected(
        &client.wait()?,
        "the peer's program rejected the connection or ended",
    );
    Ok(Outcome::Pass)
}

/// The listener goes while it has a request that nobody read.
fn by_a_dropped_listener() -> TestResult {
    let listener = exchange::listen(pair::any_port())?;
    let address = listener.local_addr().expect("it listens");
    let mut client = Tracer::own("exchange")
        .args(["client", &address.to_string()])
        .start()?;
    client.wait_for(|event| event.is_cm(ucma::Command::Connect))?;
    drop(listener);
    // Whether the request arrived before the listener went is a matter of chance.
    let client = client.wait()?;
    let reasons = [
        "nobody listens on that port",
        "the peer's program rejected the connection or ended",
    ];
    let reason = reasons
        .into_iter()
        .find(|reason| client.output.contains(reason));
    assert_rejected(&client, reason.unwrap_or_else(|| panic!("{client}")));
    Ok(Outcome::Pass)
}

fn by_nobody() -> TestResult {
    let address = format!("{}:1", environment::addr());
    let client = Tracer::own("exchange").args(["client", &address]).run()?;
    assert_rejected(&client, "nobody listens on that port");
    Ok(Outcome::Pass)
}

fn accepting_a_client_that_gave_up() -> TestResult {
    let listener = exchange::listen(pair::any_port())?;
    let address = listener.local_addr().expect("it listens");
    let client = pair::Plan::default().ask(address)?;
    let prepared = listener.incoming(Some(PATIENCE))?.prepare()?;
    drop(client);
    thread::sleep(pair::QUIET);
    let error = prepared
        .establish()
        .map(drop)
        .expect_err("there is no client");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    Ok(Outcome::Pass)
}

fn assert_rejected(client: &Trace, reason: &str) {
    let expected = format!(
        "{}connect: the connection was rejected: {reason}",
        exchange::FAILED
    );
    assert_eq!(client.output.trim(), expected, "{client}");
    assert_eq!(client.status.code(), Some(1), "{client}");
    assert_eq!(order::assert_orderly(client), Checked { ids: 1, qps: 1 });
}
