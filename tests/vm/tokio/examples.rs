//! The example programs for tokio.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::Program;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![words_come_back, a_page_is_fetched]
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a server that was just started until it answers.
fn ask(program: &str, question: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let start = Instant::now();
    loop {
        let ended = Program::start(program, question)?.wait(PATIENCE)?;
        if ended.status.success() {
            return Ok(ended.output);
        }
        // It does not listen yet.
        assert!(start.elapsed() < PATIENCE, "{ended}");
    }
}

/// An address with a port that is free for TCP, and so mostly for RDMA.
fn address() -> std::io::Result<String> {
    let free = TcpListener::bind((environment::addr(), 0))?;
    Ok(free.local_addr()?.to_string())
}

fn words_come_back() -> TestResult {
    let address = address()?;
    let mut server = Program::start("/opt/tokio_echo", &[&address])?;
    for _ in 0..3 {
        let answer = ask("/opt/tokio_echo", &["--to", &address, "hello", "RDMA"])?;
        assert_eq!(answer, "hello RDMA\n");
    }
    assert!(server.is_running()?);
    Ok(Outcome::Pass)
}

fn a_page_is_fetched() -> TestResult {
    let address = address()?;
    let mut server = Program::start("/opt/http", &[&address])?;
    for _ in 0..3 {
        let page = ask("/opt/http", &["--get", &address, "/hello"])?;
        assert_eq!(page, "GET /hello over RDMA\n");
    }
    assert!(server.is_running()?);
    Ok(Outcome::Pass)
}
