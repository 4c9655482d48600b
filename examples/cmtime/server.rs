//! The server: accepts all that come, for ever, and ends what its clients end.
//!
//! What to learn here: dropping the last handle of an id destroys it, so a server has to keep the
//! ids of its connections. The C program is handed a pointer with each event and keeps none.

use std::collections::HashSet;

use rdmacm::{CmId, ConnParam, Event, EventChannel, PortSpace};

use crate::Result;
use crate::args::{Args, resolve};
use crate::queues::Queues;

/// The kernel's default. It drops requests beyond that, and the clients repeat them.
const BACKLOG: u32 = 0;

/// Serves until the device goes.
pub fn run(args: &Args) -> Result<()> {
    let local = resolve(args.bind.as_deref().unwrap_or("0.0.0.0"), args.port)?;
    let channel = EventChannel::open()?;
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(local)?;
    listener.listen(BACKLOG)?;
    let mut server = Server {
        queues: Queues::new(args.own_cqs),
        connections: HashSet::new(),
    };
    loop {
        // A failure concerns one client: a request that could not be taken over.
        match next_event(&channel) {
            Ok(event @ Event::DeviceRemoval(_)) => return Err(event.into_error("listen").into()),
            Ok(event) => server.handle(event),
            Err(error) => eprintln!("cmtime: {error}"),
        }
    }
}

/// Events come in bursts: waiting before each would cost a call that finds one there.
fn next_event(channel: &EventChannel) -> rdmacm::Result<Event> {
    match channel.try_next_event()? {
        Some(event) => Ok(event),
        None => channel.next_event(None),
    }
}

struct Server {
    queues: Queues,
    connections: HashSet<CmId>,
}

impl Server {
    fn handle(&mut self, event: Event) {
        let outcome = match event {
            Event::ConnectRequest(request) => self.accept(request.into_id()),
            Event::Disconnected(event) => self.end(event.id()),
            Event::Unreachable(_) | Event::ConnectError(_) | Event::Rejected(_) => {
                self.connections.remove(event.id());
                Err(event.into_error("accept"))
            }
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            eprintln!("cmtime: {error}");
        }
    }

    /// Accepts a request. When that fails, the id goes and the client is refused.
    fn accept(&mut self, id: CmId) -> rdmacm::Result<()> {
        self.queues.create_qp(&id)?;
        id.accept(&ConnParam::new())?;
        self.connections.insert(id);
        Ok(())
    }

    /// Agrees to the end of a connection: what destroying its id tells the client.
    fn end(&mut self, id: &CmId) -> rdmacm::Result<()> {
        self.connections.remove(id);
        id.destroy()
    }
}
