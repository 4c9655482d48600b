//! How streams are made.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::protocol;
use crate::cm::PathRecord;
use crate::sys::running_kernel;

/// Where the C library's defaults for streams are, one number to a file.
const DEFAULTS: &str = "/etc/rdma/rsocket";

/// Sizes and options of streams. What is not set is as `/etc/rdma/rsocket` says, which the C library
/// reads as well, or as the C library has it.
///
/// ```no_run
/// use std::time::Duration;
/// use rdmacm::{RdmaStream, StreamSettings};
///
/// let settings = StreamSettings::new().receive_buffer(1 << 20).connect_timeout(Duration::from_secs(2));
/// let stream = RdmaStream::connect_with("10.0.0.1:7471", &settings)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "rsetsockopt")]
pub struct StreamSettings {
    pub(super) sizes: Sizes,
    pub(super) spin: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) linger: Duration,
    pub(super) backlog: u32,
    pub(super) retry_count: u8,
    pub(super) source: Option<SocketAddr>,
    pub(super) type_of_service: Option<u8>,
    pub(super) keepalive: Option<Duration>,
    /// Empty: as the kernel finds it.
    pub(super) route: Vec<PathRecord>,
}

/// What each end of a stream has, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub send_depth: u16,
    pub receive_depth: u16,
    pub max_inline: u16,
    pub send_buffer: u32,
    pub receive_buffer: u32,
    pub mappings: u16,
}

/// The smallest depths and buffers that a stream works with.
const LEAST_DEPTH: u16 = 16;
const LEAST_SEND_BUFFER: u32 = 4096;
const LEAST_RECEIVE_BUFFER: u32 = 2;

/// The largest buffers. Places in them, and sums of these, are 32 bits long.
const LARGEST_BUFFER: u32 = 1 << 30;

impl Sizes {
    const fn of_c_library() -> Self {
        Self {
            send_depth: 384,
            receive_depth: 384,
            max_inline: 64,
            send_buffer: 1 << 17,
            receive_buffer: 1 << 17,
            mappings: 0,
        }
    }
}

/// The numbers of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Defaults {
    sizes: Sizes,
    spin: Duration,
}

impl Defaults {
    /// Those of this machine, read once.
    fn of_this_machine() -> Self {
        static DEFAULTS_READ: OnceLock<Defaults> = OnceLock::new();
        *DEFAULTS_READ.get_or_init(|| {
            let kernel = running_kernel();
            Self::read(|file| kernel.read_file(&Path::new(DEFAULTS).join(file)).ok())
        })
    }

