//! The library finds and opens the device under test.

use rdmacm::Transport;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![lists_and_opens_the_device, gids_and_pkeys]
}

fn lists_and_opens_the_device() -> TestResult {
    let devices = rdmacm::devices()?;
    let names: Vec<&str> = devices.iter().map(|device| device.name()).collect();
    assert!(names.contains(&environment::device().as_str()), "{names:?}");
    let context = environment::context();
    assert_eq!(context.attr()?.ports(), 1);
    assert!(
        context.device().index().is_some(),
        "netlink tells the index"
    );
    Ok(Outcome::Pass)
}

fn gids_and_pkeys() -> TestResult {
    let context = environment::context();
    if context.device().transport() == Transport::Iwarp {
        return Ok(Outcome::Skip(
            "iWARP has neither address GIDs nor P_Keys".into(),
        ));
    }
    let ips: Vec<_> = context
        .gids()?
        .iter()
        .map(|entry| entry.gid.to_ip())
        .collect();
    assert!(ips.contains(&environment::addr()), "{ips:?}");
    assert!(!ips.contains(&environment::plain_addr()), "{ips:?}");
    assert_eq!(context.pkeys(1)?, [0xffff]);
    Ok(Outcome::Pass)
}
