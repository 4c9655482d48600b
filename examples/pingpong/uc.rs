//! `uc_pingpong`: a message goes to and fro over an unreliable connection, the counterpart of the
//! program `ibv_uc_pingpong` in rdma-core.
//!
//! ```text
//! cargo run --example uc_pingpong -- -g 1                  # the server
//! ibv_uc_pingpong -g 1 10.10.0.1                           # in C, or in Rust as above
//! ```
//!
//! It differs from `rc_pingpong`, which is the one to read first, by the type of its queue pair
//! alone. A message that is lost stays lost, and the game ends: both sides give up after
//! `--timeout`, which the C program does not have.

mod args;
mod connection;
mod game;
mod meeting;
mod memory;
mod pair;
mod port;
mod report;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Access, QpType};

use port::Port;
use report::Result;

/// Sends a message to and fro over an unreliable connection, and tells how fast that is.
#[derive(Debug, Parser)]
#[command(
    name = "uc_pingpong",
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true
)]
struct Args {
    #[command(flatten)]
    options: args::Options,

    #[command(flatten)]
    connection: connection::ConnectionOptions,
}

fn main() -> ExitCode {
    let args = Args::parse();
    report::end("uc_pingpong", run(&args))
}

fn run(args: &Args) -> Result<()> {
    let Args {
        options,
        connection,
    } = args;
    let port = Port::open(options)?;
    pair::run(QpType::Uc, &port, Access::LOCAL_WRITE, options, connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
