//! The queue pair of a local address, with its memory.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::super::queues::{RECEIVE, watched};
use super::super::settings::StreamSettings;
use super::wire::{LONGEST_HEADER, QKEY, SLOT, Sender};
use crate::cm::{CmId, EventChannel, PortSpace};
use crate::error::{Error, Result};
use crate::fastpath::{Completion, GRH_LENGTH, PostError};
use crate::sys::Readiness;
use crate::verbs::{
    Access, AddressHandle, Buffer, Cq, Destination, Pd, QpAttr, RecvHalf, SendHalf, completion_room,
};

/// The largest packet that any device has. Receives have room for it, whatever the protocol says: one
/// that was too short would put the queue pair out of action.
const LONGEST_PACKET: usize = 4096;

/// Bytes of a receive.
const RECEIVE_SLOT: usize = GRH_LENGTH + LONGEST_PACKET;

/// Requests up to this length are copied into the queue, where the device takes as much.
const MOST_INLINE: usize = 256;

/// The queue pair that datagrams of one local address go through.
#[derive(Debug)]
pub(super) struct Interface {
    /// The local address, with the port of the UDP socket.
    local: SocketAddr,
    id: CmId,
    pd: Pd,
    cq: Cq,
    send: SendHalf,
    recv: RecvHalf,
    outbox: Buffer,
    inbox: Buffer,
    /// Sends that are not under way.
    free: Vec<u32>,
    /// The handles of those that are. The device needs them until it has sent.
    under_way: Vec<Option<Arc<AddressHandle>>>,
    max_inline: usize,
    /// The most bytes that a packet has here.
    mtu: usize,
    /// Whether the queue pair does no more.
    is_broken: bool,
}

/// A datagram that came, in the slot of a receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub from: SocketAddr,
    /// The queue pair that sent it.
    pub qp_num: u32,
    pub place: Place,
}

/// Where in the memory of an interface a datagram is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    slot: u32,
    at: usize,
    pub length: usize,
}

impl Interface {
    /// Makes the queue pair of a local address and posts its receives. Its completions are watched
    /// from now on, and the first gives a sign.
    pub(super) fn new(
        local: SocketAddr,
        channel: &EventChannel,
        settings: &StreamSettings,
        readiness: &Readiness,
    ) -> Result<Self> {
        let id = channel.create_id(PortSpace::Udp)?;
        id.bind_addr(with_port(local, 0))?;
        let pd = id.protection_domain()?;
        let context = pd.context();
        let most = context.attr()?.max_qp_wr();
        let slots = |bytes: u32, depth: u16| (bytes / SLOT as u32).clamp(1, depth.into()).min(most);
        let sends = slots(settings.sizes.send_buffer, settings.sizes.send_depth);
        let receives = slots(settings.sizes.receive_buffer, settings.sizes.receive_depth);
        let mtu = context.port(id.port()?)?.active_mtu.bytes() as usize;
        let completions = context.completion_channel()?;
        let cq = context
            .completion_queue(completion_room(context, &[sends, receives])?)
            .channel(&completions)
            .build()?;
        let max_inline = usize::from(settings.sizes.max_inline).min(MOST_INLINE);
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(sends)
                .max_recv_wr(receives)
                .max_send_sge(1)
                .max_recv_sge(1)
                .max_inline_data(max_inline as u32),
        )?;
        let max_inline = max_inline.min(qp.capabilities().max_inline_data as usize);
        readiness
            .watch(completions.as_fd(), watched::COMPLETION)
            .map_err(|error| Error::from_os("bind", &error))?;
        let (send, recv) = qp.split();
        let mut interface = Self {
            outbox: pd.alloc(sends as usize * SLOT, Access::LOCAL_WRITE)?,
            inbox: pd.alloc(receives as usize * RECEIVE_SLOT, Access::LOCAL_WRITE)?,
            local,
            id,
            pd,
            cq,
            send,
            recv,
            free: (0..sends).collect(),
            under_way: vec![None; sends as usize],
            max_inline,
            mtu,
            is_broken: false,
        };
        for slot in 0..receives {
            interface.post_receive(slot)?;
        }
        interface.cq.arm_for_event()?;
        Ok(interface)
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn id(&self) -> &CmId {
        &self.id
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.send.qp_num()
    }

    /// The most data that goes in one packet of so many bytes at most.
    pub(super) fn longest_data(&self, path_mtu: usize) -> usize {
        let packet = self.mtu.min(path_mtu).min(SLOT);
        packet.saturating_sub(Sender(self.local).length())
    }

    /// Whether the queue pair does no more.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether a send would find room.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether all that was sent has left.
    pub(super) fn is_idle(&self) -> bool {
        self.is_broken || self.free.len() == self.under_way.len()
    }

    fn post_receive(&mut self, slot: u32) -> Result<()> {
        let at = slot as usize * RECEIVE_SLOT;
        let segment = self.inbox.slice(at..at + RECEIVE_SLOT)?;
        Ok(self.recv.post(RECEIVE | u64::from(slot), &[segment])?)
    }

    /// Takes what completed. True when room to send was found.
    pub(super) fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> bool {
        let mut entries = [Completion::default(); 16];
        let mut has_room = false;
        loop {
            let taken = self.cq.poll(&mut entries).len();
            for completion in &entries[..taken] {
                if completion.wr_id() & RECEIVE == 0 {
                    self.sent(completion);
                    has_room = true;
                } else {
                    arrivals.extend(self.received(completion));
                }
            }
            if taken < entries.len() {
                return has_room;
            }
        }
    }

