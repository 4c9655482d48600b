//! The queue pairs of the connections and the completion queues behind them.
//!
//! What to learn here: the id owns its queue pair, and the queue pair keeps its completion queues.
//! The handles may go at once when nobody is going to post or poll.

use rdmacm::{CmId, Context, Cq, QpAttr, Result};

/// Where queue pairs get their completion queues.
pub struct Queues {
    /// Make them for each connection.
    own: bool,
    /// Otherwise one for each device. Nothing is ever posted, so that the smallest will do; a
    /// program with traffic needs room for all that can be outstanding on all connections.
    shared: Vec<Cq>,
}

impl Queues {
    pub fn new(own: bool) -> Self {
        Self {
            own,
            shared: Vec::new(),
        }
    }

    /// Makes the id's queue pair.
    pub fn create_qp(&mut self, id: &CmId) -> Result<()> {
        let context = id.context()?;
        if self.own {
            let (send, recv) = (own_queue(&context)?, own_queue(&context)?);
            return create(id, &send, &recv);
        }
        let shared = self.shared_queue(&context)?;
        create(id, shared, shared)
    }

    fn shared_queue(&mut self, context: &Context) -> Result<&Cq> {
        let known = self
            .shared
            .iter()
            .position(|cq| cq.context().same_as(context));
        match known {
            Some(index) => Ok(&self.shared[index]),
            None => {
                self.shared.push(context.completion_queue(1).build()?);
                Ok(&self.shared[self.shared.len() - 1])
            }
        }
    }
}

/// What librdmacm makes for a direction without a completion queue.
fn own_queue(context: &Context) -> Result<Cq> {
    let channel = context.completion_channel()?;
    context.completion_queue(1).channel(&channel).build()
}

fn create(id: &CmId, send: &Cq, recv: &Cq) -> Result<()> {
    let attr = QpAttr::default()
        .send_cq(send)
        .recv_cq(recv)
        .max_send_wr(1)
        .max_recv_wr(1);
    id.create_qp(&attr).map(drop)
}
