//! The route of a stream, and the type of service of its packets.

use std::io::ErrorKind;
use std::time::Duration;

use rdmacm::{PathRecord, RdmaStream, StreamSettings};

use super::basics::{carry, listen, pair, pair_with};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_stream_goes_by_the_route_of_another,
        a_route_that_leads_elsewhere_does_not_connect,
        the_type_of_service_is_on_the_route,
    ]
}

fn a_stream_goes_by_the_route_of_another() -> TestResult {
    let (first, accepted) = pair()?;
    let paths = first.route()?;
    assert!(paths[0].is_primary() && !accepted.route()?.is_empty());
    let (active, passive) = pair_with(&StreamSettings::new().route(&paths))?;
    assert_eq!(active.route()?[0].to_bytes(), paths[0].to_bytes());
    carry(&active, &passive, 100_000, 3000)?;
    carry(&passive, &active, 100_000, 3000)?;
    Ok(Outcome::Pass)
}

/// The address is right, but the route is what counts.
fn a_route_that_leads_elsewhere_does_not_connect() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    let (first, _) = (RdmaStream::connect(address)?, listener.accept()?);
    let mut record = first.route()?[0].to_bytes();
    // The last byte of the destination's GID, in which the IPv4 address is.
    record[23] ^= 0x55;
    let settings = StreamSettings::new()
        .route(&[PathRecord::from_bytes(record)])
        .connect_timeout(Duration::from_secs(1));
    let error = RdmaStream::connect_with(address, &settings).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    Ok(Outcome::Pass)
}

fn the_type_of_service_is_on_the_route() -> TestResult {
    const TYPE: u8 = 0x48;
    let settings = StreamSettings::new().type_of_service(TYPE);
    let (active, passive) = pair_with(&settings)?;
    assert_eq!(active.route()?[0].traffic_class(), TYPE);
    passive.set_read_timeout(Some(Duration::from_secs(10)))?;
    carry(&active, &passive, 10_000, 3000)?;
    Ok(Outcome::Pass)
}
