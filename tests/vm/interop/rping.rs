//! Our rping and the C library's, each as server and as client of the other.

use std::error::Error;
use std::process::{Command, Output};
use std::time::Duration;

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::Program;

const C: &str = "/usr/bin/rping";
const RUST: &str = "/opt/rping";

/// How long a server may take to end after its client.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        c_server_with_rust_client: 120 s,
        rust_server_with_c_client: 120 s,
        rust_server_with_rust_client: 120 s,
        persistent_rust_server_with_20_clients: 120 s,
        persistent_c_server_with_20_rust_clients: 120 s,
    ]
}

fn c_server_with_rust_client() -> TestResult {
    exchange(7181, C, RUST)
}

fn rust_server_with_c_client() -> TestResult {
    exchange(7182, RUST, C)
}

fn rust_server_with_rust_client() -> TestResult {
    exchange(7183, RUST, RUST)
}

/// A hundred validated pings of a small and of a large size.
fn exchange(port: u16, server_program: &str, client_program: &str) -> TestResult {
    let addr = environment::addr().to_string();
    for size in ["64", "65000"] {
        let args = ["-s", "-a", &addr, "-C", "100", "-S", size, "-V"];
        let mut server = Program::serve(server_program, port, &args)?;
        pings(client_program, port, "100", size)?;
        let ended = server.wait(PATIENCE)?;
        // The C server sometimes ends with an error of its own teardown, when all is done.
        assert!(
            server_program == C || ended.status.success(),
            "server: {ended}"
        );
    }
    Ok(Outcome::Pass)
}

fn persistent_rust_server_with_20_clients() -> TestResult {
    let addr = environment::addr().to_string();
    let _server = Program::serve(RUST, 7184, &["-s", "-P", "-a", &addr])?;
    for (client, size) in [(C, "64"), (RUST, "1000")].iter().cycle().take(20) {
        pings(client, 7184, "3", size)?;
    }
    Ok(Outcome::Pass)
}

fn persistent_c_server_with_20_rust_clients() -> TestResult {
    let addr = environment::addr().to_string();
    let _server = Program::serve(C, 7185, &["-s", "-P", "-a", &addr, "-S", "1000"])?;
    for _ in 0..20 {
        pings(RUST, 7185, "3", "1000")?;
    }
    Ok(Outcome::Pass)
}

/// Runs a client, which prints a line for each ping whose data came back right.
fn pings(program: &str, port: u16, count: &str, size: &str) -> Result<(), Box<dyn Error>> {
    let (addr, port) = (environment::addr().to_string(), port.to_string());
    let args = [
        "-c", "-a", &addr, "-p", &port, "-C", count, "-S", size, "-v", "-V",
    ];
    let output = Command::new(program).args(args).output()?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let good = lines
        .lines()
        .filter(|line| line.starts_with("ping data: rdma-ping-"))
        .count();
    if output.status.success() && good.to_string() == count {
        return Ok(());
    }
    Err(format!(
        "{program} {args:?}: {good} good pings; {}",
        description(&output)
    )
    .into())
}

fn description(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}; {errors}", output.status)
}
