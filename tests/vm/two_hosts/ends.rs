//! Ends of a connection, one on each host.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rdmacm::{EventChannel, Result};

use super::host::Host;
use super::link::Link;
use crate::pair::{End, Plan, expect, listen, request};

/// Connects B to an address of A, where A listens; `seen_by_b` makes of the listener's address what
/// B connects to.
pub fn connect(
    link: &mut Link,
    listen_at: impl FnOnce() -> SocketAddr,
    seen_by_b: impl FnOnce(SocketAddr) -> SocketAddr,
) -> Result<End, Box<dyn Error>> {
    match Host::own() {
        Host::A => accept(link, listen_at()),
        Host::B => {
            let peer = seen_by_b(link.hear_address()?);
            reach(peer);
            let client = Plan::default().ask(peer)?;
            expect(&client.channel, "ESTABLISHED")?;
            Ok(client)
        }
    }
}

/// Asks for the peer's link address until it is known. Between busy guests the questions get lost, and
/// resolving an address for RDMA asks three times and then only waits.
pub fn reach(peer: SocketAddr) {
    for _ in 0..20 {
        match TcpStream::connect_timeout(&peer, Duration::from_secs(1)) {
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
                println!("{peer} is not reached yet: {error}");
            }
            _ => return,
        }
    }
}

fn accept(link: &mut Link, address: SocketAddr) -> Result<End, Box<dyn Error>> {
    let plan = Plan::default();
    let channel = EventChannel::open()?;
    let listener = listen(&channel, address)?;
    link.tell_address(listener.local_addr().expect("it listens"))?;
    let server = plan.end(request(&channel)?.into_id(), channel)?;
    server.id.accept(&plan.answered)?;
    expect(&server.channel, "ESTABLISHED")?;
    Ok(server)
}

/// Sends a message in each direction and looks at it.
pub fn exchange(link: &mut Link, end: &mut End) -> Result<(), Box<dyn Error>> {
    let inbox = end.buffer(6)?;
    end.post_recv(1, &inbox)?;
    link.meet("receives are posted")?;
    let outbox = end.buffer_of(b"onward")?;
    let segment = outbox.slice(..)?;
    end.post(|batch| batch.send(2).signaled().from(&[segment]))?;
    end.sent()?.result()?;
    end.received()?.result()?;
    assert_eq!(inbox.read_vec(0, 6)?, b"onward");
    Ok(())
}
