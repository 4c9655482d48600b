//! The server: listens, and reads from and writes to its clients' memory.
//!
//! What to learn here:
//!
//! * A connection request brings an id of its own, whose events come through the listener's
//!   channel at first. [`CmId::migrate`] moves it to another channel, so that each client's thread
//!   waits for its own events only.
//! * A client tells addresses and lengths. What goes wrong there must hurt nobody else: the length
//!   is checked against the buffer at hand, the device checks the rest, and with `-P` only this
//!   client's thread ends.
//! * A client that has had enough just disconnects. Between two pings that is a good end.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;

use rdmacm::{Access, Buffer, CmId, Event, EventChannel, PortSpace, Transport};

use crate::Result;
use crate::args::{ServeOptions, ServerOptions};
use crate::debug::debug;
use crate::pattern;
use crate::session::Session;
use crate::wire::{Advertisement, GO_AHEAD};

/// Requests that wait for being read; the kernel drops further ones, and the clients repeat them.
const BACKLOG: u32 = 128;

/// Serves one client, or with `-P` all that come.
pub fn run(options: &ServerOptions) -> Result<()> {
    let channel = EventChannel::open()?;
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(options.local.resolve()?)?;
    listener.listen(BACKLOG)?;
    debug!("listening on {:?}", listener.local_addr());
    if options.persistent {
        return serve_all(&channel, options.connection);
    }
    let client = next_client(&channel)?;
    // Nobody else is served, so the next client is better refused than kept waiting.
    listener.destroy()?;
    client.serve(options.connection)
}

/// Gives each client a thread. Ends when listening fails, and not otherwise.
fn serve_all(channel: &EventChannel, options: ServeOptions) -> Result<()> {
    loop {
        let client = next_client(channel)?;
        let name = client.name();
        let serve = {
            let name = name.clone();
            move || report(&name, client.serve(options))
        };
        // When there is no thread, the client is dropped with the closure, and so refused.
        if let Err(error) = thread::Builder::new().name(name.clone()).spawn(serve) {
            report(&name, Err(error.into()));
        }
    }
}

fn report(client: &str, outcome: Result<()>) {
    match outcome {
        Ok(()) => debug!("{client}: done"),
        Err(error) => eprintln!("rping: {client}: {error}"),
    }
}

/// A client that waits for an answer. Dropping it refuses the client.
struct Client {
    id: CmId,
    /// Where the events of the id come, and of no other.
    channel: Result<EventChannel>,
}

/// Waits for the next client's request.
fn next_client(channel: &EventChannel) -> Result<Client> {
    loop {
        match channel.next_event(None)? {
            Event::ConnectRequest(request) => {
                let id = request.into_id();
                debug!("a request from {:?}", id.peer_addr());
                // At once, before another event of the id is read from the listener's channel.
                let channel = own_channel(&id);
                return Ok(Client { id, channel });
            }
            event @ Event::DeviceRemoval(_) => return Err(event.into_error("listen").into()),
            event => debug!("event {}", event.name()),
        }
    }
}

fn own_channel(id: &CmId) -> Result<EventChannel> {
    let channel = EventChannel::open()?;
    id.migrate(&channel)?;
    Ok(channel)
}

impl Client {
    fn name(&self) -> String {
        self.id
            .peer_addr()
            .as_ref()
            .map_or("unknown client".to_owned(), SocketAddr::to_string)
    }

    /// Accepts the client and answers its pings until it disconnects.
    fn serve(self, options: ServeOptions) -> Result<()> {
        let needed = data_access(&self.id)?;
        let mut session = Session::new(self.id, self.channel?, options.timeout)?;
        let data = session.protection_domain().alloc(options.room, needed)?;
        session.accept()?;
        debug!("connected");
        let mut ping = 0;
        while let Some(offer) = session.receive()? {
            answer(&mut session, &data, Advertisement::decode(offer), options)
                .map_err(|error| format!("ping {ping}: {error}"))?;
            ping += 1;
        }
        debug!("the client ended the connection after {ping} pings");
        session.close()
    }
}

/// What the device does with the buffer for the data. iWARP carries a read out as a write by the
/// peer, so there the peer needs access; nobody else is told the key.
fn data_access(id: &CmId) -> Result<Access> {
    Ok(match id.context()?.device().transport() {
        Transport::Iwarp => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        _ => Access::LOCAL_WRITE,
    })
}

/// One ping: fetches the text from where the client offers it, and puts it where it wants it.
fn answer(
    session: &mut Session,
    data: &Buffer,
    source: Advertisement,
    options: ServeOptions,
) -> Result<()> {
    debug!("reading from {source:x?}");
    let length = source.length_within(1, data.len())?;
    session.read(source.place, data.slice(..length)?)?;
    let text = data.read_vec(0, length)?;
    let end = pattern::before_zero(&text)
        .ok_or("the data has no zero byte at its end")?
        .len();
    if options.verbose {
        writeln!(
            std::io::stdout(),
            "server ping data: {}",
            pattern::printable(&text)
        )?;
    }
    session.send(&GO_AHEAD)?;

    let sink = session
        .receive()?
        .ok_or("the client ended the connection")?;
    let sink = Advertisement::decode(sink);
    debug!("writing to {sink:x?}");
    // With the zero byte. The client chooses the size of its buffer; ours must fit in there.
    let length = end + 1;
    sink.length_within(length, u32::MAX as usize)?;
    session.write(data.slice(..length)?, sink.place)?;
    session.send(&GO_AHEAD)
}
