//! All connections of the program: the steps that both sides take once they are made.
//!
//! What to learn here:
//!
//! * A [`CmId`] can be the key of a map. The C program hangs its own state on the id's `context`.
//! * [`CmId::migrate`] moves an id to another event channel, at any time. The old channel is closed
//!   when nothing is left on it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rdmacm::{CmId, ErrorKind, Event, EventChannel};

use crate::args::{Args, Load};
use crate::failure::{Failure, Result};
use crate::node::{Node, Work};
use crate::say;

/// The connections and the channel that their events come through.
#[derive(Debug)]
pub struct Connections {
    pub channel: EventChannel,
    pub load: Load,
    nodes: HashMap<CmId, Node>,
    established: usize,
    wanted: usize,
    ended: HashSet<CmId>,
    timeout: Option<Duration>,
}

impl Connections {
    pub fn new(channel: EventChannel, args: &Args) -> Self {
        Self {
            channel,
            load: args.load(),
            nodes: HashMap::new(),
            established: 0,
            wanted: args.connections as usize,
            ended: HashSet::new(),
            timeout: args.timeout(),
        }
    }

    /// Makes the queues for one more connection.
    pub fn add(&mut self, id: &CmId) -> Result<&Node> {
        let node = Node::new(id.clone(), self.load)?;
        Ok(self.nodes.entry(id.clone()).insert_entry(node).into_mut())
    }

    /// Whether there is no place for one more.
    pub fn is_full(&self) -> bool {
        self.nodes.len() >= self.wanted
    }

    pub fn are_established(&self) -> bool {
        self.established >= self.wanted
    }

    /// The next event. The first may take its time on the server, the others come soon.
    pub fn next_event(&self) -> Result<Event> {
        let timeout = self.timeout.filter(|_| !self.nodes.is_empty());
        self.channel.next_event(timeout).map_err(silence)
    }

    /// Notes what an event says of a connection.
    pub fn note(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Established(_) => self.established += 1,
            Event::Disconnected(event) => {
                self.ended.insert(event.id().clone());
            }
            // A server that has enough.
            Event::ConnectRequest(request) => {
                say("cmatose: failing connection request")?;
                request.id().reject(&[])?;
            }
            // Something changed; the connections go on.
            Event::AddressChange(_) | Event::TimewaitExit(_) => {}
            event => return Err(Failure::of_event(event)),
        }
        Ok(())
    }

    /// Posts all sends on all connections.
    pub fn post_sends(&mut self) -> Result<()> {
        self.nodes.values_mut().try_for_each(Node::post_sends)
    }

    /// Waits until all requests of this kind have completed, on all connections.
    pub fn complete(&mut self, work: Work) -> Result<()> {
        let ids: Vec<CmId> = self.nodes.keys().cloned().collect();
        ids.iter().try_for_each(|id| self.complete_one(id, work))
    }

    fn complete_one(&mut self, id: &CmId, work: Work) -> Result<()> {
        while let Some(node) = self.nodes.get_mut(id)
            && !node.is_done(work)
        {
            // What the peer sent before it left is there already.
            let is_over = self.ended.contains(id);
            let patience = if is_over {
                Some(Duration::ZERO)
            } else {
                self.timeout
            };
            match node.wait(&self.channel, patience) {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(event) = self.channel.try_next_event()? {
                        self.note(event)?;
                    }
                }
                Err(_) if is_over => {
                    return Err(Failure::new("the peer ended the connection too early"));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Moves all ids, and the listener if there is one, to a new event channel.
    pub fn migrate(&mut self, listener: Option<&CmId>) -> Result<()> {
        say("migrating to new event channel")?;
        let channel = EventChannel::open()?;
        for id in listener.into_iter().chain(self.nodes.keys()) {
            id.migrate(&channel)?;
        }
        self.channel = channel;
        Ok(())
    }

    /// Disconnects all.
    pub fn disconnect(&self) -> Result<()> {
        Ok(self.nodes.keys().try_for_each(CmId::disconnect)?)
    }

    /// Waits until the peer has disconnected all, and agrees.
    pub fn wait_for_ends(&mut self) -> Result<()> {
        self.ended.iter().try_for_each(CmId::disconnect)?;
        while self.ended.len() < self.nodes.len() {
            let event = self.next_event()?;
            if let Event::Disconnected(event) = &event {
                event.id().disconnect()?;
            }
            self.note(event)?;
        }
        Ok(())
    }
}

fn silence(error: rdmacm::Error) -> Failure {
    match error.kind() {
        ErrorKind::TimedOut => Failure::new("the peer is silent; giving up"),
        _ => error.into(),
    }
}
