//! Programs that connect.

use super::matrix::{ADDR, Case, Side};
use crate::harness::{Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        ucmatose: 200 s,
        ucmatose_with_ten_connections: 200 s,
        ucmatose_migrating: 200 s,
        ucmatose_with_a_type_of_service: 200 s,
        ucmatose_with_an_ack_timeout: 200 s,
        rdma_server_and_client: 200 s,
        rdma_xserver_and_xclient: 200 s,
        cmtime_with_100_connections: 200 s,
    ]
}

const SERVER_OF_UCMATOSE: Side = Side {
    program: "ucmatose",
    args: &[],
    says: &[
        "cmatose: starting server",
        "initiating data transfers",
        "completing sends",
        "receiving data transfers",
        "data transfers complete",
        "cmatose: disconnecting",
        "disconnected",
        "test complete",
        "return status 0",
    ],
};

const CLIENT_OF_UCMATOSE: Side = Side {
    program: "ucmatose",
    args: &[],
    says: &[
        "cmatose: starting client",
        "cmatose: connecting",
        "receiving data transfers",
        "sending replies",
        "data transfers complete",
        "test complete",
        "return status 0",
    ],
};

/// What is the same on both sides comes with a port, for each case another.
fn run_ucmatose(
    server: &'static [&'static str],
    client: &'static [&'static str],
    port: u16,
) -> TestResult {
    let case = Case {
        server: Side {
            args: server,
            ..SERVER_OF_UCMATOSE
        },
        client: Side {
            args: client,
            ..CLIENT_OF_UCMATOSE
        },
        port,
        server_goes_on: false,
        rust_server_waits: false,
    };
    case.run()
}

fn ucmatose() -> TestResult {
    run_ucmatose(&["-p", "7191"], &["-s", ADDR, "-p", "7191"], 7191)
}

fn ucmatose_with_ten_connections() -> TestResult {
    run_ucmatose(
        &["-b", ADDR, "-p", "7192", "-c", "10", "-C", "50"],
        &["-s", ADDR, "-p", "7192", "-c", "10", "-C", "50"],
        7192,
    )
}

fn ucmatose_migrating() -> TestResult {
    run_ucmatose(
        &["-b", ADDR, "-p", "7193", "-m", "-c", "3"],
        &["-s", ADDR, "-p", "7193", "-m", "-c", "3"],
        7193,
    )
}

fn ucmatose_with_a_type_of_service() -> TestResult {
    run_ucmatose(
        &["-b", ADDR, "-p", "7194", "-t", "8"],
        &["-s", ADDR, "-p", "7194", "-t", "8"],
        7194,
    )
}

fn ucmatose_with_an_ack_timeout() -> TestResult {
    run_ucmatose(
        &["-b", ADDR, "-p", "7195", "-a", "10"],
        &["-s", ADDR, "-p", "7195", "-a", "10"],
        7195,
    )
}

fn rdma_server_and_client() -> TestResult {
    let case = Case {
        server: Side {
            program: "rdma_server",
            args: &["-s", ADDR, "-p", "7196"],
            says: &["rdma_server: start", "rdma_server: end 0"],
        },
        client: Side {
            program: "rdma_client",
            args: &["-s", ADDR, "-p", "7196"],
            says: &["rdma_client: start", "rdma_client: end 0"],
        },
        port: 7196,
        server_goes_on: false,
        rust_server_waits: false,
    };
    case.run()
}

fn rdma_xserver_and_xclient() -> TestResult {
    let case = Case {
        server: Side {
            program: "rdma_xserver",
            args: &["-p", "7197", "-c", "r"],
            says: &["rdma_xserver: start", "rdma_xserver: end 0"],
        },
        client: Side {
            program: "rdma_xclient",
            args: &["-s", ADDR, "-p", "7197", "-c", "r"],
            says: &["rdma_xclient: start", "rdma_xclient: end 0"],
        },
        port: 7197,
        server_goes_on: false,
        rust_server_waits: false,
    };
    case.run()
}

fn cmtime_with_100_connections() -> TestResult {
    let case = Case {
        server: Side {
            program: "cmtime",
            args: &["-b", ADDR, "-p", "7198"],
            says: &[],
        },
        client: Side {
            program: "cmtime",
            args: &["-s", ADDR, "-b", ADDR, "-p", "7198", "-c", "100"],
            says: &[
                "creating id",
                "binding source address",
                "resolving address",
                "resolving route",
                "creating qp",
                "connecting",
                "disconnecting",
                "destroying id",
                "us / conn",
            ],
        },
        port: 7198,
        server_goes_on: true,
        rust_server_waits: false,
    };
    case.run()
}
