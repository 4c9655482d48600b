//! The program `udpong`, ours and that of the C library.

use std::time::Duration;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::interop::matrix::Maker;
use crate::programs::Program;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![udpong: 200 s, the_c_program_does_not_reach_itself_on_roce]
}

const PATIENCE: Duration = Duration::from_secs(40);

/// The server starts after its client now and then, which logs in again and again.
fn udpong() -> TestResult {
    let program = Maker::Rust.path("udpong");
    let ways: [&[&str]; 5] = [
        &["-T", "async"],
        &["-T", "b"],
        &["-T", "n"],
        &["-T", "a", "-T", "s"],
        &["-T", "b", "-B", "50000"],
    ];
    for address in environment::addresses() {
        let address = address.to_string();
        for (way, port) in ways.iter().zip(7180u16..) {
            let port = port.to_string();
            let with = |own: &[&'static str]| {
                let own = own.iter().copied();
                own.chain(way.iter().copied()).collect::<Vec<_>>()
            };
            let serve = [&["-b", &address, "-p", &port][..], &with(&[])].concat();
            let mut server = Program::start(&program, &serve)?;
            for (echo, line) in [
                (&[][..], "custom    1000    "),
                (&["-T", "e"][..], "custom    1000    400 "),
            ] {
                let ask = ["-s", &address, "-p", &port, "-C", "200", "-S", "1000"];
                let ask = [&ask[..], &with(echo)].concat();
                let client = Program::start(&program, &ask)?.wait(PATIENCE)?;
                let is_done = client.output.lines().any(|told| told.starts_with(line));
                assert!(client.status.success() && is_done, "{client}");
            }
            assert!(server.is_running()?);
        }
    }
    Ok(Outcome::Pass)
}

/// That C peers are understood can therefore not be tried here: `hand_made.rs` speaks in their place.
/// The C library makes a way to each queue pair of its own, without a GID, which RoCE refuses. A client
/// fails before it has sent anything.
fn the_c_program_does_not_reach_itself_on_roce() -> TestResult {
    let program = Maker::C.path("udpong");
    let address = environment::addr().to_string();
    let _server = Program::start(&program, &["-b", &address])?;
    let ask = ["-s", &address, "-C", "10", "-S", "100", "-T", "b"];
    let client = Program::start(&program, &ask)?.wait(PATIENCE)?;
    assert!(!client.status.success(), "{client}");
    assert!(client.errors.contains("rconnect"), "{client}");
    Ok(Outcome::Pass)
}
