//! The server.
//!
//! What to learn here: a request is an id that is not connected yet. It gets its queue pair, and
//! receives are posted, before it is accepted; dropping it or [`CmId::reject`] refuses the peer.

use rdmacm::{CmId, Event, EventChannel};

use crate::args::Args;
use crate::connections::Connections;
use crate::failure::{Failure, Result};
use crate::node::Work;
use crate::say;

/// The kernel's default. It drops requests beyond that, and the clients repeat them.
const BACKLOG: u32 = 0;

/// Takes the connections, sends, and takes what comes back.
pub fn run(args: &Args) -> Result<()> {
    say("cmatose: starting server")?;
    let channel = EventChannel::open()?;
    let listener = listen(&channel, args)?;
    let mut connections = Connections::new(channel, args);
    while !connections.are_established() {
        match connections.next_event()? {
            Event::ConnectRequest(request) if !connections.is_full() => {
                accept(&mut connections, request.id(), args)?;
            }
            event => connections.note(event)?,
        }
    }

    if connections.load.count > 0 {
        say("initiating data transfers")?;
        connections.post_sends()?;
        say("completing sends")?;
        connections.complete(Work::Send)?;
        say("receiving data transfers")?;
        connections.complete(Work::Receive)?;
        say("data transfers complete")?;
    }
    if args.migrate {
        connections.migrate(Some(&listener))?;
    }
    say("cmatose: disconnecting")?;
    connections.disconnect()?;
    connections.wait_for_ends()?;
    Ok(say("disconnected")?)
}

fn listen(channel: &EventChannel, args: &Args) -> Result<CmId> {
    let listener = channel.create_id(args.port_space())?;
    let place = args.look_up()?;
    let local = place
        .source
        .ok_or_else(|| Failure::new("the name has no address"))?;
    listener.bind_addr(local)?;
    listener.listen(BACKLOG)?;
    Ok(listener)
}

/// Gives a request its queues and accepts it. When that fails, the id is dropped and the client is
/// refused.
fn accept(connections: &mut Connections, id: &CmId, args: &Args) -> Result<()> {
    let node = connections.add(id)?;
    if let Some(exponent) = args.ack_timeout
        && let Err(error) = id.set_ack_timeout(exponent)
    {
        eprintln!("cmatose: set ack timeout option failed: {error}");
    }
    node.accept()
}
