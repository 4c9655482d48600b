//! What a device says of itself, and what all who use it share.

use std::time::{Duration, Instant};

use rdmacm::{AsyncEvent, ErrorKind, EventChannel, LinkLayer, PortSpace, PortState};

use super::interface::SecondAddress;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, Usage, tests};
use crate::pair::{PATIENCE, QUIET, any_port};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        limits_are_rxes,
        the_port_is_up,
        all_share_context_and_protection_domain,
        asynchronous_events,
    ]
}

fn limits_are_rxes() -> TestResult {
    let context = environment::context();
    if context.device().driver() != rdmacm::Driver::Rxe {
        return Ok(Outcome::Skip("the numbers are those of rxe".into()));
    }
    let attr = context.attr()?;
    assert_eq!(
        (attr.max_sge(), attr.max_cqe(), attr.max_qp_wr()),
        (32, 32767, 1 << 20)
    );
    assert_eq!(
        (attr.max_responder_resources(), attr.max_initiator_depth()),
        (128, 128)
    );
    assert_eq!(attr.max_qp(), 1_048_560);
    assert!(attr.max_mr_size() >= 1 << 30);
    Ok(Outcome::Pass)
}

fn the_port_is_up() -> TestResult {
    let context = environment::context();
    let port = context.port(1)?;
    assert_eq!(
        (port.state, port.link_layer),
        (PortState::Active, LinkLayer::Ethernet)
    );
    assert!((256..=4096).contains(&port.active_mtu.bytes()), "{port:?}");
    assert!(port.active_mtu <= port.max_mtu, "{port:?}");
    assert!(port.max_message_size >= 1 << 20, "{port:?}");
    let missing = context.port(2).expect_err("there is one port");
    assert!(missing.to_string().contains("has no port 2"), "{missing}");
    Ok(Outcome::Pass)
}

/// I-31: one context for each process and device, one protection domain for all ids on it.
fn all_share_context_and_protection_domain() -> TestResult {
    let channel = EventChannel::open()?;
    let before = Usage::now()?;
    let ids = [
        channel.create_id(PortSpace::Tcp)?,
        channel.create_id(PortSpace::Tcp)?,
    ];
    for id in &ids {
        id.bind_addr(any_port())?;
        assert!(id.context()?.same_as(&environment::context()));
    }
    let domains = [ids[0].protection_domain()?, ids[1].protection_domain()?];
    let count = |usage: &Usage, kind| usage.count(&format!("{} {kind}", environment::device()));
    let during = Usage::now()?;
    assert_eq!(count(&during, "pd"), count(&before, "pd") + 1);
    assert_eq!(count(&during, "ctx"), count(&before, "ctx") + 1);
    drop(domains);
    Ok(Outcome::Pass)
}

/// A stream opens, runs out of its time, and tells of a new address as a change of the GID table.
fn asynchronous_events() -> TestResult {
    let events = environment::context().async_events()?;
    assert_eq!(events.try_next_event()?, None);
    let start = Instant::now();
    let error = events.next_event(Some(QUIET)).expect_err("nothing happens");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!((QUIET..Duration::from_secs(2)).contains(&start.elapsed()));

    let _second = SecondAddress::add("10.10.0.78")?;
    assert_eq!(
        events.next_event(Some(PATIENCE))?,
        AsyncEvent::GidChange { port: 1 }
    );
    Ok(Outcome::Pass)
}
