//! `rstream`: sends bytes back and forth and measures them, the counterpart of the program of that
//! name in rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --release --example rstream
//! rstream -s 10.10.0.1                 # in C, or in Rust as above
//! ```
//!
//! Without sizes and counts two connections are made, one for the latency and one for the bandwidth
//! of a series of sizes. Server and client must be told the same `-S`, `-C`, `-I` and `-T v`, since
//! neither tells the other.
//!
//! One *measurement*: the client sends 16 bytes and gets 16 back, so that both begin together; then
//! for each iteration all transfers go to the server, and as many come back.
//!
//! Read the modules in this order:
//!
//! * `measured`: options, sizes and counts, the table; shared with `riostream`.
//! * `exchange`: sends and receives, by calls that wait, that do not, or in an event loop.
//! * `stream`: RDMA or TCP, which differ in what an event loop waits for.
//! * `session`: from an address to the end of the last measurement.
//!
//! What is different:
//!
//! * *`-T a`, an event loop,* tries first and waits for the descriptor only when there is nothing to
//!   do, as is the rule for [`rdmacm::RdmaStream`]. The C program polls before each call.
//! * *A listener's streams all have the same settings.* So a server takes `-i` for both series; the C
//!   program sends nothing inline while it measures bandwidth. Clients do as it does.
//! * *A server waits for its client to end.* The C program does not, and then its client often fails
//!   with `-T a`: it takes the end for a loss while the last transfer is still to be read.
//! * *`-T f` makes a thread*, not a process, for each connection that a server accepts.
//! * *`-f gid` is refused*: streams have IP addresses.
//! * It ends with an error when a measurement fails; the C program goes on with the next.

mod args;
mod exchange;
mod measured;
mod session;
mod stream;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match session::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rstream: {error}");
            ExitCode::FAILURE
        }
    }
}
