//! Event channels.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmacm_kernel_abi::ucma;

use super::command::{self, Request};
use super::event::{ConnectRequest, Event, IdEvent};
use super::id::{self, CmId};
use super::{Ece, PortSpace, explain, multicast, peer_data};
use crate::device::Registry;
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::QpType;
use crate::sys::{Deadline, Kernel, Wake, wait_readable};

/// An event channel: ids are made on it, and what happens to them is read from it.
///
/// A cheap handle; the channel goes with the last handle and the last id on it. Several threads may
/// read: each event is given to one of them.
///
/// For event loops, [`AsFd`] gives the descriptor. It is non-blocking, and readable while the
/// kernel has an event. Call [`EventChannel::try_next_event`] until it returns `None`, in
/// level-triggered loops as well as in edge-triggered ones. It may do so at once: another reader
/// was faster, or the event was about an id that is gone.
#[doc(alias("rdma_event_channel", "rdma_create_event_channel"))]
#[derive(Clone)]
pub struct EventChannel(Arc<ChannelInner>);

struct ChannelInner {
    registry: &'static Registry,
    fd: OwnedFd,
    wake: Wake,
    closed: AtomicBool,
}

/// What a wait found.
pub(crate) struct Ready {
    /// An event can be read; another reader may be faster.
    pub event: bool,
    /// The other descriptor can be read.
    pub beside: bool,
}

