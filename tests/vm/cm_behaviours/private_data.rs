//! Private data in each message of the connection manager.

use rdmacm::{ConnParam, ErrorKind, Event, EventChannel, Result, Step};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{Plan, any_port, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_rejection_brings_private_data,
        a_rejection_for_vendor_options_says_so,
        limits_are_exact_and_checked_before_anything_is_sent,
    ]
}

fn a_rejection_brings_private_data() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().unwrap())?;
    request(&channel)?.into_id().reject(b"no room")?;
    let event = expect(&client.channel, "REJECTED")?;
    let told = event.content().unwrap().connection();
    assert_eq!(told.trimmed(), b"no room");
    assert_eq!(told.private_data.len(), 148, "padded on RoCE");
    let error = event.into_error("connect");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("rejected"), "{error}");
    Ok(Outcome::Pass)
}

fn a_rejection_for_vendor_options_says_so() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().unwrap())?;
    request(&channel)?.into_id().reject_ece(&[])?;
    let event = expect(&client.channel, "REJECTED")?;
    let reason = rdmacm::RejectReason::VENDOR_OPTION_NOT_SUPPORTED;
    assert_eq!(event.status(), rdmacm::Status::Rejected(reason));
    Ok(Outcome::Pass)
}

/// As much as the message carries, and a byte more.
fn edges(limit: usize) -> [Result<ConnParam>; 2] {
    [limit, limit + 1].map(|length| ConnParam::new().private_data(&vec![7; length]))
}

fn limits_are_exact_and_checked_before_anything_is_sent() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client_channel = EventChannel::open()?;
    let id = crate::pair::resolve(&client_channel, listener.local_addr().unwrap())?;
    let client = Plan::default().end(id, client_channel)?;

    assert_eq!(client.id.max_private_data(Step::Connect), 56);
    let [most, more] = edges(56);
    let refused = client.id.connect(&more?).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.errno()),
        (ErrorKind::InvalidInput, None)
    );
    assert!(refused.explanation().contains("up to 56"), "{refused}");
    client.id.connect(&most?)?;

    let asked = request(&channel)?;
    assert_eq!(asked.connection().private_data, [7; 56]);
    let server = Plan::default().end(asked.into_id(), channel)?;
    assert_eq!(server.id.max_private_data(Step::Reject), 148);
    assert!(server.id.reject(&[0; 149]).is_err());
    let [most, more] = edges(server.id.max_private_data(Step::Accept));
    assert_eq!(server.id.accept(&more?).unwrap_err().errno(), None);
    server.id.accept(&most?)?;
    let event = expect(&client.channel, "ESTABLISHED")?;
    assert_eq!(event.content().unwrap().connection().private_data, [7; 196]);
    let Event::Established(event) = expect(&server.channel, "ESTABLISHED")? else {
        unreachable!("checked by name");
    };
    assert_eq!(event.connection().private_data, [], "nothing comes with it");
    Ok(Outcome::Pass)
}
