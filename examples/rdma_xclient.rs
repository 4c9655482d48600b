//! `rdma_xclient`: sends one message of 16 bytes, as the program of that name in rdma-core does.
//! Either end may be the C program.

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{AddrInfoQuery, ConnParam, PortSpace, QpAttr, Result, SendFlags, SyncId, devices};

/// Bytes of the message.
const LENGTH: usize = 16;

/// Sends one message.
#[derive(Debug, Parser)]
#[command(
    name = "rdma_xclient",
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
    println!("rdma_xclient: start");
    let outcome = match args.connection {
        Kind::Rc => send(&args).map_err(|error| error.to_string()),
        Kind::Xrc => Err(xrc_is_missing()),
    };
    match outcome {
        Ok(()) => {
            println!("rdma_xclient: end 0");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rdma_xclient: {error}");
            println!("rdma_xclient: end -1");
            ExitCode::FAILURE
        }
    }
}

fn send(args: &Args) -> Result<()> {
    let found = AddrInfoQuery::new()
        .node(&args.server)
        .service(&args.port)
        .port_space(PortSpace::Tcp)
        .resolve()?;
    let attr = QpAttr::default()
        .max_send_wr(1)
        .max_recv_wr(1)
        .max_inline_data(LENGTH as u32)
        .signal_all(true);
    // Resolves address and route as well.
    let mut id = SyncId::create_ep(&found[0], Some(attr))?;
    id.connect(&ConnParam::new())?;

    // An inline message is copied when it is posted and needs no registered memory.
    let message = [0; LENGTH];
    id.post_send_inline(1, &message, SendFlags::empty())?;
    id.send_completion()?.result()?;
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
