//! Two connected ends in one process, over the address under test.
//!
//! [`Plan::connect`] makes them of ids and queue pairs, [`endpoints`] of the crate's endpoints.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::{
    Access, Batch, Buffer, CmId, Completion, CompletionChannel, ConnParam, ConnectRequest,
    Connection, Connector, Context, Cq, Event, EventChannel, Listener, Pd, PortSpace, PostError,
    Qp, QpAttr, Result, Settings,
};

use crate::environment;

/// How long anything that must happen may take. Ample: the guest may be an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait before saying that something does not happen.
pub const QUIET: Duration = Duration::from_millis(100);

/// All that peers can be allowed on any device.
pub const ANY_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// The address under test, with a port of the kernel's choice.
pub fn any_port() -> SocketAddr {
    (environment::addr(), 0).into()
}

/// How two ends are to be made. The defaults suit a few messages of any size.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the server listens.
    pub address: SocketAddr,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub segments: u32,
    pub inline: u32,
    pub signal_all: bool,
    /// Both completion queues of an end report to one channel; else each has its own.
    pub one_channel: bool,
    /// What the client asks for.
    pub asked: ConnParam,
    /// What the server answers.
    pub answered: ConnParam,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            address: any_port(),
            send_depth: 16,
            recv_depth: 16,
            segments: 1,
            inline: 0,
            signal_all: false,
            one_channel: false,
            asked: ConnParam::new(),
            answered: ConnParam::new(),
        }
    }
}

/// Both ends of a connection.
#[derive(Debug)]
pub struct Pair {
    pub client: End,
    pub server: End,
}

/// One end of a connection, with completion queues of its own for sends and receives.
#[derive(Debug)]
pub struct End {
    pub id: CmId,
    pub channel: EventChannel,
    pub pd: Pd,
    pub send_cq: Cq,
    pub recv_cq: Cq,
    pub qp: Qp,
}

impl Plan {
    /// Connects two ends.
    pub fn connect(&self) -> Result<Pair> {
        let channel = EventChannel::open()?;
        let listener = listen(&channel, self.address)?;
        let client = self.ask(listener.local_addr().expect("a listener has an address"))?;
        let server = self.end(request(&channel)?.into_id(), channel)?;
        server.id.accept(&self.answered)?;
        expect(&client.channel, "ESTABLISHED")?;
        expect(&server.channel, "ESTABLISHED")?;
        Ok(Pair { client, server })
    }

    /// A client that has asked a listener for a connection.
    pub fn ask(&self, peer: SocketAddr) -> Result<End> {
        let channel = EventChannel::open()?;
        let client = self.end(resolve(&channel, peer)?, channel)?;
        client.id.connect(&self.asked)?;
        Ok(client)
    }

    /// Makes what an end needs besides its id.
    pub fn end(&self, id: CmId, channel: EventChannel) -> Result<End> {
        let pd = id.protection_domain()?;
        let context = pd.context();
        let channel_of_sends = context.completion_channel()?;
        let channel_of_receives = match self.one_channel {
            true => channel_of_sends.clone(),
            false => context.completion_channel()?,
        };
        let send_cq = queue(&channel_of_sends, context, self.send_depth)?;
        let recv_cq = queue(&channel_of_receives, context, self.recv_depth)?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&send_cq)
                .recv_cq(&recv_cq)
                .max_send_wr(self.send_depth)
                .max_recv_wr(self.recv_depth)
                .max_send_sge(self.segments)
                .max_recv_sge(self.segments)
                .max_inline_data(self.inline)
                .signal_all(self.signal_all),
        )?;
        Ok(End {
            id,
            channel,
            pd,
            send_cq,
            recv_cq,
            qp,
        })
    }
}

/// A completion queue with room for a work queue of this depth, which the device may round up to
/// less than twice as much.
fn queue(channel: &CompletionChannel, context: &Context, depth: u32) -> Result<Cq> {
    context.completion_queue(2 * depth).channel(channel).build()
}

