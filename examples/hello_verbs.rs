//! Every step by hand: the connection manager's events, and verbs.
//!
//! ```text
//! cargo run --example hello_verbs                # the server
//! cargo run --example hello_verbs -- 192.0.2.1   # the client, with the server's address
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdmacm::{
    Access, CmId, Completion, ConnParam, Error, Event, EventChannel, PortSpace, QpAttr, Result,
    Wake,
};

const PORT: u16 = 7471;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let channel = EventChannel::open()?;
    match std::env::args().nth(1) {
        Some(server) => client(&channel, (server.parse::<IpAddr>()?, PORT).into())?,
        None => server(&channel)?,
    }
    Ok(())
}

fn client(channel: &EventChannel, server: SocketAddr) -> Result<()> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, server, Duration::from_secs(2))?;
    channel.expect("resolve_addr", PATIENCE, |event| {
        matches!(event, Event::AddressResolved(_))
    })?;
    id.resolve_route(Duration::from_secs(2))?;
    channel.expect("resolve_route", PATIENCE, |event| {
        matches!(event, Event::RouteResolved(_))
    })?;
    exchange(channel, &id, true)
}

fn server(channel: &EventChannel) -> Result<()> {
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(SocketAddr::from(([0, 0, 0, 0], PORT)))?;
    listener.listen(0)?;
    match channel.next_event(None)? {
        Event::ConnectRequest(request) => exchange(channel, request.id(), false),
        other => Err(other.into_error("accept")),
    }
}

/// Connects the id, or accepts its request, and exchanges a message.
fn exchange(channel: &EventChannel, id: &CmId, is_client: bool) -> Result<()> {
    let pd = id.protection_domain()?;
    let completions = pd.context().completion_channel()?;
    let mut cq = pd
        .context()
        .completion_queue(16)
        .channel(&completions)
        .build()?;
    let mut qp = id.create_qp(
        &QpAttr::new(&pd)
            .send_cq(&cq)
            .recv_cq(&cq)
            .max_send_wr(2)
            .max_recv_wr(2)
            .max_inline_data(64),
    )?;
    // Before the handshake: the peer's message can come at once.
    let inbox = pd.alloc(4096, Access::LOCAL_WRITE)?;
    qp.recv_half().post(1, &[inbox.slice(..)?])?;
    match is_client {
        true => id.connect(&ConnParam::new())?,
        false => id.accept(&ConnParam::new())?,
    }
    channel.expect("connect", PATIENCE, |event| {
        matches!(event, Event::Established(_))
    })?;
    let message: &[u8] = match is_client {
        true => b"hello from the client",
        false => b"hello from the server",
    };
    // The side that connects speaks first: over iWARP it has to.
    let (mut to_come, mut has_received) = (2, false);
    if is_client {
        send(&mut qp, message)?;
    }
    let mut entries = [Completion::default(); 4];
    while to_come > 0 {
        // Both are waited for: a peer that goes away causes an event and no completion.
        let done = match channel.wait_with(&mut cq, &mut entries, PATIENCE)? {
            Wake::Completions(done) => done,
            Wake::Event => match channel.next_event(None)? {
                // The peer has what it wanted, and so has this side.
                Event::Disconnected(_) if has_received => break,
                other => return Err(other.into_error("exchange")),
            },
        };
        for completion in done {
            to_come -= 1;
            let success = completion.result().map_err(Error::from)?;
            if completion.wr_id() == 1 {
                let bytes = inbox.read_vec(0, success.byte_len() as usize)?;
                has_received = true;
                println!("received: {}", String::from_utf8_lossy(&bytes));
                if !is_client {
                    send(&mut qp, message)?;
                }
            }
        }
    }
    id.disconnect()?;
    // The queue pair goes first, then the id, whatever is dropped when.
    id.destroy()
}

fn send(qp: &mut rdmacm::Qp, message: &[u8]) -> Result<()> {
    let mut batch = qp.send_half().batch();
    batch.send(2).signaled().inline(message)?;
    Ok(batch.submit()?)
}
