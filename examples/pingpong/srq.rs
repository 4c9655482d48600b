//! `srq_pingpong`: messages go to and fro over many reliable connections whose receives come from
//! one shared queue, the counterpart of the program `ibv_srq_pingpong` in rdma-core.
//!
//! ```text
//! cargo run --example srq_pingpong -- -g 1                 # the server
//! ibv_srq_pingpong -g 1 10.10.0.1                          # in C, or in Rust as above
//! ```
//!
//! What to learn here, beside `rc_pingpong`, which is the one to read first:
//!
//! * Receives are posted to the shared queue, whichever connection they are for, and a completion
//!   names the queue pair that used one up.
//! * There have to be as many as all peers can send without an answer: here one for each.

mod args;
mod connection;
mod game;
mod meeting;
mod memory;
mod on_demand;
mod port;
mod report;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Mtu, OdpOperations, Pd, Qp, QpAttr, Result as CrateResult, Segment, Srq, SrqAttr};

use args::{Options, number};
use connection::ConnectionOptions;
use game::{Players, play};
use memory::Memory;
use on_demand::OnDemandOption;
use port::Port;
use report::Result;
use wire::Address;

/// Bytes of a message unless told otherwise.
const DEFAULT_SIZE: u32 = 4096;

/// The addresses that the C program sends and expects, however many queue pairs it has.
const ADDRESSES: usize = 256;

/// Sends messages to and fro over connections that share a receive queue, and tells how fast that is.
#[derive(Debug, Parser)]
#[command(
    name = "srq_pingpong",
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true
)]
struct Args {
    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    connection: ConnectionOptions,

    /// Queue pairs, on both sides the same number
    #[arg(short = 'q', long = "num-qp", value_name = "NUMBER", default_value = "16", value_parser = number::<u32>(1..=ADDRESSES as u32 - 1))]
    queue_pairs: u32,

    #[command(flatten)]
    on_demand: OnDemandOption,
}

fn main() -> ExitCode {
    let args = Args::parse();
    report::end("srq_pingpong", run(&args))
}

fn run(args: &Args) -> Result<()> {
    args.check()?;
    let (options, count) = (&args.options, args.queue_pairs);
    let port = Port::open(options)?;
    let pd = port.context().alloc_pd()?;
    let operations = OdpOperations::SEND | OdpOperations::SRQ_RECV;
    let access = args.on_demand.access(port.context(), operations)?;
    let memory = Memory::new(&pd, 0, options.size.unwrap_or(DEFAULT_SIZE), access)?;
    // All receives may be completed, and a send of each queue pair.
    let cq = port.completion_queue(options.depth.saturating_add(count), options.sleep)?;
    let srq = pd.create_srq(&SrqAttr {
        max_wr: options.depth,
        max_sge: 1,
    })?;
    let attr = QpAttr::new(&pd)
        .send_cq(&cq)
        .recv_cq(&cq)
        .srq(&srq)
        .max_send_wr(1);
    let qps = create(&pd, &attr, count)?;
    for qp in &qps {
        connection::prepare(qp, &port)?;
    }
    let players = Sharing {
        qps,
        srq,
        port: &port,
        mtu: args.connection.mtu,
    };
    play(options, &port, cq, memory, players)
}

fn create(pd: &Pd, attr: &QpAttr<'_>, count: u32) -> CrateResult<Vec<Qp>> {
    (0..count).map(|_| pd.create_qp(attr)).collect()
}

impl Args {
    fn check(&self) -> Result<()> {
        let (receives, count) = (self.options.depth, self.queue_pairs);
        if count > receives {
            return Err(format!(
                "{receives} receives (-r) are too few for {count} queue pairs (-q): each needs one"
            )
            .into());
        }
        Ok(())
    }
}

struct Sharing<'a> {
    qps: Vec<Qp>,
    srq: Srq,
    port: &'a Port,
    mtu: Mtu,
}

impl Players for Sharing<'_> {
    const ADDRESSES: usize = ADDRESSES;

    fn numbers(&self) -> Vec<u32> {
        self.qps.iter().map(Qp::number).collect()
    }

    fn connect(&mut self, own: &[Address], peers: &[Address]) -> Result<()> {
        for ((qp, own), peer) in self.qps.iter().zip(own).zip(peers) {
            connection::connect(qp, self.port, self.mtu, own, peer)?;
        }
        Ok(())
    }

    fn post_receive(&mut self, wr_id: u64, inbox: Segment) -> Result<()> {
        Ok(self.srq.post(wr_id, &[inbox])?)
    }

    fn post_send(&mut self, wr_id: u64, player: usize, memory: &Memory) -> Result<()> {
        let qp = &mut self.qps[player];
        let max_inline = qp.capabilities().max_inline_data;
        let mut batch = qp.send_half().batch();
        memory.attach(batch.send(wr_id).signaled(), max_inline)?;
        Ok(batch.submit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("srq_pingpong").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn each_queue_pair_needs_a_receive() {
        assert_eq!(parse("").expect("a server").queue_pairs, 16);
        assert!(parse("-q 4 -r 4").unwrap().check().is_ok());
        let error = parse("-q 5 -r 4").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("(-r)") && error.contains("(-q)"), "{error}");
    }

    #[test]
    fn there_are_1_to_255_queue_pairs() {
        assert!(parse("-q 255").is_some());
        assert!(parse("-q 0").is_none() && parse("--num-qp=256").is_none());
    }
}