impl EventChannel {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// When the kernel has no connection manager, its node is missing, or may not be used; the
    /// text tells which.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn open() -> Result<Self> {
        Self::open_on(Registry::of_this_machine())
    }

    pub(crate) fn open_on(registry: &'static Registry) -> Result<Self> {
        let kernel = &**registry.kernel();
        let path = Path::new("/dev/infiniband/rdma_cm");
        let fd = kernel
            .open(path)
            .map_err(|error| explain::open_channel(kernel, &error))?;
        let wake = Wake::new().map_err(|error| Error::from_os("open_event_channel", &error))?;
        Ok(Self(Arc::new(ChannelInner {
            registry,
            fd,
            wake,
            closed: AtomicBool::new(false),
        })))
    }

    /// Ends all waits for events, those under way and those to come, with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Ids on the channel are as they were; their
    /// events are not read any more. For stopping threads that read.
    ///
    /// Event loops that watch the descriptor themselves do not notice.
    #[doc(alias = "rdma_destroy_event_channel")]
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.wake.raise();
    }

    /// Lets the one that waits look at its queue pair again.
    pub(super) fn interrupt(&self) {
        self.0.wake.raise();
    }

    /// What is readable when a wait is to look again.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake(&self) -> &Wake {
        &self.0.wake
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            let text = "the event channel was closed";
            return Err(Error::new(operation, ErrorKind::Closed, text));
        }
        Ok(())
    }

    /// Waits until an event can be read or `beside` can, and says which: neither after
    /// [`EventChannel::interrupt`].
    pub(crate) fn wait(
        &self,
        operation: &'static str,
        beside: Option<BorrowedFd<'_>>,
        deadline: Deadline,
    ) -> Result<Ready> {
        self.check_open(operation)?;
        let (kernel, event, wake) = (self.kernel(), self.as_fd(), self.0.wake.as_fd());
        let [beside, event, woken] = match beside {
            Some(beside) => wait_readable(kernel, operation, [beside, event, wake], deadline)?,
            None => {
                let [event, woken] = wait_readable(kernel, operation, [event, wake], deadline)?;
                [false, event, woken]
            }
        };
        if woken {
            self.0.wake.calm();
            if self.0.closed.load(Ordering::Acquire) {
                // For the others that wait, and for ever.
                self.0.wake.raise();
            }
        }
        self.check_open(operation)?;
        Ok(Ready { event, beside })
    }

    /// Makes an id on the channel, with the kind of queue pair that the port space has: datagrams
    /// for [`PortSpace::Udp`] and [`PortSpace::Ipoib`], reliable connections for the others.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, or the channel was opened before a fork.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, port_space: PortSpace) -> Result<CmId> {
        self.create_id_for(port_space, port_space.qp_type())
    }

    /// As [`EventChannel::create_id`], with another kind of queue pair, which matters to
    /// [`PortSpace::Ib`].
    ///
    /// # Errors
    ///
    /// As [`EventChannel::create_id`].
    pub fn create_id_for(&self, port_space: PortSpace, qp_type: QpType) -> Result<CmId> {
        self.check_open("create_id")?;
        CmId::create(self, port_space, qp_type)
    }

    /// The next event; waits for it as long as `timeout` allows, for ever with `None`. Where events
    /// come in bursts, take them with [`EventChannel::try_next_event`] and wait only when there is
    /// none: that is one call of the kernel's less for each.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time,
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`EventChannel::close`].
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Event> {
        let deadline = Deadline::after(timeout);
        loop {
            self.wait("next_event", None, deadline)?;
            // Another reader may have been faster.
            if let Some(event) = self.try_next_event()? {
                return Ok(event);
            }
        }
    }

    /// The next event if one waits. Does not block.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the read; [`ErrorKind::Closed`](crate::ErrorKind::Closed) after
    /// [`EventChannel::close`].
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_next_event(&self) -> Result<Option<Event>> {
        self.check_open("next_event")?;
        loop {
            let raw = match self.call(&ucma::GetEvent::default()) {
                Ok(raw) => raw,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => continue,
                    _ => return Err(Error::from_os("next_event", &error)),
                },
            };
            if let Some(event) = self.receive(&raw) {
                return Ok(Some(event));
            }
        }
    }

    /// Turns the kernel's record into an event, carrying out what goes with it. `None` when it is
    /// about something that is gone, or hides an aftermath of something reported before.
    fn receive(&self, raw: &ucma::EventResp) -> Option<Event> {
        match raw.event_type() {
            ucma::EventType::CONNECT_REQUEST => self.receive_request(raw),
            ucma::EventType::MULTICAST_JOIN | ucma::EventType::MULTICAST_ERROR => {
                multicast::receive(raw)
            }
            kind => {
                let id = id::find(raw.uid)?;
                let is_datagram = id.is_datagram();
                IdEvent::new(id, raw, is_datagram).carry_out(kind)
            }
        }
    }

    /// A request brings a new id, which is ours to destroy whatever happens.
    fn receive_request(&self, raw: &ucma::EventResp) -> Option<Event> {
        let listener = id::find(raw.uid);
        let id = CmId::adopt(self, raw.id, listener.as_ref());
        // Without it the listener was destroyed while another thread fetched the request. Dropping
        // the new id rejects the peer.
        let listener = listener?;
        // A request for datagrams tells no way back: that comes with the datagrams.
        let (connection, _) = peer_data::of_event(raw, id.is_datagram());
        let taken_over = listener
            .bring_over(&id, self)
            .and_then(|()| id.take_offer(connection.offer(), Ece::from_kernel(raw.ece)));
        Some(match taken_over {
            Ok(()) => Event::ConnectRequest(ConnectRequest {
                listener,
                id,
                connection,
            }),
            Err(cause) => {
                let mut event = IdEvent::new(listener, raw, false);
                event.set_cause(cause);
                Event::RequestLost(event)
            }
        })
    }

    pub(super) fn registry(&self) -> &'static Registry {
        self.0.registry
    }

    fn kernel(&self) -> &dyn Kernel {
        &**self.0.registry.kernel()
    }

    /// Sends a command through the channel.
    pub(super) fn call<R: Request>(&self, request: &R) -> io::Result<R::Response> {
        command::call(self.kernel(), self.as_fd(), request)
    }

    /// Sets an option of an id on the channel.
    pub(super) fn set_option(&self, request: &ucma::SetOption, value: &[u8]) -> io::Result<()> {
        command::set_option(self.kernel(), self.as_fd(), request, value)
    }

    /// All services that were found for an id on the channel.
    pub(super) fn services(&self, id: u32) -> io::Result<Vec<ucma::IbUserServiceRec>> {
        let query = |room| command::query_services(self.kernel(), self.as_fd(), id, room);
        let (services, there) = query(8)?;
        if there <= services.len() {
            return Ok(services);
        }
        // The number is the kernel's, and no reason to ask for more than a command can.
        Ok(query(there.min(command::MOST_SERVICES))?.0)
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel")
            .field("fd", &self.0.fd)
            .finish_non_exhaustive()
    }
}

/// The same channel, not merely an equal one.
impl PartialEq for EventChannel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EventChannel {}

impl AsFd for EventChannel {
    /// For waiting only; events are read with [`EventChannel::try_next_event`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
