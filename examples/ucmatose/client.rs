//! The client.
//!
//! What to learn here: many ids on one event channel. Each goes its own way from address to
//! connection, and every event says which id it is about. Some may be connected while others
//! still look for the route.

use std::time::Duration;

use rdmacm::{AddrInfo, CmId, Event, EventChannel};

use crate::args::Args;
use crate::connections::Connections;
use crate::failure::{Failure, Result};
use crate::node::Work;
use crate::say;

/// How long the kernel may take to find the way.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects, takes what the server sends, and sends as much back.
pub fn run(args: &Args) -> Result<()> {
    say("cmatose: starting client")?;
    let server = args.look_up()?;
    let channel = EventChannel::open()?;
    let mut connections = Connections::new(channel, args);

    say("cmatose: connecting")?;
    let _ids = begin(&connections.channel, &server, args)?;
    while !connections.are_established() {
        let event = connections.next_event()?;
        advance(&mut connections, event, &server, args)?;
    }

    if connections.load.count > 0 {
        say("receiving data transfers")?;
        connections.complete(Work::Receive)?;
        say("sending replies")?;
        connections.post_sends()?;
        say("data transfers complete")?;
    }
    if args.migrate {
        connections.migrate(None)?;
    }
    // The server disconnects when it has all replies. It could not have them without our queue
    // pairs, so nobody has to wait for the sends here.
    connections.wait_for_ends()
}

/// Makes the ids and lets the kernel look for the server. Ids without a handle are destroyed, so
/// they are handed out.
fn begin(channel: &EventChannel, server: &AddrInfo, args: &Args) -> Result<Vec<CmId>> {
    let peer = server
        .destination
        .ok_or_else(|| Failure::new("the name has no address"))?;
    let mut ids = Vec::new();
    for _ in 0..args.connections {
        let id = channel.create_id(args.port_space())?;
        id.resolve_addr(server.source, peer, RESOLVE_TIMEOUT)?;
        ids.push(id);
    }
    Ok(ids)
}

/// One step on the way of one id.
fn advance(
    connections: &mut Connections,
    event: Event,
    server: &AddrInfo,
    args: &Args,
) -> Result<()> {
    match event {
        Event::AddressResolved(event) => {
            set_options(event.id(), args);
            Ok(event.id().resolve_route(RESOLVE_TIMEOUT)?)
        }
        Event::RouteResolved(event) => connections.add(event.id())?.connect(&server.connect_data),
        event => connections.note(event),
    }
}

/// Options that a device may not know end nothing.
fn set_options(id: &CmId, args: &Args) {
    if let Some(type_of_service) = args.type_of_service
        && let Err(error) = id.set_type_of_service(type_of_service)
    {
        eprintln!("cmatose: set TOS option failed: {error}");
    }
    if let Some(exponent) = args.ack_timeout
        && let Err(error) = id.set_ack_timeout(exponent)
    {
        eprintln!("cmatose: set ack timeout option failed: {error}");
    }
}
