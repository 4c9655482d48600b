//! Programs that exchange datagrams. What goes to a group of hosts is tested between two hosts.

use super::matrix::{ADDR, Case, Side};
use crate::harness::{Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![udaddy: 200 s, udaddy_with_four_ids: 200 s]
}

/// Where udaddy always listens.
const PORT: u16 = 7174;

fn run_udaddy(server: &'static [&'static str], client: &'static [&'static str]) -> TestResult {
    let case = Case {
        server: Side {
            program: "udaddy",
            args: server,
            says: &[
                "udaddy: starting server",
                "receiving data transfers",
                "sending replies",
                "data transfers complete",
                "test complete",
                "return status 0",
            ],
        },
        client: Side {
            program: "udaddy",
            args: client,
            says: &[
                "udaddy: starting client",
                "udaddy: connecting",
                "initiating data transfers",
                "receiving data transfers",
                "data transfers complete",
                "test complete",
                "return status 0",
            ],
        },
        port: PORT,
        server_goes_on: false,
        rust_server_waits: false,
    };
    case.run()
}

fn udaddy() -> TestResult {
    run_udaddy(&[], &["-s", ADDR])
}

fn udaddy_with_four_ids() -> TestResult {
    run_udaddy(
        &["-b", ADDR, "-c", "4", "-C", "20", "-S", "500"],
        &["-s", ADDR, "-b", ADDR, "-c", "4", "-C", "20", "-S", "500"],
    )
}
