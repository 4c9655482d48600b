//! The server: tells its queue pairs, waits for messages, and replies to their senders.

use rdmacm::{CmId, Completion, ConnParam, Event, EventChannel, GRH_LENGTH};

use crate::args::Args;
use crate::datagram::node::{Load, Node, Peer};
use crate::datagram::outcome::{Failure, Result, say};

/// Serves as many ids of clients as it has itself.
pub fn run(args: &Args) -> Result<()> {
    say("udaddy: starting server");
    let channel = EventChannel::open()?;
    let listener = channel.create_id(args.port_space())?;
    let local = args
        .listen_at()?
        .source
        .ok_or("there is nothing to bind to")?;
    listener
        .bind_addr(local)
        .map_err(|error| Failure::from(error).during("bind address failed"))?;
    listener.listen(0)?;

    let load = args.options.load();
    let mut nodes = Vec::new();
    while nodes.len() < args.options.connections as usize {
        match channel.next_event(None)? {
            // Dropping the request, as an error here does, refuses the client.
            Event::ConnectRequest(request) => nodes.push(accept(request.into_id(), load)?),
            event => on_event(event)?,
        }
    }
    if load.count > 0 {
        exchange(&mut nodes, load, &channel, args)?;
    }
    Ok(listener.destroy()?)
}

/// Makes a node for a client and tells the client its queue pair. The client may send from then on,
/// and no event follows here.
fn accept(id: CmId, load: Load) -> Result<Node> {
    let mut node = Node::new(id, load)?;
    // The client's first message may be faster than the next line.
    node.post_receives()?;
    node.id.accept(&ConnParam::new())?;
    Ok(node)
}

fn exchange(nodes: &mut [Node], load: Load, channel: &EventChannel, args: &Args) -> Result<()> {
    let patience = args.options.patience();
    say("receiving data transfers");
    for node in &mut *nodes {
        let first = node.next_completion(channel, patience, on_event)?;
        let sender = sender_of(&first, node)
            .map_err(|failure| failure.during("failed to create reply AH"))?;
        node.set_peer(sender);
        for _ in 1..load.count {
            node.next_completion(channel, patience, on_event)?;
        }
    }
    say("sending replies");
    for node in &mut *nodes {
        node.post_sends(load.count)?;
    }
    for node in &mut *nodes {
        // A queue pair that is destroyed sends nothing more of what is queued.
        for _ in 0..load.count {
            node.next_completion(channel, patience, on_event)?;
        }
    }
    say("data transfers complete");
    Ok(())
}

/// Where a reply goes: back along the way that the header in front of the message tells, to the
/// queue pair whose number came with the message, with the key that all queue pairs of the port
/// space have.
fn sender_of(completion: &Completion, node: &Node) -> Result<Peer> {
    let received = completion.result()?;
    // Later messages may be written there by now. They come from the same client.
    let mut header = [0; GRH_LENGTH];
    node.buffer.read(0, &mut header)?;
    let path = node
        .pd
        .context()
        .reply_path(&received, &header, node.id.port()?)?;
    Ok(Peer {
        handle: node.pd.address_handle(&path)?,
        // `received.source_qp()` would tell it as well; the protocol is to say it.
        qp_num: received
            .immediate()
            .ok_or("the message came without a number")?,
        qkey: node.qp.query()?.qkey,
    })
}

/// What happens besides. A client too many is refused by dropping its request.
fn on_event(event: Event) -> Result<()> {
    match event {
        Event::ConnectRequest(_) => {
            say("udaddy: failing connection request");
            Ok(())
        }
        Event::DeviceRemoval(_) => Err(Failure::of_event(event)),
        _ => Ok(()),
    }
}
