//! `ud_pingpong`: a datagram goes to and fro, the counterpart of the program `ibv_ud_pingpong` in
//! rdma-core.
//!
//! ```text
//! cargo run --example ud_pingpong -- -g 1                  # the server
//! ibv_ud_pingpong -g 1 10.10.0.1                           # in C, or in Rust as above
//! ```
//!
//! What to learn here, beside `rc_pingpong`, which is the one to read first:
//!
//! * The queue pair is not connected. It has a queue key, and hears everybody who names it.
//! * The way to the peer is an address handle, and each request says where it goes.
//! * A message is one packet, and comes with 40 bytes of header in front of it.
//!
//! A datagram that is lost stays lost, and the game ends: both sides give up after `--timeout`,
//! which the C program does not have.

mod args;
mod game;
mod meeting;
mod memory;
mod port;
mod report;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{
    Access, AddressHandle, Destination, GRH_LENGTH, Pd, Qp, QpAttr, QpModify, QpState, QpType,
    Segment,
};

use args::Options;
use game::{Players, play};
use memory::Memory;
use port::Port;
use report::Result;
use wire::Address;

/// Bytes of a message unless told otherwise.
const DEFAULT_SIZE: u32 = 1024;

/// What both sides agree on, as the C program does.
const QUEUE_KEY: u32 = 0x1111_1111;

/// As many routers as the C program passes.
const HOP_LIMIT: u8 = 64;

/// Sends a datagram to and fro, and tells how fast that is.
#[derive(Debug, Parser)]
#[command(
    name = "ud_pingpong",
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true
)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let args = Args::parse();
    report::end("ud_pingpong", run(&args.options))
}

fn run(options: &Options) -> Result<()> {
    let port = Port::open(options)?;
    let size = options.size.unwrap_or(DEFAULT_SIZE);
    let most = port.attr().active_mtu.bytes();
    if size > most {
        return Err(
            format!("{size} bytes are no datagram: a packet has {most} on this port").into(),
        );
    }
    let pd = port.context().alloc_pd()?;
    let memory = Memory::new(&pd, GRH_LENGTH, size, Access::LOCAL_WRITE)?;
    // All receives may be completed, and the one send.
    let cq = port.completion_queue(options.depth.saturating_add(1), options.sleep)?;
    let qp = pd.create_qp(
        &QpAttr::new(&pd)
            .qp_type(QpType::Ud)
            .send_cq(&cq)
            .recv_cq(&cq)
            .max_send_wr(1)
            .max_recv_wr(options.depth),
    )?;
    let change = QpModify::to(QpState::Init)
        .port(port.number())
        .pkey_index(0)
        .qkey(QUEUE_KEY);
    qp.modify(&change)?;
    let player = Player {
        qp,
        port: &port,
        pd,
        peer: None,
    };
    play(options, &port, cq, memory, player)
}

struct Player<'a> {
    qp: Qp,
    port: &'a Port,
    pd: Pd,
    /// The way to the peer and the number of its queue pair, once they are known.
    peer: Option<(AddressHandle, u32)>,
}

impl Players for Player<'_> {
    const BEFORE_GID: &'static str = ":";

    fn numbers(&self) -> Vec<u32> {
        vec![self.qp.number()]
    }

    fn connect(&mut self, own: &[Address], peers: &[Address]) -> Result<()> {
        for (own, peer) in own.iter().zip(peers) {
            self.qp.modify(&QpModify::to(QpState::Rtr))?;
            self.qp
                .modify(&QpModify::to(QpState::Rts).send_psn(own.psn))?;
            let path = self.port.path_to(peer, HOP_LIMIT)?;
            self.peer = Some((self.pd.address_handle(&path)?, peer.qp_num));
        }
        Ok(())
    }

    fn post_receive(&mut self, wr_id: u64, inbox: Segment) -> Result<()> {
        Ok(self.qp.recv_half().post(wr_id, &[inbox])?)
    }

    fn post_send(&mut self, wr_id: u64, _: usize, memory: &Memory) -> Result<()> {
        let (handle, qp_num) = self.peer.as_ref().ok_or("there is no peer yet")?;
        let to = Destination {
            handle,
            qp_num: *qp_num,
            qkey: QUEUE_KEY,
        };
        let max_inline = self.qp.capabilities().max_inline_data;
        let mut batch = self.qp.send_half().batch();
        memory.attach(batch.send_datagram(wr_id, to).signaled(), max_inline)?;
        Ok(batch.submit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
