//! What a socket for datagrams does: over which way one goes, and what packets over UDP mean.
//!
//! Nothing here waits. A call that can do nothing now returns `None`, and can try again when one of
//! the descriptors that are watched was readable.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::super::queues::watched;
use super::super::settings::StreamSettings;
use super::inbox::{Inbox, find};
use super::interface::{Arrival, Interface, in_scope_of};
use super::peers::{Peer, Peers, Way};
use super::way::{self, Search};
use super::wire::{LONGEST_HEADER, Purpose, SLOT, UdpHeader, longest_data};
use crate::cm::{CmId, Event, EventChannel};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Readable, Readiness, Udp};
use crate::verbs::AddressHandle;

/// Packets over UDP that are longer are none of the protocol: the C library reads even less.
const LONGEST_UDP: usize = LONGEST_HEADER + 4096;

/// So many packets over UDP are read at a time at most.
const BURST: usize = 64;

#[derive(Debug)]
pub(super) struct Exchange {
    inbox: Inbox,
    peers: Peers,
    search: Search,
    interfaces: Vec<Interface>,
    channel: EventChannel,
    udp: Udp,
    /// The only peer, where there is one.
    connected: Option<SocketAddr>,
    settings: StreamSettings,
    /// What went wrong outside of a call, until one tells of it.
    error: Option<io::Error>,
    /// Whether something happened that another call may wait for.
    has_news: bool,
    /// Whether a call waits for room to send.
    wants_room: bool,
    /// Whether there is some since.
    found_room: bool,
    /// Whether room of the UDP socket is watched.
    watches_udp_room: bool,
    /// Empty between calls.
    arrivals: Vec<Arrival>,
    /// For one packet over UDP, and a byte that tells that it is too long.
    packet: Box<[u8; LONGEST_UDP + 1]>,
}

impl Exchange {
    /// Binds the UDP socket and makes the queue pair, unless the address is a wildcard.
    pub(super) fn bind(
        address: SocketAddr,
        settings: &StreamSettings,
        readiness: &Readiness,
    ) -> Result<Self> {
        let os = |error: io::Error| Error::from_os("bind", &error);
        let channel = EventChannel::open()?;
        let udp = Udp::bind(address).map_err(os)?;
        readiness.watch(udp.as_fd(), watched::UDP).map_err(os)?;
        readiness
            .watch(channel.as_fd(), watched::EVENT)
            .map_err(os)?;
        let local = udp.local_addr().map_err(os)?;
        let mut exchange = Self {
            inbox: Inbox::default(),
            peers: Peers::default(),
            search: Search::default(),
            interfaces: Vec::new(),
            channel,
            udp,
            connected: None,
            settings: settings.clone(),
            error: None,
            has_news: false,
            wants_room: false,
            found_room: false,
            watches_udp_room: false,
            arrivals: Vec::new(),
            packet: Box::new([0; LONGEST_UDP + 1]),
        };
        if !local.ip().is_unspecified() {
            exchange.interface(local, readiness)?;
        }
        Ok(exchange)
    }

