//! What is known of others: their queue pairs, and the ways there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::verbs::AddressHandle;

/// A peer that was not heard of for so long is asked again for its queue pair: it may be another
/// program by now.
const SILENCE: Duration = Duration::from_secs(1);

/// After so long another attempt is made to find a way that was not found.
const PAUSE: Duration = Duration::from_secs(1);

/// The peers, at most [`Peers::MOST`]. One more takes the place of the one that was used least
/// recently, which is then unknown again.
#[derive(Debug, Default)]
pub(super) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
pub(super) struct Peer {
    /// The local address that leads there.
    pub local: SocketAddr,
    /// Its queue pair, once it told.
    pub qp_num: Option<u32>,
    pub way: Way,
    /// When it was heard of.
    heard: Option<Instant>,
    /// When it was asked and has not answered since.
    asked: Option<Instant>,
    used: u64,
}

/// How a peer's queue pair is reached.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// Not known. An attempt failed at the time.
    Unknown(Option<Instant>),
    /// Being looked for.
    Sought,
    Found {
        handle: Arc<AddressHandle>,
        /// The most data in one packet.
        longest: usize,
    },
}

impl Peer {
    /// A peer that nothing is known of but the local address that leads there.
    pub(super) fn new(local: SocketAddr) -> Self {
        Self {
            local,
            qp_num: None,
            way: Way::Unknown(None),
            heard: None,
            asked: None,
            used: 0,
        }
    }

    /// Whether news of it may have come that is to be looked for before sending.
    pub(super) fn expects_news(&self) -> bool {
        self.asked.is_some() || matches!(self.way, Way::Sought)
    }

    /// Whether its queue pair is known, and the way there is to be looked for.
    pub(super) fn wants_way(&self, now: Instant) -> bool {
        let is_over = |failed: Instant| now.saturating_duration_since(failed) >= PAUSE;
        match self.way {
            Way::Unknown(failed) => self.qp_num.is_some() && failed.is_none_or(is_over),
            _ => false,
        }
    }

    /// The queue pair and the way for a datagram of so many bytes. `None`: it goes over UDP, because
    /// one of the two is not known, it is too long for a packet, or it is time to ask again.
    pub(super) fn direct(&self, length: usize, now: Instant) -> Option<(u32, Arc<AddressHandle>)> {
        let is_recent = |time: Instant| now.saturating_duration_since(time) < SILENCE;
        match (&self.way, self.qp_num) {
            (Way::Found { handle, longest }, Some(qp_num))
                if length <= *longest
                    && (self.heard.is_some_and(is_recent) || self.asked.is_some_and(is_recent)) =>
            {
                Some((qp_num, Arc::clone(handle)))
            }
            _ => None,
        }
    }

    /// A datagram went over UDP, which it will answer.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// It told its queue pair, or sent from it. The way to another one is looked for anew, since the
    /// address may have moved to another machine.
    pub(super) fn hear(&mut self, qp_num: u32, now: Instant) {
        self.heard = Some(now);
        self.asked = None;
        if self.qp_num.replace(qp_num) != Some(qp_num) && matches!(self.way, Way::Found { .. }) {
            self.way = Way::Unknown(None);
        }
    }
}

impl Peers {
    /// The most peers that are known at a time.
    pub(super) const MOST: usize = 1024;

    /// A peer that is known, and is used now.
    pub(super) fn get(&mut self, address: SocketAddr) -> Option<&mut Peer> {
        let peer = self.known.get_mut(&address)?;
        self.clock += 1;
        peer.used = self.clock;
        Some(peer)
    }

    pub(super) fn add(&mut self, address: SocketAddr, peer: Peer) {
        if self.known.len() >= Self::MOST {
            let oldest = self.known.iter().min_by_key(|(_, peer)| peer.used);
            if let Some((&oldest, _)) = oldest {
                self.known.remove(&oldest);
            }
        }
        self.clock += 1;
        let used = self.clock;
        self.known.insert(address, Peer { used, ..peer });
    }

    /// Forgets the ways that begin at a local address, and returns the peers that were told its queue
    /// pair.
    pub(super) fn forget_ways(&mut self, local: SocketAddr) -> Vec<SocketAddr> {
        let mut told = Vec::new();
        for (address, peer) in &mut self.known {
            if peer.local == local {
                peer.way = Way::Unknown(None);
                told.extend(peer.qp_num.map(|_| *address));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 10, 0, 1], port))
    }

    #[test]
    fn one_too_many_takes_the_place_of_the_least_recently_used() {
        let mut peers = Peers::default();
        for port in 0..Peers::MOST as u16 {
            peers.add(address(port), Peer::new(address(0)));
        }
        assert!(peers.get(address(0)).is_some());
        peers.add(address(2000), Peer::new(address(0)));
        peers.add(address(2001), Peer::new(address(0)));
        assert_eq!(peers.known.len(), Peers::MOST);
        let is_known = [0, 1, 2, 3, 2000, 2001].map(|port| peers.get(address(port)).is_some());
        assert_eq!(is_known, [true, false, false, true, true, true]);
    }

    #[test]
    fn a_way_is_looked_for_once_the_queue_pair_is_known_and_again_after_a_pause() {
        let start = Instant::now();
        let mut peer = Peer::new(address(0));
        assert!(!peer.wants_way(start));
        peer.hear(7, start);
        assert!(peer.wants_way(start));
        peer.way = Way::Sought;
        assert!(!peer.wants_way(start) && peer.expects_news());
        peer.way = Way::Unknown(Some(start));
        assert!(!peer.wants_way(start));
        assert!(peer.wants_way(start + PAUSE));
    }

    #[test]
    fn an_answer_is_expected_until_it_comes() {
        let start = Instant::now();
        let mut peer = Peer::new(address(0));
        assert!(!peer.expects_news());
        peer.ask(start);
        assert!(peer.expects_news());
        peer.hear(7, start);
        assert!(!peer.expects_news());
        assert_eq!(peer.qp_num, Some(7));
    }

    #[test]
    fn the_peers_of_a_queue_pair_that_is_gone_are_those_that_were_told() {
        let mut peers = Peers::default();
        for port in 1..=3 {
            peers.add(address(port), Peer::new(address(0)));
        }
        peers.add(address(4), Peer::new(address(9)));
        let now = Instant::now();
        for port in [2, 4] {
            peers.get(address(port)).unwrap().hear(5, now);
        }
        assert_eq!(peers.forget_ways(address(0)), [address(2)]);
    }
}
