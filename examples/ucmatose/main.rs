//! `ucmatose`: connects any number of times and sends messages both ways, the counterpart of the
//! program of that name in rdma-core. Its messages call it `cmatose`, as there.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --example ucmatose                                   # the server
//! ucmatose -s 10.10.0.1                                          # in C, or in Rust as above
//! ```
//!
//! Both ends are told the same number of connections (`-c`), of messages (`-C`) and the same size
//! (`-S`). What goes over the wire:
//!
//! 1. The client makes its connections. Both sides post all receives before the handshake, because
//!    the client's queue pair does not repeat a message that finds none.
//! 2. The server sends its messages on all connections. What is in them matters to nobody.
//! 3. The client takes them, then sends as many back.
//! 4. When the server has them all, it disconnects.
//!
//! Beside the C program: `node` is `init_node`, `post_recvs`, `post_sends`; `connections` is
//! `poll_cqs`, `migrate_channel`, `disconnect_events`; `client` and `server` are `run_client` and
//! `run_server` with the handlers of their events.
//!
//! What is different: a peer that dies ends the program instead of keeping it in a loop; requests
//! beyond `-c` are rejected without ending the server; completions are waited for asleep.

mod args;
mod client;
mod connections;
mod failure;
mod node;
mod server;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::Args;
use failure::{Failure, Result};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.server {
        Some(_) => client::run(&args),
        None => server::run(&args),
    };
    match finish(&outcome) {
        Ok(()) if outcome.is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn finish(outcome: &Result<()>) -> io::Result<()> {
    if let Err(failure) = outcome {
        eprintln!("cmatose: {failure}");
    }
    say("test complete")?;
    let status = outcome.as_ref().err().map_or(0, Failure::status);
    say(format_args!("return status {status}"))
}

/// Prints a line; scripts wait for some of them.
fn say(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
