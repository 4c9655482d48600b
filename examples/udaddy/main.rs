//! `udaddy`: two queue pairs exchange datagrams, the counterpart of the program of that name in
//! rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --example udaddy                    # the server
//! udaddy -s 10.10.0.1                           # in C, or in Rust as above
//! ```
//!
//! For datagrams the connection manager makes no connection. It answers one question: to an address
//! and a port, which queue pair? (InfiniBand calls that service id resolution.) The steps are those
//! of a connection all the same, and here they are:
//!
//! 1. The client resolves address and route, makes its queue pair and asks
//!    ([`CmId::connect`](rdmacm::CmId::connect)).
//! 2. The server makes a queue pair for the request, posts receives, and answers with its number
//!    ([`CmId::accept`](rdmacm::CmId::accept)). No event tells it that the answer arrived.
//! 3. The client's event `Established` has all that a send needs: path, number and key.
//! 4. The client sends. The server learns from the first message where it came from, and replies.
//!
//! Nobody disconnects, since nothing is connected: each side ends when it has what it waited for.
//!
//! Read `client` and `server` beside the C program, and `datagram::node` for what both have;
//! `mckey` uses that as well, to send to groups.

mod args;
mod client;
mod datagram;
mod server;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.server {
        Some(server) => client::run(server, &args),
        None => server::run(&args),
    };
    datagram::outcome::report("udaddy", outcome)
}
