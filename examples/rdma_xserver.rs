//! `rdma_xserver`: takes one message into a shared receive queue, as the program of that name in
//! rdma-core does. Either end may be the C program.
//!
//! The C program uses a shared receive queue with XRC only (`-c x`). Here the connection of `-c r`
//! receives from one, to show how that is done; the peer does not notice. The number that tells
//! an XRC client the queue goes with the answer to its request; it is 0 here.

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{AddrInfoQuery, ConnParam, PortSpace, QpAttr, Result, SrqAttr, SyncId, devices};

/// The longest message.
const LENGTH: usize = 16;

/// Takes one message into a shared receive queue.
#[derive(Debug, Parser)]
#[command(
    name = "rdma_xserver",
    disable_version_flag = true,
    args_override_self = true
)]
struct Args {
    /// Port or service to listen on
    #[arg(short, default_value = "7471")]
    port: String,

    /// Kind of connection: r[c] or x[rc]
    #[arg(short, value_name = "KIND", default_value = "r", value_parser = kind)]
    connection: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rc,
    Xrc,
}

/// The first letter counts.
fn kind(text: &str) -> Result<Kind, String> {
    match text.bytes().next().map(|byte| byte.to_ascii_lowercase()) {
        Some(b'r') => Ok(Kind::Rc),
        Some(b'x') => Ok(Kind::Xrc),
        _ => Err("it is r or x".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    println!("rdma_xserver: start");
    let outcome = match args.connection {
        Kind::Rc => serve(&args.port).map_err(|error| error.to_string()),
        Kind::Xrc => Err(xrc_is_missing()),
    };
    match outcome {
        Ok(()) => {
            println!("rdma_xserver: end 0");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rdma_xserver: {error}");
            println!("rdma_xserver: end -1");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: &str) -> Result<()> {
    let found = AddrInfoQuery::new()
        .service(port)
        .passive()
        .port_space(PortSpace::Tcp)
        .resolve()?;
    // Without attributes: the queue pair needs the shared receive queue, which needs the device,
    // and which device it is shows with the request.
    let listener = SyncId::create_ep(&found[0], None)?;
    listener.listen(0)?;
    let mut id = listener.get_request()?;

    id.create_srq(&SrqAttr {
        max_wr: 1,
        max_sge: 1,
    })?;
    id.create_qp(&QpAttr::default().max_send_wr(1))?;
    let inbox = id.alloc(LENGTH)?;
    // Goes to the shared receive queue, as the id has one.
    id.post_recv(1, &[inbox.slice(..)?])?;

    let srq_number: u32 = 0;
    id.accept(&ConnParam::new().private_data(&srq_number.to_be_bytes())?)?;
    id.recv_completion()?.result()?;
    id.disconnect()
}

/// What this machine says when it is asked for XRC.
fn xrc_is_missing() -> String {
    let mut found = match devices() {
        Ok(found) => found.into_iter(),
        Err(error) => return error.to_string(),
    };
    let refusal = found.find_map(|device| device.open().and_then(|open| open.open_xrcd()).err());
    match refusal {
        Some(error) => error.to_string(),
        None => "-c x is for devices with XRC that this crate can drive; there is none".to_owned(),
    }
}