    fn sent(&mut self, completion: &Completion) {
        let slot = completion.wr_id() as u32;
        if let Some(handle) = self.under_way.get_mut(slot as usize) {
            *handle = None;
            self.free.push(slot);
        }
        if completion.result().is_err() {
            self.fail();
        }
    }

    /// A datagram that came. What is none of this protocol leaves its place to the next.
    fn received(&mut self, completion: &Completion) -> Option<Arrival> {
        let slot = (completion.wr_id() & !RECEIVE) as u32;
        let arrival = match completion.result() {
            Ok(success) => {
                let length = success.datagram_len() as usize;
                self.arrival(slot, length, success.source_qp())
            }
            Err(_) => {
                self.fail();
                return None;
            }
        };
        if arrival.is_none() {
            self.give_back(slot);
        }
        arrival
    }

    fn arrival(&self, slot: u32, length: usize, qp_num: u32) -> Option<Arrival> {
        let at = slot as usize * RECEIVE_SLOT + GRH_LENGTH;
        let length = length.min(LONGEST_PACKET);
        let mut bytes = [0; LONGEST_HEADER];
        let header = &mut bytes[..length.min(LONGEST_HEADER)];
        self.inbox.read(at, header).ok()?;
        let (Sender(from), header) = Sender::parse(header)?;
        if from.is_ipv4() != self.local.is_ipv4() {
            return None;
        }
        Some(Arrival {
            from: in_scope_of(self.local, from),
            qp_num,
            place: Place {
                slot,
                at: at + header,
                length: length - header,
            },
        })
    }

    /// Copies what a datagram has, as much as fits.
    pub(super) fn read(&self, place: Place, bytes: &mut [u8]) -> Result<usize> {
        let length = place.length.min(bytes.len());
        self.inbox.read(place.at, &mut bytes[..length])?;
        Ok(length)
    }

    /// Has the place of a datagram used for the next one.
    pub(super) fn take_back(&mut self, place: Place) {
        self.give_back(place.slot);
    }

    fn give_back(&mut self, slot: u32) {
        if self.post_receive(slot).is_err() {
            self.fail();
        }
    }

    /// Sends a datagram. False: there is no room yet.
    pub(super) fn send(
        &mut self,
        handle: &Arc<AddressHandle>,
        qp_num: u32,
        data: &[u8],
    ) -> Result<bool> {
        let Some(&slot) = self.free.last() else {
            return Ok(false);
        };
        let mut header = [0; LONGEST_HEADER];
        let header_length = Sender(self.local).write(&mut header);
        let header = &header[..header_length];
        let to = Destination {
            handle,
            qp_num,
            qkey: QKEY,
        };
        let length = header.len() + data.len();
        let mut batch = self.send.batch();
        let request = batch.send_datagram(slot.into(), to).signaled();
        let posted = if length <= self.max_inline {
            let mut whole = [0; MOST_INLINE];
            whole[..header.len()].copy_from_slice(header);
            whole[header.len()..length].copy_from_slice(data);
            request.inline(&whole[..length])
        } else {
            let at = slot as usize * SLOT;
            self.outbox.write(at, header)?;
            self.outbox.write(at + header.len(), data)?;
            request.from(&[self.outbox.slice(at..at + length)?])
        };
        match posted.and_then(|()| batch.submit()) {
            Ok(()) => {
                self.free.pop();
                self.under_way[slot as usize] = Some(Arc::clone(handle));
                Ok(true)
            }
            Err(PostError::QueueFull { .. }) => Ok(false),
            Err(error) => {
                self.fail();
                Err(error.into())
            }
        }
    }

    /// Asks for a sign of the next completion, unless one is due.
    pub(super) fn arm(&mut self) -> Result<()> {
        match self.cq.event_due() {
            true => Ok(()),
            false => self.cq.arm_for_event(),
        }
    }

    /// Reads the sign that was asked for, if it is there, and asks for the next.
    pub(super) fn take_sign(&mut self) -> Result<()> {
        self.cq.take_event()?;
        self.arm()
    }

    /// The queue pair does no more.
    pub(super) fn fail(&mut self) {
        self.is_broken = true;
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // The queue pair goes first, then the id.
        let _ = self.id.destroy();
    }
}

/// The same address with another port.
pub(super) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A peer's address as this machine writes it: one that is valid on a link only says which link, and
/// no flow information makes two addresses out of one.
pub(super) fn in_scope_of(local: SocketAddr, mut peer: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(peer), SocketAddr::V6(local)) = (&mut peer, local) {
        peer.set_flowinfo(0);
        if peer.ip().is_unicast_link_local() && peer.scope_id() == 0 {
            peer.set_scope_id(local.scope_id());
        }
    }
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_a_link_says_which_link() {
        let local = "[fe80::1%3]:7174".parse().unwrap();
        let told = |address: &str| in_scope_of(local, address.parse().unwrap()).to_string();
        assert_eq!(told("[fe80::2]:5"), "[fe80::2%3]:5");
        assert_eq!(told("[fe80::2%4]:5"), "[fe80::2%4]:5");
        assert_eq!(told("[fd00::2]:5"), "[fd00::2]:5");
        assert_eq!(told("10.0.0.1:5"), "10.0.0.1:5");
    }
}