    /// Has one peer only from now on.
    pub(super) fn connect(&mut self, peer: SocketAddr, readiness: &Readiness) -> io::Result<()> {
        let peer = self.in_own_family(peer)?;
        self.peer(peer, readiness)?;
        self.udp.connect(peer)?;
        self.connected = Some(peer);
        Ok(())
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    pub(super) fn connected(&self) -> Option<SocketAddr> {
        self.connected
    }

    /// What went wrong outside of a call, once.
    pub(super) fn take_error(&mut self) -> io::Result<Option<io::Error>> {
        match self.error.take() {
            Some(error) => Ok(Some(error)),
            None => self.udp.take_error(),
        }
    }

    /// As [`Exchange::take_error`], but the UDP socket is not asked: its calls tell themselves.
    pub(super) fn noted_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Whether a call could do something that no sign is to come of.
    pub(super) fn has_chance(&self) -> bool {
        !self.inbox.is_empty() || self.error.is_some() || self.found_room
    }

    /// Whether something happened that other calls may wait for; once.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether all that was sent has left.
    pub(super) fn is_idle(&self) -> bool {
        self.interfaces.iter().all(Interface::is_idle)
    }

    /// Copies the next datagram, as much as fits, and takes it out unless it is to stay. `None`:
    /// nothing came yet.
    pub(super) fn receive(
        &mut self,
        bytes: &mut [u8],
        stays: bool,
        readiness: &Readiness,
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        if self.inbox.is_empty() {
            self.poll(readiness);
        }
        let first = self.inbox.peek(&self.interfaces, bytes)?;
        if first.is_some() && !stays {
            self.inbox.pop(&mut self.interfaces);
        }
        Ok(first)
    }

    /// Sends a datagram. `None`: there is no room yet.
    ///
    /// # Errors
    ///
    /// Datagrams that are too long, peers that no RDMA device leads to, and what UDP says.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        data: &[u8],
        readiness: &Readiness,
    ) -> io::Result<Option<usize>> {
        let to = self.in_own_family(to)?;
        check_length(to, data.len())?;
        self.found_room = false;
        if self.peers.get(to).is_some_and(|peer| peer.expects_news()) {
            self.read_udp(readiness);
            self.take_events();
        }
        let now = Instant::now();
        self.peer(to, readiness)?;
        self.seek_way(to, now);
        let peer = self.peers.get(to);
        let direct = peer.and_then(|peer| Some((peer.local, peer.direct(data.len(), now)?)));
        if let Some((local, (qp_num, handle))) = direct {
            match self.send_direct(local, &handle, qp_num, data) {
                Ok(is_sent) => {
                    self.wants_room |= !is_sent;
                    return Ok(is_sent.then_some(data.len()));
                }
                // The queue pair does no more. Another takes its place, and UDP carries this one.
                Err(_) => self.mend(readiness),
            }
        }
        let qp_num = self.peer(to, readiness)?;
        match self.send_udp(Purpose::Data, qp_num, to, data) {
            Ok(()) => {
                if let Some(peer) = self.peers.get(to) {
                    peer.ask(now);
                }
                Ok(Some(data.len()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wants_room = true;
                self.watch_udp_room(true, readiness)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn send_direct(
        &mut self,
        local: SocketAddr,
        handle: &Arc<AddressHandle>,
        qp_num: u32,
        data: &[u8],
    ) -> Result<bool> {
        let Some(at) = find(&self.interfaces, local) else {
            return Ok(false);
        };
        if !self.interfaces[at].has_room() {
            self.take_completions();
        }
        self.interfaces[at].send(handle, qp_num, data)
    }

    fn send_udp(
        &self,
        purpose: Purpose,
        qp_num: u32,
        to: SocketAddr,
        data: &[u8],
    ) -> io::Result<()> {
        let mut header = [0; LONGEST_HEADER];
        let header_length = UdpHeader {
            purpose,
            qp_num,
            address: self.local_towards(to)?.ip(),
        }
        .write(&mut header);
        let mut packet = [0; SLOT];
        let length = header_length + data.len();
        packet[..header_length].copy_from_slice(&header[..header_length]);
        packet[header_length..length].copy_from_slice(data);
        self.udp.send_to(&packet[..length], to)
    }

    fn in_own_family(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        let own = self.udp.local_addr()?;
        if own.is_ipv4() != peer.is_ipv4() {
            let text = format!("{peer} is of another family than the socket's address {own}");
            return Err(Error::invalid("send_to", text).into());
        }
        Ok(in_scope_of(own, peer))
    }

    /// The local address that leads to a peer.
    fn local_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        let own = self.udp.local_addr()?;
        if !own.ip().is_unspecified() {
            return Ok(own);
        }
        let local = SocketAddr::new(Udp::source_towards(peer)?, own.port());
        Ok(in_scope_of(peer, local))
    }

    /// Sees to it that a peer is known, and that the local address that leads there has a queue pair,
    /// whose number is returned.
    fn peer(&mut self, address: SocketAddr, readiness: &Readiness) -> io::Result<u32> {
        let known = self.peers.get(address).map(|peer| peer.local);
        let local = match known {
            Some(local) => local,
            None => self.local_towards(address)?,
        };
        let at = self.interface(local, readiness)?;
        if known.is_none() {
            self.peers.add(address, Peer::new(local));
        }
        Ok(self.interfaces[at].qp_num())
    }

    /// The interface of a local address, which is made if need be.
    fn interface(&mut self, local: SocketAddr, readiness: &Readiness) -> Result<usize> {
        if let Some(at) = find(&self.interfaces, local) {
            return Ok(at);
        }
        let interface = Interface::new(local, &self.channel, &self.settings, readiness)?;
        self.interfaces.push(interface);
        Ok(self.interfaces.len() - 1)
    }

    /// Begins to look for the way to a peer, if it is time to.
    fn seek_way(&mut self, address: SocketAddr, now: Instant) {
        if !self.search.has_room() {
            return;
        }
        let Some(peer) = self.peers.get(address).filter(|peer| peer.wants_way(now)) else {
            return;
        };
        let service = self.settings.type_of_service;
        let begun = self
            .search
            .begin(&self.channel, peer.local, address, service);
        peer.way = match begun {
            Ok(()) => Way::Sought,
            // UDP may lead there all the same.
            Err(_) => Way::Unknown(Some(now)),
        };
    }

    /// Takes events of the connection manager: ways that were found or not, and devices that went.
    fn take_events(&mut self) {
        loop {
            match self.channel.try_next_event() {
                Ok(Some(event)) => self.take_event(event),
                Ok(None) => return,
                Err(error) => return self.note(error.into()),
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        let id = event.id().clone();
        let failed = match event {
            Event::AddressResolved(_) => self.search.go_on(&id),
            Event::RouteResolved(_) => return self.take_way(&id),
            Event::AddressChange(_) => return,
            Event::DeviceRemoval(_) => {
                let own = self.interfaces.iter_mut().find(|own| *own.id() == id);
                if let Some(interface) = own {
                    return interface.fail();
                }
                self.search.end(&id)
            }
            _ => self.search.end(&id),
        };
        if let Some(peer) = failed.and_then(|peer| self.peers.get(peer)) {
            peer.way = Way::Unknown(Some(Instant::now()));
        }
    }

    fn take_way(&mut self, id: &CmId) {
        let Some(address) = self.search.end(id) else {
            return;
        };
        let Some(peer) = self.peers.get(address) else {
            return;
        };
        let interface = find(&self.interfaces, peer.local).map(|at| &self.interfaces[at]);
        let found = interface.and_then(|interface| way::take(id, interface).ok());
        peer.way = match found {
            Some((handle, longest)) => Way::Found {
                handle: Arc::new(handle),
                longest,
            },
            None => Way::Unknown(Some(Instant::now())),
        };
    }

    /// Reads packets over UDP, as long as there is room for their data.
    fn read_udp(&mut self, readiness: &Readiness) {
        for _ in 0..BURST {
            if !self.inbox.has_room() {
                return;
            }
            match self.udp.receive(&mut self.packet[..]) {
                Ok((length, _)) if length > LONGEST_UDP => {}
                Ok((length, from)) => self.take_packet(length, from, readiness),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.note(error),
            }
        }
    }

    /// Takes a packet over UDP. What is none of the protocol is dropped.
    fn take_packet(&mut self, length: usize, from: SocketAddr, readiness: &Readiness) {
        let packet = &self.packet[..length];
        let Some((header, data)) = UdpHeader::parse(packet, from.is_ipv4()) else {
            return;
        };
        let now = Instant::now();
        match header.purpose {
            // An answer that nobody waits for would only take up room.
            Purpose::Control => {
                if let Some(peer) = self.peers.get(from) {
                    peer.hear(header.qp_num, now);
                    self.seek_way(from, now);
                }
            }
            Purpose::Data => {
                self.inbox.add_copy(from, data);
                self.has_news = true;
                // Where no RDMA device leads back, the sender goes on over UDP.
                if let Ok(own) = self.peer(from, readiness) {
                    if let Some(peer) = self.peers.get(from) {
                        peer.hear(header.qp_num, now);
                    }
                    // An answer that is lost is asked for again.
                    let _ = self.send_udp(Purpose::Control, own, from, &[]);
                }
            }
        }
    }

    /// Takes what completed, and replaces queue pairs that do no more.
    pub(super) fn poll(&mut self, readiness: &Readiness) {
        self.take_completions();
        self.mend(readiness);
    }

    pub(super) fn take_completions(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for at in 0..self.interfaces.len() {
            let has_room = self.interfaces[at].poll(&mut arrivals);
            self.find_room(has_room);
            for arrival in arrivals.drain(..) {
                self.take_arrival(at, arrival);
            }
        }
        self.arrivals = arrivals;
    }

    fn take_arrival(&mut self, at: usize, arrival: Arrival) {
        let Arrival {
            from,
            qp_num,
            place,
        } = arrival;
        let interface = &mut self.interfaces[at];
        if self.connected.is_some_and(|peer| peer != from) {
            return interface.take_back(place);
        }
        self.inbox.add_slot(from, interface.local(), place);
        self.has_news = true;
        if let Some(peer) = self.peers.get(from) {
            peer.hear(qp_num, Instant::now());
        }
    }

    fn find_room(&mut self, has_room: bool) {
        if has_room && self.wants_room {
            self.wants_room = false;
            self.found_room = true;
            self.has_news = true;
        }
    }

    fn watch_udp_room(&mut self, wanted: bool, readiness: &Readiness) -> io::Result<()> {
        if self.watches_udp_room != wanted {
            readiness.watch_room(self.udp.as_fd(), watched::UDP, wanted)?;
            self.watches_udp_room = wanted;
        }
        Ok(())
    }

    /// Replaces queue pairs that do no more. The peers that send to them are told.
    fn mend(&mut self, readiness: &Readiness) {
        while let Some(at) = self.interfaces.iter().position(Interface::is_broken) {
            let broken = self.interfaces.swap_remove(at);
            self.inbox.save(&broken);
            let told = self.peers.forget_ways(broken.local());
            let local = broken.local();
            drop(broken);
            match self.interface(local, readiness) {
                Ok(at) => {
                    let qp_num = self.interfaces[at].qp_num();
                    for peer in told {
                        // It is told again when something is sent to it.
                        let _ = self.send_udp(Purpose::Control, qp_num, peer, &[]);
                    }
                }
                Err(error) => self.note(error.into()),
            }
        }
    }

    fn note(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
        self.has_news = true;
    }

    /// Reads the signs that there are, and does what they are about.
    pub(super) fn take_signs(&mut self, readable: Readable, readiness: &Readiness) {
        if readable.has(watched::COMPLETION) {
            for interface in &mut self.interfaces {
                if interface.take_sign().is_err() {
                    interface.fail();
                }
            }
        }
        if readable.has(watched::EVENT) {
            self.take_events();
        }
        if readable.has(watched::UDP) {
            if self.watches_udp_room {
                if let Err(error) = self.watch_udp_room(false, readiness) {
                    self.note(error);
                }
                self.find_room(true);
            }
            self.read_udp(readiness);
        }
        // Also what came before the next sign was asked for, which gives none.
        self.poll(readiness);
    }
}

fn check_length(to: SocketAddr, length: usize) -> Result<()> {
    let most = longest_data(to.ip());
    if length <= most {
        return Ok(());
    }
    let error = Error::from_errno("send_to", libc::EMSGSIZE).of_kind(ErrorKind::InvalidInput);
    Err(error.because(format!(
        "a datagram to {to} has {most} bytes at most, and not {length}"
    )))
}
