//! `rcopy`: copies a file to another machine, the counterpart of the program of that name in
//! rdma-core.
//!
//! It speaks the same protocol and takes the same arguments, so either end can be the C program:
//!
//! ```text
//! cargo run --release --example rcopy                   # the server
//! rcopy file 10.10.0.1:/tmp/copy                        # in C, or in Rust as above
//! ```
//!
//! **A server writes whatever file a client names**, with its own rights and for whoever can reach it,
//! as the C program does.
//!
//! Read the modules in this order:
//!
//! * `wire`: the messages, a header of 16 bytes with what belongs to it.
//! * `client` and `server`: what they say to each other. The client reads the file into registered
//!   memory, out of which the device sends it.
//! * `progress`: how far it is, on a terminal.
//!
//! What is different:
//!
//! * *Files are read and written piece by piece*, not mapped into memory: a file that another program
//!   makes shorter, and a disk that is full, are errors here and signals there.
//! * *A client that fails leaves nothing behind* that the server would refuse the next one for.
//! * *The new file gets the permissions of the old one*, but is never set-user-ID.
//! * *Servers with IPv6 addresses* are written in brackets: `[fd00::1]:/tmp/copy`.

mod args;
mod client;
mod progress;
mod server;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Role};

/// Errors are only shown here, never told apart, so one type holds them all.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = args.role().and_then(|role| match role {
        Role::Client(copy) => client::run(&copy),
        Role::Server { port } => server::run(port),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!();
            eprintln!("rcopy: {error}");
            ExitCode::FAILURE
        }
    }
}
