//! The client: connects, and offers its memory to the server.
//!
//! What to learn here:
//!
//! * The steps from an address to a connection: resolve the address, which chooses the device;
//!   resolve the route; make the queues; connect. The outcome of each is an event.
//! * How memory is given to a peer: register it with the access that the peer needs and no more,
//!   then tell the peer the address and the remote key. From then on the peer's device uses the
//!   memory without this process having a part in it, so the peer's *messages* say when it is done.

use std::io::Write;
use std::time::Duration;

use rdmacm::{Access, Buffer, Event, EventChannel, PortSpace};

use crate::Result;
use crate::args::ClientOptions;
use crate::debug::debug;
use crate::pattern;
use crate::session::Session;
use crate::wire::Advertisement;

/// How long the kernel may take to find the way.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Pings the server as often as asked.
pub fn run(options: &ClientOptions) -> Result<()> {
    let mut session = prepare(options)?;
    let pd = session.protection_domain();
    let size = options.size;
    let mut buffers = Buffers {
        // The server reads from the one and writes to the other. A peer that tries more than that
        // loses its connection.
        source: pd.alloc(size, Access::REMOTE_READ)?,
        sink: pd.alloc(size, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
    };
    session.connect()?;
    debug!("connected");
    let mut ping = 0;
    while options.count.is_none_or(|count| ping < count) {
        run_ping(&mut session, &mut buffers, ping, options)
            .map_err(|error| format!("ping {ping}: {error}"))?;
        ping += 1;
    }
    session.close()
}

/// What the server reads from and writes to.
struct Buffers {
    source: Buffer,
    sink: Buffer,
}

/// Goes all the way to the handshake.
fn prepare(options: &ClientOptions) -> Result<Session> {
    let peer = options.peer.resolve()?;
    let source = options
        .source
        .as_ref()
        .map(|source| source.resolve())
        .transpose()?;
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    // The kernel's time limit ends each step with an event, so there is none here.
    id.resolve_addr(source.map(Into::into), peer, RESOLVE_TIMEOUT)?;
    let resolved = |event: &Event| matches!(event, Event::AddressResolved(_));
    channel.expect("resolve_addr", None, resolved)?;
    id.resolve_route(RESOLVE_TIMEOUT)?;
    let resolved = |event: &Event| matches!(event, Event::RouteResolved(_));
    channel.expect("resolve_route", None, resolved)?;
    Session::new(id, channel, options.timeout)
}

/// One ping: the server takes the text out of `source` and puts it into `sink`.
fn run_ping(
    session: &mut Session,
    buffers: &mut Buffers,
    ping: u32,
    options: &ClientOptions,
) -> Result<()> {
    let text = pattern::text(ping, options.size);
    buffers.source.write(0, &text)?;
    offer(session, &buffers.source)?;
    offer(session, &buffers.sink)?;
    let echo = buffers.sink.read_vec(0, options.size)?;
    if options.validate && echo != text {
        let first = text
            .iter()
            .zip(&echo)
            .take_while(|(sent, back)| sent == back)
            .count();
        return Err(format!("the data that came back differs from byte {first} on").into());
    }
    if options.verbose {
        writeln!(
            std::io::stdout(),
            "ping data: {}",
            pattern::printable(&echo)
        )?;
    }
    Ok(())
}

/// Tells the server about a buffer and waits until it is done with it.
fn offer(session: &mut Session, buffer: &Buffer) -> Result<()> {
    let offer = Advertisement {
        place: buffer.remote(),
        length: u32::try_from(buffer.len())?,
    };
    debug!("offering {offer:x?}");
    session.send(&offer.encode())?;
    match session.receive()? {
        Some(_go_ahead) => Ok(()),
        None => Err("the server ended the connection".into()),
    }
}
