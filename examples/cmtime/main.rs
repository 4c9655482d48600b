//! `cmtime`: how long the steps of a connection's life take, the counterpart of the program of that
//! name in rdma-core up to version 51 (later ones also talk over TCP).
//!
//! It makes the same connections and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --example cmtime                                    # the server, which says nothing
//! cmtime -s 10.10.0.1 -c 100                                    # in C, or in Rust as above
//! cargo run --release --example cmtime -- -s 10.10.0.1 --side-by-side /usr/bin/cmtime
//! ```
//!
//! The last line runs the C program and this one by turns, each against a server of its own kind on
//! this host, and prints what each took and the ratio.
//!
//! A client takes each step for all connections before it takes the next, so that the kernel works
//! on many at a time. No data is sent.
//!
//! Beside the C program: `client` is `run_client` and `cma_handler`, `step` and `timing` are
//! `step_str`, `start_perf`, `show_perf` and what they keep, `server` is `run_server` with its two
//! threads, `queues` is the `rdma_create_qp` that both sides call.
//!
//! What is different:
//!
//! * *Completion queues.* The C program names none. librdmacm then makes a completion queue with a
//!   channel for each direction of the first connection and writes them into the program's
//!   `ibv_qp_init_attr`, which the program uses for all further connections as well. So there, too,
//!   all connections share completion queues, but those of the first. Here they share one on
//!   purpose. With `--own-cqs` each connection gets queues and channels, as librdmacm makes them.
//! * *The queue pair goes before the disconnect*, not after it: nothing is under way that would
//!   have to be flushed, so the move to the error state is spared. The peer sees no difference.
//! * *One thread* does all the work, on both sides.
//! * It ends with an error when a connection failed, after the table.

mod args;
mod client;
mod cpu;
mod progress;
mod queues;
mod server;
mod side_by_side;
mod step;
mod timing;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match (&args.server, &args.side_by_side) {
        (None, _) => server::run(&args),
        (Some(server), None) => client::run(&args, server),
        (Some(server), Some(program)) => side_by_side::run(&args, server, program),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cmtime: {error}");
            ExitCode::FAILURE
        }
    }
}