    fn read(file: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| -> Option<u64> {
            let text = file(name)?;
            let text = text.trim_start();
            let digits = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            text[..digits].parse().ok()
        };
        let half = |file, default| number(file).map_or(default, |n| n.min(u16::MAX.into()) as u16);
        let word = |file, default| number(file).map_or(default, |n| n.min(u32::MAX.into()) as u32);
        let own = Sizes::of_c_library();
        let send_buffer = word("wmem_default", own.send_buffer);
        Self {
            sizes: Sizes {
                send_depth: half("sqsize_default", own.send_depth).max(LEAST_DEPTH),
                receive_depth: half("rqsize_default", own.receive_depth).max(LEAST_DEPTH),
                max_inline: half("inline_default", own.max_inline),
                send_buffer: send_buffer.clamp(LEAST_SEND_BUFFER, LARGEST_BUFFER),
                receive_buffer: word("mem_default", own.receive_buffer)
                    .clamp(LEAST_RECEIVE_BUFFER, LARGEST_BUFFER),
                mappings: protocol::scaled(half("iomap_size", own.mappings)),
            },
            spin: Duration::from_micros(word("polling_time", 10).into()),
        }
    }
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamSettings {
    /// The defaults: buffers of 128 KiB each way, queues of 384 requests, 64 bytes inline, 10 µs of
    /// polling before a call sleeps, 10 seconds to connect, 5 seconds to send what is left when a
    /// stream is closed.
    pub fn new() -> Self {
        let Defaults { sizes, spin } = Defaults::of_this_machine();
        Self {
            sizes,
            spin,
            connect_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(5),
            backlog: 0,
            // One less than the C library's 7, which rxe takes for "for ever".
            retry_count: 6,
            source: None,
            type_of_service: None,
            keepalive: None,
            route: Vec::new(),
        }
    }

    /// Bytes that are kept for the peer's data until the program reads it, 2 to 2^30. The peer is
    /// given half of it at a time.
    #[doc(alias("SO_RCVBUF", "mem_default"))]
    pub fn receive_buffer(mut self, bytes: u32) -> Self {
        self.sizes.receive_buffer = bytes.clamp(LEAST_RECEIVE_BUFFER, LARGEST_BUFFER);
        self
    }

    /// Bytes that a write can leave behind, under way to the peer; 4096 to 2^30.
    #[doc(alias("SO_SNDBUF", "wmem_default"))]
    pub fn send_buffer(mut self, bytes: u32) -> Self {
        self.sizes.send_buffer = bytes.clamp(LEAST_SEND_BUFFER, LARGEST_BUFFER);
        self
    }

    /// Messages to the peer that can be under way; at least 16, and at most what the device has.
    #[doc(alias("RDMA_SQSIZE", "sqsize_default"))]
    pub fn send_depth(mut self, messages: u16) -> Self {
        self.sizes.send_depth = messages.max(LEAST_DEPTH);
        self
    }

    /// Messages of the peer that can be under way; at least 16, and at most what the device has.
    #[doc(alias("RDMA_RQSIZE", "rqsize_default"))]
    pub fn receive_depth(mut self, messages: u16) -> Self {
        self.sizes.receive_depth = messages.max(LEAST_DEPTH);
        self
    }

    /// Writes of so many bytes are not copied into the send buffer, but into the request.
    #[doc(alias("RDMA_INLINE", "inline_default"))]
    pub fn max_inline(mut self, bytes: u16) -> Self {
        self.sizes.max_inline = bytes;
        self
    }

    /// How many pieces of its memory the peer may map for this side to write to
    /// ([`RdmaStream::map`](super::RdmaStream::map)); none at first. Up to 128, and multiples of 256 up
    /// to 32512; other numbers are taken for the next lower one.
    #[doc(alias("RDMA_IOMAPSIZE", "iomap_size"))]
    pub fn mappings(mut self, pieces: u16) -> Self {
        self.sizes.mappings = protocol::scaled(pieces);
        self
    }

    /// How long a waiting call polls before it sleeps. Longer saves wake-ups and costs processor time.
    /// Where it does not help, as on a machine with one processor, it is done now and then only.
    #[doc(alias = "polling_time")]
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// How long connecting may take, from the address to the handshake's end, and accepting from the
    /// peer's request on. Over iWARP a host that does not answer at all can take longer
    /// ([`CmId::connect`](crate::CmId::connect)), and keeps other calls of the stream waiting, and the
    /// handshakes of listeners where the stream connects without waiting.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long closing a stream waits for what was written to reach the peer; then it is given up.
    #[doc(alias = "SO_LINGER")]
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Connections that can wait at a listener to be accepted; further peers are rejected. 0, as at
    /// first, is 128.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// How often the device repeats what the peer's device does not answer, 0 to 7; 6 at first. 7 is
    /// for ever on rxe.
    pub fn retry_count(mut self, retries: u8) -> Self {
        self.retry_count = retries;
        self
    }

    /// Connects from this local address, which also chooses the device.
    #[doc(alias = "rbind")]
    pub fn source(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// The type of service of the packets: on RoCE the traffic class of the IP header.
    #[doc(alias("IP_TOS", "RDMA_OPTION_ID_TOS"))]
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.type_of_service = Some(type_of_service);
        self
    }

    /// Connects by this route instead of one that the kernel, or ibacm, looks for. The kernel takes the
    /// first path that is primary and leads both ways. [`RdmaStream::route`](super::RdmaStream::route)
    /// tells that of a connection.
    #[doc(alias = "RDMA_ROUTE")]
    pub fn route(mut self, paths: &[PathRecord]) -> Self {
        self.route = paths.to_vec();
        self
    }

    /// Looks after so long without a message whether the peer's device still answers, so that a
    /// machine that vanished ends the stream. Looks while a call of the stream waits.
    #[doc(alias("SO_KEEPALIVE", "TCP_KEEPIDLE"))]
    pub fn keepalive(mut self, idle: Option<Duration>) -> Self {
        self.keepalive = idle;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_the_place_of_the_defaults() {
        let none = Defaults::read(|_| None);
        assert_eq!(none.sizes, Sizes::of_c_library());
        assert_eq!(none.spin, Duration::from_micros(10));
        let read = Defaults::read(|file| {
            let text = match file {
                "mem_default" => "1048576\n",
                "wmem_default" => "1024",
                "sqsize_default" => " 99999 ",
                "rqsize_default" => "7 of them",
                "inline_default" => "none",
                "polling_time" => "0",
                _ => return None,
            };
            Some(text.to_owned())
        });
        assert_eq!(read.sizes.receive_buffer, 1 << 20);
        assert_eq!(read.sizes.send_buffer, 4096, "no less");
        assert_eq!(read.sizes.send_depth, u16::MAX);
        assert_eq!(read.sizes.receive_depth, 16, "no less");
        assert_eq!(read.sizes.max_inline, 64, "that is no number");
        assert_eq!(read.spin, Duration::ZERO);
        let large = StreamSettings::new()
            .receive_buffer(u32::MAX)
            .send_buffer(u32::MAX);
        assert_eq!(large.sizes.receive_buffer, 1 << 30, "no more");
        assert_eq!(large.sizes.send_buffer, 1 << 30, "no more");
    }
}
