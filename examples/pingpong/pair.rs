//! One connected queue pair on each side, for `rc_pingpong` and `uc_pingpong`.

use rdmacm::{Access, Mtu, Qp, QpAttr, QpType, Segment};

use crate::args::Options;
use crate::connection::{self, ConnectionOptions};
use crate::game::{Players, play};
use crate::memory::Memory;
use crate::port::Port;
use crate::report::Result;
use crate::wire::Address;

/// Bytes of a message unless told otherwise.
const DEFAULT_SIZE: u32 = 4096;

/// Plays with a queue pair of this type, and a message in memory with this access.
pub fn run(
    qp_type: QpType,
    port: &Port,
    access: Access,
    options: &Options,
    connection: &ConnectionOptions,
) -> Result<()> {
    let pd = port.context().alloc_pd()?;
    let memory = Memory::new(&pd, 0, options.size.unwrap_or(DEFAULT_SIZE), access)?;
    // All receives may be completed, and the one send.
    let cq = port.completion_queue(options.depth.saturating_add(1), options.sleep)?;
    let qp = pd.create_qp(
        &QpAttr::new(&pd)
            .qp_type(qp_type)
            .send_cq(&cq)
            .recv_cq(&cq)
            .max_send_wr(1)
            .max_recv_wr(options.depth),
    )?;
    connection::prepare(&qp, port)?;
    let player = Pair {
        qp,
        port,
        mtu: connection.mtu,
    };
    play(options, port, cq, memory, player)
}

struct Pair<'a> {
    qp: Qp,
    port: &'a Port,
    mtu: Mtu,
}

impl Players for Pair<'_> {
    fn numbers(&self) -> Vec<u32> {
        vec![self.qp.number()]
    }

    fn connect(&mut self, own: &[Address], peers: &[Address]) -> Result<()> {
        for (own, peer) in own.iter().zip(peers) {
            connection::connect(&self.qp, self.port, self.mtu, own, peer)?;
        }
        Ok(())
    }

    fn post_receive(&mut self, wr_id: u64, inbox: Segment) -> Result<()> {
        Ok(self.qp.recv_half().post(wr_id, &[inbox])?)
    }

    fn post_send(&mut self, wr_id: u64, _: usize, memory: &Memory) -> Result<()> {
        let max_inline = self.qp.capabilities().max_inline_data;
        let mut batch = self.qp.send_half().batch();
        memory.attach(batch.send(wr_id).signaled(), max_inline)?;
        Ok(batch.submit()?)
    }
}
