//! `rc_pingpong`: a message goes to and fro over a reliable connection, the counterpart of the
//! program `ibv_rc_pingpong` in rdma-core.
//!
//! It speaks the same protocol and takes the same options, so either end can be the C program:
//!
//! ```text
//! cargo run --example rc_pingpong -- -g 1                  # the server
//! ibv_rc_pingpong -g 1 10.10.0.1                           # in C, or in Rust as above
//! ```
//!
//! These programs use verbs alone. No connection manager brings the queue pairs together: the two
//! sides tell each other over TCP where theirs are. On Ethernet `-g` chooses the GID to be found by,
//! which is the IP address of a network interface (`devinfo -v` lists them).
//!
//! There are four, which share what is not about their kind of queue pair:
//!
//! * `rc_pingpong` and `uc_pingpong`: one connection, reliable or not (`pair`).
//! * `srq_pingpong`: many reliable connections, whose receives come from a shared queue.
//! * `ud_pingpong`: datagrams.
//!
//! Read `connection` for the states of a queue pair, `game` for the exchange of messages, `meeting`
//! and `wire` for how the two sides meet.

mod args;
mod connection;
mod game;
mod meeting;
mod memory;
mod on_demand;
mod pair;
mod port;
mod report;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{OdpOperations, QpType};

use on_demand::OnDemandOption;
use port::Port;
use report::Result;

/// Sends a message to and fro over a reliable connection, and tells how fast that is.
#[derive(Debug, Parser)]
#[command(
    name = "rc_pingpong",
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true
)]
struct Args {
    #[command(flatten)]
    options: args::Options,

    #[command(flatten)]
    connection: connection::ConnectionOptions,

    #[command(flatten)]
    on_demand: OnDemandOption,

    /// All memory of the program on demand: refused, this crate registers it piece by piece
    #[arg(short = 'O', long)]
    iodp: bool,

    /// Have memory on demand fetched beforehand: refused, this crate does not ask for it
    #[arg(short = 'P', long)]
    prefetch: bool,

    /// Completions with the device's time: refused, those of this crate have none
    #[arg(short, long)]
    ts: bool,

    /// Memory of the device: refused, this crate allocates none
    #[arg(short = 'j', long)]
    dm: bool,

    /// Build the requests in the queue; this crate always does
    #[arg(short = 'N', long = "new_send")]
    new_send: bool,

    /// Unprotected memory on confidential guests: refused, this crate has no parent domains
    #[arg(short = 'U', long)]
    allow_cc_unprotected: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    report::end("rc_pingpong", run(&args))
}

fn run(args: &Args) -> Result<()> {
    args.refuse_what_is_not_there()?;
    let Args {
        options,
        connection,
        ..
    } = args;
    let port = Port::open(options)?;
    let operations = OdpOperations::SEND | OdpOperations::RECV;
    let access = args.on_demand.access(port.context(), operations)?;
    pair::run(QpType::Rc, &port, access, options, connection)
}

impl Args {
    fn refuse_what_is_not_there(&self) -> Result<()> {
        let refusals = [
            (
                self.iodp,
                "-O",
                "this crate registers memory piece by piece, never all of it at once",
            ),
            (
                self.prefetch,
                "-P",
                "this crate does not have memory fetched beforehand (ibv_advise_mr)",
            ),
            (
                self.ts,
                "-t",
                "the completions of this crate do not tell the device's time",
            ),
            (
                self.dm,
                "-j",
                "this crate allocates no memory of the device (ibv_alloc_dm)",
            ),
            (
                self.allow_cc_unprotected,
                "-U",
                "this crate has no parent domains (ibv_alloc_parent_domain)",
            ),
        ];
        match refusals.into_iter().find(|(asked, ..)| *asked) {
            Some((_, option, why)) => Err(format!("{option}: {why}").into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("rc_pingpong").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_the_crate_does_not_have_is_refused_with_the_option() {
        for option in ["-O", "-P", "-t", "-j", "-U"] {
            let args = parse(option).expect("an option of the C program");
            let error = args.refuse_what_is_not_there().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{option}: ")), "{error}");
        }
        for line in ["", "-o", "-N", "--new_send -m 2048 -ec 10.10.0.1"] {
            let args = parse(line).expect("options of the C program");
            args.refuse_what_is_not_there().expect(line);
        }
        for long in [
            "--odp",
            "--iodp",
            "--prefetch",
            "--ts",
            "--dm",
            "--allow-cc-unprotected",
        ] {
            assert!(parse(long).is_some(), "{long}");
        }
    }
}
