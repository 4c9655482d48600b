//! `verbs_loopback`: random requests of all kinds between two queue pairs of one process, with every
//! byte checked.
//!
//! ```text
//! cargo run --example verbs_loopback -- --device rxe0 --seed 7 --operations 10000
//! ```
//!
//! It shows whether a device, its driver and this library work together, without a second machine and
//! without the connection manager: the queue pairs are moved through their states by hand, and find
//! each other by the address of the port. (Those of iWARP cannot: the connection manager connects them,
//! over an address of the device.) All that is random follows from the seed, so a failure comes
//! again. The last line begins with `verbs_loopback: OK`, or the exit code is not 0.
//!
//! Everything but the command line is in `loopback`.

mod args;
mod loopback;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Context, Device, devices};

use args::Args;
use loopback::{Report, Result};

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(report) => {
            if !args.quiet {
                print!("{}", report.table());
            }
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("verbs_loopback: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Report> {
    let context = open(args.device.as_deref())?;
    loopback::run(context, &args.options())
}

/// The device of this name, or the first one.
fn open(name: Option<&str>) -> Result<Context> {
    let all = devices()?;
    let is_it = |device: &&Device| name.is_none_or(|name| device.name() == name);
    match (all.iter().find(is_it), name) {
        (Some(device), _) => Ok(device.open()?),
        (None, None) => Err("no RDMA device is here; devinfo tells more".into()),
        (None, Some(name)) => {
            let names: Vec<&str> = all.iter().map(Device::name).collect();
            Err(format!("there is no device {name}; there is {}", names.join(", ")).into())
        }
    }
}
