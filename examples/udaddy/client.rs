//! The client: asks for the server's queue pairs, sends to them, and waits for the replies.

use std::time::Duration;

use rdmacm::{AddrInfo, CmId, ConnParam, Event, EventChannel};

use crate::args::Args;
use crate::datagram::node::Node;
use crate::datagram::outcome::{Failure, Result, say};

/// How long the kernel may take to find the way.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Exchanges messages with a server.
pub fn run(server: &str, args: &Args) -> Result<()> {
    say("udaddy: starting client");
    let way = args.way_to(server)?;
    say("udaddy: connecting");
    let channel = EventChannel::open()?;
    let mut nodes = connect(&channel, &way, args)?;
    let load = args.options.load();
    if load.count == 0 {
        return Ok(());
    }
    say("initiating data transfers");
    for node in &mut nodes {
        // Sends that nobody asks about need no room in the completion queue. That they have left
        // is known when the replies are there.
        node.post_sends(0)?;
    }
    say("receiving data transfers");
    for node in &mut nodes {
        for _ in 0..load.count {
            node.next_completion(&channel, args.options.patience(), on_event)?;
        }
    }
    say("data transfers complete");
    Ok(())
}

/// Brings all ids to the point where they can send. They go their ways at the same time, and the
/// events tell how far each has come.
fn connect(channel: &EventChannel, way: &AddrInfo, args: &Args) -> Result<Vec<Node>> {
    let count = args.options.connections as usize;
    // An id lives as long as somebody has it.
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = channel.create_id(args.port_space())?;
        let destination = way.destination.ok_or("there is nobody to send to")?;
        id.resolve_addr(way.source, destination, RESOLVE_TIMEOUT)?;
        ids.push(id);
    }
    let (mut asking, mut ready) = (Vec::<Node>::new(), Vec::new());
    while ready.len() < count {
        match channel.next_event(args.options.patience())? {
            Event::AddressResolved(event) => resolve_route(event.id(), args)?,
            Event::RouteResolved(event) => asking.push(ask(event.id(), way, args)?),
            Event::Established(event) => {
                let at = asking.iter().position(|node| node.id == *event.id());
                let (Some(at), Some(peer)) = (at, event.datagram()) else {
                    return Err("an answer that nobody asked for".into());
                };
                let mut node = asking.swap_remove(at);
                node.send_to(peer)?;
                ready.push(node);
            }
            event => on_event(event)?,
        }
    }
    Ok(ready)
}

fn resolve_route(id: &CmId, args: &Args) -> Result<()> {
    if let Some(type_of_service) = args.type_of_service
        && let Err(error) = id.set_type_of_service(type_of_service)
    {
        eprintln!("udaddy: set TOS option failed: {error}");
    }
    Ok(id.resolve_route(RESOLVE_TIMEOUT)?)
}

/// Makes a node of an id and asks for the server's queue pair.
fn ask(id: &CmId, way: &AddrInfo, args: &Args) -> Result<Node> {
    let mut node = Node::new(id.clone(), args.options.load())?;
    // Before the server hears of it: the replies must find them.
    node.post_receives()?;
    // Between InfiniBand's own addresses the IP addresses travel in the private data.
    let param = ConnParam::new().private_data(&way.connect_data)?;
    id.connect(&param)?;
    Ok(node)
}

/// Ends with an error event; the others are news.
fn on_event(event: Event) -> Result<()> {
    match event {
        Event::AddressError(_)
        | Event::RouteError(_)
        | Event::ConnectError(_)
        | Event::Unreachable(_)
        | Event::Rejected(_)
        | Event::DeviceRemoval(_) => Err(Failure::of_event(event)),
        _ => Ok(()),
    }
}
