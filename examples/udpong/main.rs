//! `udpong`: sends datagrams to a server and measures them, the counterpart of the program of that
//! name in rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program, on
//! devices that the C program works on (those of RoCE are none):
//!
//! ```text
//! cargo run --release --example udpong -- -b 10.10.0.1
//! cargo run --release --example udpong -- -s 10.10.0.1
//! ```
//!
//! Each datagram begins with a *message*: what it is for, which client it is of, and a number. The
//! client logs in, and for each measurement says that it starts, sends, and says that it ends. To the
//! last the server answers how many came. A message whose answer does not come is sent again.
//!
//! Read the modules in this order:
//!
//! * `message`: what a datagram says.
//! * `socket`: RDMA or UDP, with calls that wait, that do not, or in an event loop.
//! * `server`, `client`: what each does.
//! * `measurement`: the sizes and counts, and the table of what came out.
//! * `short`: words and numbers in few letters; shared with `rstream`.
//!
//! What is different:
//!
//! * *`-T a`, an event loop,* tries first and waits for the descriptor only when there is nothing to
//!   do, as is the rule for [`rdmacm::RdmaDatagram`]. The C program polls before each call.
//! * *A client gives up* when an answer does not come for 10 seconds. The C program goes on for ever.
//! * *A late answer is skipped.* The C program sends again after each, which a slow machine answers
//!   later and later.
//! * *`-S` is 2032 at most*, 2020 over IPv6: the C program writes longer ones beyond its buffers.

mod args;
mod client;
mod measurement;
mod message;
mod server;
#[path = "../rstream/measured/short.rs"]
mod short;
mod socket;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.is_client() {
        true => client::run(&args),
        false => server::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("udpong: {error}");
            ExitCode::FAILURE
        }
    }
}