impl End {
    /// A buffer that this end and its peer may use in every way.
    pub fn buffer(&self, length: usize) -> Result<Buffer> {
        self.pd.alloc(length, ANY_ACCESS)
    }

    /// A buffer with these bytes.
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Posts a batch of requests.
    pub fn post(
        &mut self,
        build: impl FnOnce(&mut Batch<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let mut batch = self.qp.send_half().batch();
        build(&mut batch)?;
        batch.submit()
    }

    /// Posts a receive into a whole buffer.
    pub fn post_recv(&mut self, wr_id: u64, buffer: &Buffer) -> Result<()> {
        let segment = buffer.slice(..)?;
        Ok(self.qp.recv_half().post(wr_id, &[segment])?)
    }

    /// The next completion of a request.
    pub fn sent(&mut self) -> Result<Completion> {
        next_completion(&mut self.send_cq)
    }

    /// The next completion of a receive.
    pub fn received(&mut self) -> Result<Completion> {
        next_completion(&mut self.recv_cq)
    }
}

/// Waits for one completion.
pub fn next_completion(cq: &mut Cq) -> Result<Completion> {
    let mut entry = [Completion::default()];
    cq.wait(&mut entry, Some(PATIENCE))?;
    Ok(entry[0])
}

/// An id that listens.
pub fn listen(channel: &EventChannel, address: SocketAddr) -> Result<CmId> {
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(address)?;
    listener.listen(0)?;
    Ok(listener)
}

/// An id whose way to `peer` is resolved.
pub fn resolve(channel: &EventChannel, peer: SocketAddr) -> Result<CmId> {
    resolve_from(channel, None, peer)
}

/// As [`resolve`], from a given source address.
pub fn resolve_from(
    channel: &EventChannel,
    source: Option<SocketAddr>,
    peer: SocketAddr,
) -> Result<CmId> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(source.map(Into::into), peer, PATIENCE)?;
    expect(channel, "ADDR_RESOLVED")?;
    id.resolve_route(PATIENCE)?;
    expect(channel, "ROUTE_RESOLVED")?;
    Ok(id)
}

/// Waits for an event and checks which it is, by its name in the C library.
pub fn expect(channel: &EventChannel, name: &str) -> Result<Event> {
    let event = channel.next_event(Some(PATIENCE))?;
    assert_eq!(event.name(), name, "{event:?}");
    Ok(event)
}

/// Waits for a request.
pub fn request(channel: &EventChannel) -> Result<ConnectRequest> {
    match expect(channel, "CONNECT_REQUEST")? {
        Event::ConnectRequest(request) => Ok(request),
        other => unreachable!("{other:?}"),
    }
}

/// A client and a server with the crate's default settings.
pub fn endpoints() -> Result<(Connection, Connection)> {
    endpoints_with(Settings::new(), Settings::new())
}

/// A client and a server.
pub fn endpoints_with(client: Settings, server: Settings) -> Result<(Connection, Connection)> {
    let listener = Listener::bind_with(any_port(), server)?;
    let address = listener.local_addr().expect("a listener has an address");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.incoming(Some(PATIENCE))?.prepare()?.establish());
        let connected = Connector::new().settings(client).connect(address);
        let accepted = accepting.join().expect("the server does not panic");
        Ok((connected?, accepted?))
    })
}

/// Bytes that differ from place to place and with the seed. They repeat, but not with any power
/// of two.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..251).map(|at| (at + 7 * seed) as u8).collect();
    let mut bytes = block.repeat(length / block.len() + 1);
    bytes.truncate(length);
    bytes
}

/// Checks that a buffer holds these bytes from `offset` on.
pub fn assert_holds(buffer: &Buffer, offset: usize, expected: &[u8]) {
    let found = buffer
        .read_vec(offset, expected.len())
        .expect("the bytes are in the buffer");
    let wrong = (0..expected.len()).find(|at| found[*at] != expected[*at]);
    assert_eq!(wrong, None, "the first wrong byte, counted from {offset}");
}
