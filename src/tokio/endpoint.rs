//! Connections in one call each.

use std::future::poll_fn;
use std::net::SocketAddr;

use ::tokio::net::{ToSocketAddrs, lookup_host};

use super::watch::{Wait, Watched};
use crate::endpoint::Awaited;
use crate::error::{Error, Result};
use crate::{
    Access, Batch, Buffer, CmId, Completion, Incoming, Pd, PostError, Prepared, QpCapabilities,
    RemoteAddress, Segment, Settings,
};

/// Connects to listeners: [`rdmacm::Connector`](crate::Connector) for tasks.
///
/// ```no_run
/// use rdmacm::tokio::Connector;
///
/// # async fn example() -> rdmacm::Result<()> {
/// let connector = Connector::from(rdmacm::Connector::new());
/// let mut connection = connector.connect("10.0.0.1:7471").await?;
/// connection.send(b"hello").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Connector(crate::Connector);

impl Connector {
    /// A connector with the default [`Settings`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Connects: see [`rdmacm::Connector::connect`](crate::Connector::connect).
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Connector::connect`](crate::Connector::connect).
    pub async fn connect(&self, peer: impl ToSocketAddrs) -> Result<Connection> {
        let peers = addresses("connect", peer).await?;
        let connection = self.0.connect_by::<Watched>(peers.into_iter()).await?;
        Ok(Connection(Awaited::new(connection)?))
    }

    /// As [`Connector::connect`], up to the handshake, so that receives can be posted before it. Go on
    /// with [`Connection::establish`].
    ///
    /// # Errors
    ///
    /// As [`Connector::connect`], but for the peer's answer.
    pub async fn prepare(&self, peer: impl ToSocketAddrs) -> Result<Prepared> {
        let peers = addresses("connect", peer).await?;
        self.0.prepare_by::<Watched>(peers.into_iter()).await
    }
}

impl From<crate::Connector> for Connector {
    fn from(connector: crate::Connector) -> Self {
        Self(connector)
    }
}

/// Waits for connections: [`rdmacm::Listener`](crate::Listener) for tasks.
///
/// ```no_run
/// use rdmacm::tokio::Listener;
///
/// # async fn example() -> rdmacm::Result<()> {
/// let mut listener = Listener::bind("0.0.0.0:7471").await?;
/// let mut connection = listener.accept().await?;
/// println!("{:?} is connected", connection.peer_addr());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Listener {
    listener: crate::Listener,
    wait: Wait,
}

