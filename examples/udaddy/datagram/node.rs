//! A node: an id with what it needs to send and receive datagrams.
//!
//! What to learn here:
//!
//! * One queue pair talks to everybody. Whom a datagram goes to is said with each send
//!   ([`Destination`]): an address handle, which is the way to a port; the number of a queue pair
//!   there, or that of a group; and the key that this queue pair expects.
//! * A receive needs room for [`GRH_LENGTH`] bytes more than the message has: the header that tells
//!   where it came from.
//! * A datagram fits one packet, whose size depends on the network ([`Load::check`]).
//! * Nobody tells that a datagram was lost. A wait for one needs a time limit.

use std::time::Duration;

use rdmacm::{
    Access, AddressHandle, Buffer, CmId, Completion, Cq, DatagramPeer, Destination, ErrorKind,
    Event, EventChannel, GRH_LENGTH, Pd, Qp, QpAttr, Wake,
};

use super::outcome::{Failure, Result};

/// How many messages each node sends and receives, and how long they are.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub count: u32,
    pub size: usize,
}

/// An id, its queues and its buffer. They can be dropped in any order.
pub struct Node {
    pub id: CmId,
    pub pd: Pd,
    pub qp: Qp,
    cq: Cq,
    /// The header of a received message, then the message. All receives have this one place, and
    /// all sends are taken from it: what the messages say is of no interest here.
    pub buffer: Buffer,
    load: Load,
    peer: Option<Peer>,
}

/// Whom a node sends to.
pub struct Peer {
    pub handle: AddressHandle,
    pub qp_num: u32,
    pub qkey: u32,
}

impl Load {
    /// Refuses messages that do not fit a packet of the id's port.
    fn check(&self, id: &CmId) -> Result<()> {
        let mtu = id.context()?.port(id.port()?)?.active_mtu.bytes();
        if self.count == 0 || self.size <= mtu as usize {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "message_size {} is larger than active mtu {mtu}",
            self.size
        )))
    }
}

impl Node {
    /// Makes what a node needs, on an id that has a device. The queue pair can send and receive at
    /// once: it has no peer to be connected with.
    pub fn new(id: CmId, load: Load) -> Result<Self> {
        load.check(&id)?;
        let context = id.context()?;
        let pd = context.alloc_pd()?;
        let completions = context.completion_channel()?;
        let depth = load.count.max(1);
        // Room for all receives and all sends.
        let cq = context
            .completion_queue(2 * depth)
            .channel(&completions)
            .build()?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(depth)
                .max_recv_wr(depth),
        )?;
        let buffer = pd.alloc(GRH_LENGTH + load.size, Access::LOCAL_WRITE)?;
        Ok(Self {
            id,
            pd,
            qp,
            cq,
            buffer,
            load,
            peer: None,
        })
    }

    /// Posts a receive for each message. What comes while none is posted is lost, so this comes
    /// before anybody is told of the queue pair.
    pub fn post_receives(&mut self) -> Result<()> {
        let place = self.buffer.slice(..)?;
        for message in 0..self.load.count {
            self.qp.recv_half().post(message.into(), &[place])?;
        }
        Ok(())
    }

    /// Says whom to send to, as an event has told it.
    pub fn send_to(&mut self, peer: &DatagramPeer) -> Result<()> {
        self.set_peer(Peer {
            handle: self.pd.address_handle(&peer.path)?,
            qp_num: peer.qp_num,
            qkey: peer.qkey,
        });
        Ok(())
    }

    /// Says whom to send to.
    pub fn set_peer(&mut self, peer: Peer) {
        self.peer = Some(peer);
    }

    /// Starts all sends with one doorbell, and asks for the completions of the last `reported` of
    /// them. Each message carries the number of this queue pair, for those who want to answer.
    pub fn post_sends(&mut self, reported: u32) -> Result<()> {
        let peer = self.peer.as_ref().ok_or("nobody to send to is known")?;
        let to = Destination {
            handle: &peer.handle,
            qp_num: peer.qp_num,
            qkey: peer.qkey,
        };
        let message = self.buffer.slice(GRH_LENGTH..)?;
        let own_number = self.qp.number();
        let mut batch = self.qp.send_half().batch();
        for left in (0..self.load.count).rev() {
            let request = batch.send_datagram_immediate(left.into(), to, own_number);
            let request = match left < reported {
                true => request.signaled(),
                false => request,
            };
            request.from(&[message])?;
        }
        Ok(batch.submit()?)
    }

    /// Waits until something that was posted has completed, and hands events that come meanwhile to
    /// `on_event`.
    pub fn next_completion(
        &mut self,
        events: &EventChannel,
        patience: Option<Duration>,
        on_event: impl Fn(Event) -> Result<()>,
    ) -> Result<Completion> {
        let mut entry = [Completion::default()];
        loop {
            match events.wait_with(&mut self.cq, &mut entry, patience) {
                Ok(Wake::Completions(_)) => break,
                Ok(Wake::Event) => {
                    if let Some(event) = events.try_next_event()? {
                        on_event(event)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err("no more messages come; some may be lost".into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        entry[0].result()?;
        Ok(entry[0])
    }
}
