//! `rdma_client`: sends one message of 16 bytes and takes one, as the program of that name in
//! rdma-core does. Either end may be the C program.
//!
//! The steps are those of the C program, each a call that waits. What it frees in the end goes
//! here when the values go, in the right order.

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{AddrInfoQuery, ConnParam, PortSpace, QpAttr, Result, SendFlags, SyncId};

/// Bytes of a message.
const LENGTH: usize = 16;

/// Sends one message and takes one.
#[derive(Debug, Parser)]
#[command(
    name = "rdma_client",
    disable_version_flag = true,
    args_override_self = true
)]
struct Args {
    /// Address or name to connect to; the default leads to no RDMA device
    #[arg(short, value_name = "ADDR", default_value = "127.0.0.1")]
    server: String,

    /// Port or service to connect to
    #[arg(short, default_value = "7471")]
    port: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    println!("rdma_client: start");
    match run(&args) {
        Ok(()) => {
            println!("rdma_client: end 0");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rdma_client: {error}");
            println!("rdma_client: end -1");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let found = AddrInfoQuery::new()
        .node(&args.server)
        .service(&args.port)
        .port_space(PortSpace::Tcp)
        .resolve()?;
    let attr = QpAttr::default()
        .max_send_wr(1)
        .max_recv_wr(1)
        .max_send_sge(1)
        .max_recv_sge(1)
        .max_inline_data(LENGTH as u32)
        .signal_all(true);
    // Resolves address and route as well.
    let mut id = SyncId::create_ep(&found[0], Some(attr))?;

    // The answer may come as soon as the connection is there, so the receive is posted first.
    let inbox = id.alloc(LENGTH)?;
    id.post_recv(1, &[inbox.slice(..)?])?;
    id.connect(&ConnParam::new())?;

    // An inline message is copied when it is posted and needs no registered memory.
    let message = [0; LENGTH];
    id.post_send_inline(2, &message, SendFlags::empty())?;
    id.send_completion()?.result()?;
    id.recv_completion()?.result()?;
    id.disconnect()
}
