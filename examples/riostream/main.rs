//! `riostream`: writes into the peer's memory and back and measures it, the counterpart of the program
//! of that name in rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --release --example riostream
//! riostream -s 10.10.0.1               # in C, or in Rust as above
//! ```
//!
//! As `rstream` it makes one measurement, or a series for latency and one for bandwidth, and both sides
//! must be told the same. In a *measurement* each side maps memory for the other, and they exchange 16
//! bytes over the stream. Then for each iteration the client writes all transfers to the same place,
//! and so does the server. The last byte of the last transfer is a *marker*, which counts: the other
//! side looks at its memory until it is there. Nothing else tells that something came.
//!
//! `exchange` has the protocol, `session` the way from an address to the end of the last measurement.
//! What `rstream` has as well is in `../rstream/measured`.
//!
//! What is different:
//!
//! * *Whoever looks for a marker* now and then asks the stream whether the peer is still there, and
//!   leaves the processor to others; the C program does neither.
//! * *A listener's streams all have the same settings.* So a server takes `-i` for both series.
//! * *A client takes `-b`* as the address to connect from.
//! * *`-f gid` is refused*: streams have IP addresses.
//! * It ends with an error when a measurement fails; the C program goes on with the next.

mod args;
mod exchange;
#[path = "../rstream/measured/mod.rs"]
mod measured;
mod session;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match session::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("riostream: {error}");
            ExitCode::FAILURE
        }
    }
}
