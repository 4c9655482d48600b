//! One connection: its id, its queues and its message.
//!
//! What to learn here: a queue pair says when work is done through its completion queue, and the
//! number that was given to a request says there which work it was. A wait for it also looks at
//! the event channel, because a peer that dies causes an event and no completion.

use std::time::Duration;

use rdmacm::{Access, Buffer, CmId, Completion, ConnParam, Cq, EventChannel, Qp, QpAttr, Wake};

use crate::args::Load;
use crate::failure::Result;

/// What a request is for; its number is the request's `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Send,
    Receive,
}

/// The queues of a connection. The id owns the queue pair and goes last, whatever is dropped first.
#[derive(Debug)]
pub struct Node {
    id: CmId,
    /// For both directions. The C program has one for each; the requests' numbers tell as much.
    cq: Cq,
    qp: Qp,
    /// What is sent, and where everything that comes is put: nobody looks at it.
    message: Option<Buffer>,
    count: u32,
    done: [u32; 2],
}

impl Node {
    /// Makes the queues of an id that has a device, and posts all receives.
    pub fn new(id: CmId, load: Load) -> Result<Self> {
        let context = id.context()?;
        let pd = context.alloc_pd()?;
        let depth = load.count.max(1);
        let channel = context.completion_channel()?;
        // Each request is posted once, so that the queue has room for all of them.
        let cq = context
            .completion_queue(depth.saturating_mul(2))
            .channel(&channel)
            .build()?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(depth)
                .max_recv_wr(depth)
                .signal_all(true),
        )?;
        let message = match load.count {
            0 => None,
            _ => Some(pd.alloc(load.size, Access::LOCAL_WRITE)?),
        };
        let mut node = Self {
            id,
            cq,
            qp,
            message,
            count: load.count,
            done: [0; 2],
        };
        node.post_receives()?;
        Ok(node)
    }

    fn post_receives(&mut self) -> Result<()> {
        let Some(message) = &self.message else {
            return Ok(());
        };
        let place = [message.slice(..)?];
        for _ in 0..self.count {
            self.qp.recv_half().post(Work::Receive as u64, &place)?;
        }
        Ok(())
    }

    /// Asks the server for the connection. `head` has to stand before what a program says itself:
    /// the IP addresses, where they are not part of the ids.
    pub fn connect(&self, head: &[u8]) -> Result<()> {
        let param = ConnParam::new()
            .responder_resources(1)
            .initiator_depth(1)
            .retry_count(5)
            // The server is not to repeat a message that finds no receive here. There are enough.
            .rnr_retry_count(0)
            .private_data(head)?;
        Ok(self.id.connect(&param)?)
    }

    /// Accepts the client's request.
    pub fn accept(&self) -> Result<()> {
        Ok(self.id.accept(&ConnParam::new())?)
    }

    /// Posts all sends and rings once.
    pub fn post_sends(&mut self) -> Result<()> {
        let Some(message) = &self.message else {
            return Ok(());
        };
        let place = [message.slice(..)?];
        let mut batch = self.qp.send_half().batch();
        for _ in 0..self.count {
            batch.send(Work::Send as u64).from(&place)?;
        }
        Ok(batch.submit()?)
    }

    /// Whether all requests of this kind have completed.
    pub fn is_done(&self, work: Work) -> bool {
        self.done[work as usize] >= self.count
    }

    /// Waits for completions. False when an event came instead, which is still to be read.
    pub fn wait(&mut self, channel: &EventChannel, timeout: Option<Duration>) -> Result<bool> {
        let mut entries = [Completion::default(); 8];
        let completions = match channel.wait_with(&mut self.cq, &mut entries, timeout)? {
            Wake::Completions(completions) => completions,
            Wake::Event => return Ok(false),
        };
        for completion in completions {
            let work = match completion.wr_id() {
                id if id == Work::Send as u64 => Work::Send,
                _ => Work::Receive,
            };
            completion.result()?;
            self.done[work as usize] += 1;
        }
        Ok(true)
    }
}
