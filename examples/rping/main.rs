//! `rping`: an RDMA ping, the counterpart of the program of that name in rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --example rping -- -s -a 10.10.0.1
//! rping -c -a 10.10.0.1 -C 10 -v          # in C, or in Rust as above
//! ```
//!
//! It also is a tour of the crate's low-level interface, where every step of librdmacm and verbs is
//! a call of its own. One ping uses all that an RDMA connection offers:
//!
//! 1. The client *sends* the address, key and length of its text.
//! 2. The server *reads* the text out of the client's memory and sends a go-ahead.
//! 3. The client sends the address, key and length of an empty buffer.
//! 4. The server *writes* the text there and sends a second go-ahead.
//!
//! Read the modules in this order:
//!
//! * `wire`: the messages, and why a peer's numbers are checked before they are used.
//! * `session`: queues, completions and events of one connection, and a wait that cannot hang.
//! * `client`: from an address to a connection, and memory that a peer may read or write.
//! * `server`: listening, and one thread for each client with an event channel of its own.
//!
//! Programs that need less control use [`rdmacm::Connector`] and [`rdmacm::Listener`] instead; the
//! example `hello` shows them.

mod args;
mod client;
mod debug;
mod pattern;
mod server;
mod session;
mod wire;

use std::process::ExitCode;

use args::{Args, Side};

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let args = Args::parse();
    debug::enable(args.debug);
    let outcome = match args.side() {
        Side::Client(options) => client::run(&options),
        Side::Server(options) => server::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rping: {error}");
            ExitCode::FAILURE
        }
    }
}
