//! How an endpoint's connections are made.

use std::time::Duration;

use crate::cm::ConnParam;
use crate::error::Result;

/// Sizes and parameters of a connection. The defaults suit request and answer programs.
///
/// ```
/// use std::time::Duration;
/// use rdmacm::Settings;
///
/// let settings = Settings::new().recv_depth(128).connect_timeout(Duration::from_secs(3));
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) send_depth: u32,
    pub(super) recv_depth: u32,
    pub(super) segments: u32,
    pub(super) max_inline: u32,
    pub(super) backlog: u32,
    pub(super) connect_timeout: Duration,
    pub(super) spin: Duration,
    pub(super) param: ConnParam,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// The defaults: 32 sends and 32 receives of up to 4 segments, 64 bytes inline, 10 seconds to
    /// connect, 20 µs of polling before a wait sleeps, and [`ConnParam::new`] with 6 retries
    /// instead of 7, which rxe takes for "for ever": a machine that vanishes ends the send that it
    /// does not answer.
    pub fn new() -> Self {
        Self {
            send_depth: 32,
            recv_depth: 32,
            segments: 4,
            max_inline: 64,
            backlog: 0,
            connect_timeout: Duration::from_secs(10),
            spin: Duration::from_micros(20),
            // One retry less than the C library's 7, which rxe takes for "for ever": a peer's
            // machine that vanishes must not keep a send waiting for all time.
            param: ConnParam::new().retry_count(6),
        }
    }

    /// Send requests that can be outstanding.
    pub fn send_depth(mut self, requests: u32) -> Self {
        self.send_depth = requests;
        self
    }

    /// Requests that can wait at a listener, see [`CmId::listen`](crate::CmId::listen); 0, as at the
    /// beginning, is the most that the kernel allows. Leave it so on siw, whose listeners do not
    /// survive more.
    pub fn backlog(mut self, requests: u32) -> Self {
        self.backlog = requests;
        self
    }

    /// Receives that can be outstanding.
    pub fn recv_depth(mut self, receives: u32) -> Self {
        self.recv_depth = receives;
        self
    }

    /// Segments in a request or receive.
    pub fn segments(mut self, segments: u32) -> Self {
        self.segments = segments;
        self
    }

    /// Bytes that are sent without registered memory.
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.max_inline = bytes;
        self
    }

    /// How long making a connection may take, from the address to the handshake's end.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a waiting call polls before it sleeps; 20 µs at first. Longer saves wake-ups and
    /// costs processor time.
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Bytes that the peer gets with the request, or with its acceptance.
    ///
    /// # Errors
    ///
    /// As [`ConnParam::private_data`].
    pub fn private_data(mut self, bytes: &[u8]) -> Result<Self> {
        self.param = self.param.private_data(bytes)?;
        Ok(self)
    }

    /// Replaces the connection parameters, private data included. With them come their own retries,
    /// 7 unless [`ConnParam::retry_count`] says otherwise: on rxe that is for ever.
    pub fn conn_param(mut self, param: ConnParam) -> Self {
        self.param = param;
        self
    }
}
