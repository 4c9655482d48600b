//! `devinfo`: the RDMA devices of this machine, and what this crate can do with each.
//!
//! ```text
//! cargo run --example devinfo
//! cargo run --example devinfo -- -d rxe0 -v
//! ```
//!
//! It shows how devices are listed, opened and asked, and how a program finds out what works on
//! the device at hand: `probe` makes one of each object and takes it back.

mod probe;
mod report;
mod system;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Device, ErrorKind, EventChannel, Result, devices};

/// Shows the RDMA devices and what works on them.
#[derive(Debug, Parser)]
#[command(name = "devinfo", disable_version_flag = true)]
struct Args {
    /// Show this device only
    #[arg(short, value_name = "DEVICE")]
    device: Option<String>,

    /// Show all limits and the whole GID tables
    #[arg(short)]
    verbose: bool,
}

const NO_DEVICE: &str = "\
no RDMA device is here.

* Hardware needs its driver: lspci shows the card, modprobe loads the module (mlx5_ib for ConnectX).
* Without hardware any network interface will do:
      modprobe rdma_rxe
      rdma link add rxe0 type rxe netdev eth0
  (rdma is part of iproute2.)
* In a container the host passes in /dev/infiniband.";

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("devinfo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    println!("connection manager   {}", connection_manager());
    let all = devices()?;
    if all.is_empty() {
        println!("{NO_DEVICE}");
        return Ok(match args.device {
            Some(_) => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        });
    }
    let is_wanted = |device: &&Device| match &args.device {
        Some(name) => device.name() == name,
        None => true,
    };
    let wanted: Vec<&Device> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = all.iter().map(Device::name).collect();
        eprintln!(
            "devinfo: there is no such device; there is {}",
            names.join(", ")
        );
        return Ok(ExitCode::FAILURE);
    }
    for device in wanted {
        println!();
        report::device(device, args.verbose);
    }
    Ok(ExitCode::SUCCESS)
}

fn connection_manager() -> String {
    let version = system::connection_manager_abi();
    match EventChannel::open() {
        Ok(_) => format!("works, {version}"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("{error} (run this as root, or change the mode of the node)")
        }
        Err(error) => error.to_string(),
    }
}