impl Listener {
    /// Listens on an address: see [`rdmacm::Listener::bind`](crate::Listener::bind).
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Listener::bind`](crate::Listener::bind).
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self> {
        Self::bind_with(address, Settings::new()).await
    }

    /// As [`Listener::bind`], with settings for the connections to come.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub async fn bind_with(address: impl ToSocketAddrs, settings: Settings) -> Result<Self> {
        let addresses = addresses("bind", address).await?;
        let listener = crate::Listener::bind_with(&addresses[..], settings)?;
        let wait = Wait::new();
        Ok(Self { listener, wait })
    }

    /// The address that the listener listens on.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for a peer's request. A future that is dropped takes none with it. Go on with
    /// [`Incoming::prepare`], in a task of its own where there are many, and
    /// [`Connection::establish`].
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Listener::incoming`](crate::Listener::incoming).
    pub async fn incoming(&mut self) -> Result<Incoming> {
        let (listener, wait) = (&self.listener, &mut self.wait);
        poll_fn(|cx| listener.poll_incoming(cx, wait)).await
    }

    /// Waits for a peer and connects with it. A future that is dropped during the handshake ends that
    /// peer's connection; where that matters, use [`Listener::incoming`].
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Listener::accept`](crate::Listener::accept).
    pub async fn accept(&mut self) -> Result<Connection> {
        Connection::establish(self.incoming().await?.prepare()?).await
    }
}

/// An established connection: [`rdmacm::Connection`](crate::Connection) for tasks.
///
/// Calls that wait end when the peer disconnects or its process dies. A future that is dropped has not
/// taken its request back: that is still carried out, and memory that the library keeps for it is
/// kept until then. The device uses memory that the program has for it until then as well. Completions
/// that such a request gives later are nobody's.
#[derive(Debug)]
pub struct Connection(Awaited<Watched>);

impl Connection {
    /// Makes the handshake of a connection that is prepared, and waits for its end. A future that is
    /// dropped ends the connection.
    ///
    /// # Errors
    ///
    /// As [`Prepared::establish`].
    pub async fn establish(prepared: Prepared) -> Result<Self> {
        let connection = prepared.establish_by::<Watched>().await?;
        Ok(Self(Awaited::new(connection)?))
    }

    /// The id of the connection.
    pub fn id(&self) -> &CmId {
        self.0.connection.id()
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.connection.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.connection.peer_addr()
    }

    /// As [`rdmacm::Connection::private_data`](crate::Connection::private_data).
    pub fn private_data(&self) -> &[u8] {
        self.0.connection.private_data()
    }

    /// The protection domain, for registering memory.
    pub fn protection_domain(&self) -> &Pd {
        self.0.connection.protection_domain()
    }

    /// The sizes of the queue pair.
    pub fn capabilities(&self) -> QpCapabilities {
        self.0.connection.capabilities()
    }

    /// Allocates and registers a buffer for sends, receives and reads.
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`].
    pub fn alloc(&self, length: usize) -> Result<Buffer> {
        self.0.connection.alloc(length)
    }

    /// Allocates and registers a buffer that the peer may use as `access` says.
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`].
    pub fn alloc_with(&self, length: usize, access: Access) -> Result<Buffer> {
        self.0.connection.alloc_with(length, access)
    }

    /// As [`rdmacm::Connection::post_recv`](crate::Connection::post_recv).
    ///
    /// # Errors
    ///
    /// A full receive queue, a number that is taken.
    pub fn post_recv(&mut self, wr_id: u64, segment: Segment) -> Result<(), PostError> {
        self.0.connection.post_recv(wr_id, segment)
    }

    /// Waits for the next message. A future that is dropped takes none with it.
    ///
    /// # Errors
    ///
    /// The end of the connection, a message that did not fit.
    pub async fn recv_completion(&mut self) -> Result<Completion> {
        self.0.received().await
    }

    /// Sends a message and waits until the peer has it. The bytes are copied before that.
    ///
    /// # Errors
    ///
    /// As [`rdmacm::Connection::send`](crate::Connection::send).
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message).await
    }

    /// Sends a message out of registered memory and waits until the peer has it.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub async fn send_from(&mut self, segments: &[Segment]) -> Result<()> {
        let send = |batch: &mut Batch<'_>, wr_id| batch.send(wr_id).signaled().from(segments);
        self.0.carry_out("send", send).await
    }

    /// Writes into the peer's memory and waits until it is there.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`], and a remote key that does not allow it.
    pub async fn write(&mut self, to: RemoteAddress, segments: &[Segment]) -> Result<()> {
        let write = |batch: &mut Batch<'_>, wr_id| batch.write(wr_id, to).signaled().from(segments);
        self.0.carry_out("write", write).await
    }

    /// Reads from the peer's memory and waits until it is here.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`], and a remote key that does not allow it.
    pub async fn read(&mut self, from: RemoteAddress, segments: &[Segment]) -> Result<()> {
        let read = |batch: &mut Batch<'_>, wr_id| batch.read(wr_id, from).signaled().into(segments);
        self.0.carry_out("read", read).await
    }

    /// Begins a batch of requests that nobody waits for yet: see
    /// [`rdmacm::Connection::batch`](crate::Connection::batch).
    pub fn batch(&mut self) -> Batch<'_> {
        self.0.connection.batch()
    }

    /// Waits for the next completion of a batch's requests. A future that is dropped takes none with
    /// it.
    ///
    /// # Errors
    ///
    /// The end of the connection, a request that failed.
    pub async fn send_completion(&mut self) -> Result<Completion> {
        self.0.requested().await
    }
}

async fn addresses(operation: &'static str, name: impl ToSocketAddrs) -> Result<Vec<SocketAddr>> {
    let found = lookup_host(name).await.map_err(|error| {
        // The resolver's errors are not errnos; its text is all there is.
        Error::invalid(operation, format!("the address does not resolve: {error}"))
    })?;
    Ok(found.collect())
}
