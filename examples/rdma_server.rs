//! `rdma_server`: takes one message of 16 bytes and sends one back, as the program of that name in
//! rdma-core does. Either end may be the C program.
//!
//! The steps are those of the C program, each a call that waits. What it frees in the end goes
//! here when the values go, in the right order.

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{AddrInfoQuery, ConnParam, PortSpace, QpAttr, Result, SendFlags, SyncId};

/// Bytes of a message.
const LENGTH: usize = 16;

/// Takes one message and sends one back.
#[derive(Debug, Parser)]
#[command(
    name = "rdma_server",
    disable_version_flag = true,
    args_override_self = true
)]
struct Args {
    /// Address or name to listen on
    #[arg(short, value_name = "ADDR", default_value = "0.0.0.0")]
    server: String,

    /// Port or service to listen on
    #[arg(short, default_value = "7471")]
    port: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    println!("rdma_server: start");
    match run(&args) {
        Ok(()) => {
            println!("rdma_server: end 0");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rdma_server: {error}");
            println!("rdma_server: end -1");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let found = AddrInfoQuery::new()
        .node(&args.server)
        .service(&args.port)
        .passive()
        .port_space(PortSpace::Tcp)
        .resolve()?;
    // The queue pairs of the connections are made of this.
    let attr = QpAttr::default()
        .max_send_wr(1)
        .max_recv_wr(1)
        .max_send_sge(1)
        .max_recv_sge(1)
        .max_inline_data(LENGTH as u32)
        .signal_all(true);
    let listener = SyncId::create_ep(&found[0], Some(attr))?;
    listener.listen(0)?;
    let mut id = listener.get_request()?;

    let inbox = id.alloc(LENGTH)?;
    id.post_recv(1, &[inbox.slice(..)?])?;
    id.accept(&ConnParam::new())?;
    id.recv_completion()?.result()?;

    // An inline message is copied when it is posted and needs no registered memory.
    let answer = [0; LENGTH];
    id.post_send_inline(2, &answer, SendFlags::empty())?;
    id.send_completion()?.result()?;
    id.disconnect()
}
