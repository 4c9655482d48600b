//! The programs of the guide, each with itself.

use std::time::Duration;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::Program;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![with_a_stream, with_a_connection, with_verbs,]
}

/// The port of all of them.
const PORT: u16 = 7471;
const PATIENCE: Duration = Duration::from_secs(20);

fn say_hello(program: &str) -> TestResult {
    let path = format!("/opt/{program}");
    let mut server = Program::start(&path, &[])?.until_listening(PORT)?;
    let address = environment::addr().to_string();
    let client = Program::start(&path, &[&address])?.wait(PATIENCE)?;
    let server = server.wait(PATIENCE)?;
    for (ended, said) in [
        (client, "received: hello from the server\n"),
        (server, "received: hello from the client\n"),
    ] {
        assert!(ended.status.success(), "{ended}");
        assert_eq!(ended.output, said);
    }
    Ok(Outcome::Pass)
}

fn with_a_stream() -> TestResult {
    say_hello("hello_stream")
}

fn with_a_connection() -> TestResult {
    say_hello("hello")
}

fn with_verbs() -> TestResult {
    say_hello("hello_verbs")
}
