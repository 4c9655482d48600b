//! Async forms of what waits, for [tokio](https://docs.rs/tokio). With the feature `tokio`.
//!
//! * [`RdmaStream`] and [`RdmaListener`] are byte streams, as tokio's `TcpStream` and `TcpListener`
//!   are: what reads and writes those, such as an HTTP library, works over RDMA.
//! * [`RdmaDatagram`] is for datagrams, as tokio's `UdpSocket`.
//! * [`Connector`], [`Listener`] and [`Connection`] exchange messages.
//! * [`EventChannel`], [`CompletionChannel`] and [`Cq`] wait for what their namesakes of the crate
//!   wait for.
//!
//! ```no_run
//! use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use rdmacm::tokio::RdmaListener;
//!
//! # async fn example() -> std::io::Result<()> {
//! let listener = RdmaListener::bind("0.0.0.0:7471").await?;
//! loop {
//!     let (mut stream, _) = listener.accept().await?;
//!     ::tokio::spawn(async move {
//!         let mut bytes = [0; 4096];
//!         while let Ok(length @ 1..) = stream.read(&mut bytes).await {
//!             stream.write_all(&bytes[..length]).await?;
//!         }
//!         stream.shutdown().await
//!     });
//! }
//! # }
//! ```
//!
//! # What holds for all
//!
//! * A future that is dropped, by `select!` or a timeout, has lost nothing: what it would have
//!   returned is returned by the next one. No memory that a device may still write is given back.
//! * There is no thread behind it, and no timer of the runtime is needed. Handshakes go on while
//!   somebody polls [`RdmaStream::connect`] or [`RdmaListener::accept`]; a task that connects to a
//!   listener of its own has to `join!` the two.
//! * Making a connection, and ending one, calls the kernel, which may take a millisecond or a few:
//!   memory is registered, queues are made. Reading and writing do not wait in the kernel.
//!
//! # Panics
//!
//! Waiting panics in a runtime whose I/O is disabled. Outside of any runtime it is an error.

mod completions;
mod datagram;
mod endpoint;
mod event_channel;
mod fairness;
mod linger;
mod listener;
mod names;
mod reading;
mod split;
mod stream;
mod watch;
mod writing;

pub use completions::{CompletionChannel, Cq};
pub use datagram::RdmaDatagram;
pub use endpoint::{Connection, Connector, Listener};
pub use event_channel::EventChannel;
pub use listener::RdmaListener;
pub use reading::ReadHalf;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use stream::RdmaStream;
pub use writing::WriteHalf;
