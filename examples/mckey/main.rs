//! `mckey`: sends datagrams to a multicast group, the counterpart of the program of that name in
//! rdma-core.
//!
//! It takes the same options, and the C program may be on either side:
//!
//! ```text
//! cargo run --example mckey -- -b 10.10.0.1 -m 239.1.2.3          # a receiver
//! mckey -b 10.10.0.2 -m 239.1.2.3 -s                              # a sender, in C or as above
//! ```
//!
//! What to learn here:
//!
//! * Joining ([`CmId::join_multicast`](rdmacm::CmId::join_multicast)) makes the network deliver the
//!   group's packets to this port, attaches the id's queue pair so that it gets a copy, and tells
//!   in an event where to send to: the group's path, a queue pair number that stands for all
//!   members, and the key that they share.
//! * A sender needs to join as well, but may do so to send only (`-o`), and then receives nothing.
//! * There is no connection, no peer and no answer. Who comes late has missed what was sent before,
//!   and the sender does not know who listens.
//!
//! The sender asks for the completion of its last message and waits for it before it ends, which
//! the C program does not: a queue pair that is destroyed sends nothing more of what is queued.

mod args;
#[path = "../udaddy/datagram/mod.rs"]
mod datagram;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rdmacm::{Address, CmId, ErrorKind, Event, EventChannel, IdEvent};

use args::{Args, Group};
use datagram::node::Node;
use datagram::outcome::{Failure, Result, c_status, report, say};

/// How long the kernel may take to find the way.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the switches of the network may take to learn of new members.
const SETTLING: Duration = Duration::from_secs(3);

/// What `-l` would ask the device for.
const NO_LOOPBACK_FILTER: &str = "-l: this crate makes no queue pairs that leave out their own \
    multicast messages (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)";

fn main() -> ExitCode {
    let args = Args::parse();
    report("mckey", run(&args))
}

fn run(args: &Args) -> Result<()> {
    say(format_args!(
        "mckey: starting {}",
        if args.is_sender { "client" } else { "server" }
    ));
    if args.no_loopback {
        return Err(NO_LOOPBACK_FILTER.into());
    }
    let source = args.source()?;
    let group = args.group()?;
    let channel = EventChannel::open()?;
    say("mckey: joining");
    let mut nodes = join(&channel, source, group, args)?;
    settle(&channel)?;
    if args.options.load().count > 0 {
        match args.is_sender {
            true => send(&mut nodes, &channel, args)?,
            false => receive(&mut nodes, &channel, args)?,
        }
        say("data transfers complete");
    }
    for node in &nodes {
        node.id
            .leave_multicast(group.address())
            .map_err(|error| Failure::from(error).during("failure leaving"))?;
    }
    Ok(())
}

/// Brings all ids into the group. They go their ways at the same time, and the events tell how far
/// each has come.
fn join(
    channel: &EventChannel,
    source: Option<Address>,
    group: Group,
    args: &Args,
) -> Result<Vec<Node>> {
    let count = args.options.connections as usize;
    let (mut joining, mut joined) = (Vec::<Node>::new(), Vec::new());
    // An id lives as long as somebody has it.
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = channel.create_id(args.options.port_space)?;
        if let Some(source) = source {
            id.bind_addr(source)
                .map_err(|error| Failure::from(error).during("addr bind failure"))?;
        }
        match group {
            // The id has its device from the address that it is bound to.
            Group::Unmapped(address) => {
                joining.push(begin_to_join(&id, address, args)?);
            }
            Group::Mapped(address) => id
                .resolve_addr(source, address, RESOLVE_TIMEOUT)
                .map_err(|error| Failure::from(error).during("resolve addr failure"))?,
        }
        ids.push(id);
    }
    while joined.len() < count {
        match channel.next_event(args.options.patience())? {
            Event::AddressResolved(event) => {
                joining.push(begin_to_join(event.id(), group.address(), args)?);
            }
            Event::MulticastJoined { event, .. } => {
                let at = joining.iter().position(|node| node.id == *event.id());
                let mut node = joining.swap_remove(at.ok_or("an id has joined unasked")?);
                take_way(&mut node, &event)?;
                joined.push(node);
            }
            event @ (Event::AddressError(_)
            | Event::RouteError(_)
            | Event::MulticastError { .. }
            | Event::DeviceRemoval(_)) => return Err(Failure::of_event(event)),
            _ => {}
        }
    }
    Ok(joined)
}

/// Makes a node of an id that has a device, and asks to join.
fn begin_to_join(id: &CmId, group: Address, args: &Args) -> Result<Node> {
    // Before joining, which attaches the queue pair to the group.
    let mut node = Node::new(id.clone(), args.options.load())?;
    if !args.is_sender {
        node.post_receives()?;
    }
    id.join_multicast(group, args.membership())
        .map_err(|error| Failure::from(error).during("failure joining"))?;
    Ok(node)
}

/// What is sent goes where the event tells.
fn take_way(node: &mut Node, event: &IdEvent) -> Result<()> {
    let way = event
        .datagram()
        .ok_or("the event tells no way to the group")?;
    say(format_args!(
        "mckey: joined dgid: {} mlid 0x{:x} sl {}",
        way.path.gid, way.path.lid, way.path.service_level
    ));
    node.send_to(way)
        .map_err(|failure| failure.during("failure creating address handle"))
}

/// Gives the network some time. Nothing tells when it is ready.
fn settle(channel: &EventChannel) -> Result<()> {
    let deadline = Instant::now() + SETTLING;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match channel.next_event(Some(left)) {
            Ok(event) => on_event(event)?,
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(nodes: &mut [Node], channel: &EventChannel, args: &Args) -> Result<()> {
    say("initiating data transfers");
    for node in &mut *nodes {
        // The last one completes after all others.
        node.post_sends(1)?;
    }
    for node in nodes {
        node.next_completion(channel, args.options.patience(), on_event)?;
    }
    Ok(())
}

fn receive(nodes: &mut [Node], channel: &EventChannel, args: &Args) -> Result<()> {
    say("receiving data transfers");
    // A sender may come at any time. Once it has begun, it does not pause.
    let mut patience = None;
    for node in nodes {
        for _ in 0..args.options.load().count {
            node.next_completion(channel, patience, on_event)?;
            patience = args.options.patience();
        }
    }
    Ok(())
}

/// Tells of events that come when all ids have joined: one may be thrown out of the group again.
fn on_event(event: Event) -> Result<()> {
    match event {
        Event::MulticastError { .. } | Event::AddressChange(_) => {
            let status = c_status(&event);
            let name = event.name();
            say(format_args!(
                "mckey: event: RDMA_CM_EVENT_{name}, status: {status}"
            ));
            Ok(())
        }
        Event::DeviceRemoval(_) => Err(Failure::of_event(event)),
        _ => Ok(()),
    }
}
