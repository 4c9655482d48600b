//! Event channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmacm_kernel_abi::ucma;

use super::command::{self, Request};
use super::event::{ConnectRequest, ConnectionData, Event, IdEvent, Status};
use super::id::{self, CmId};
use super::{PortSpace, explain};
use crate::device::Registry;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, Kernel, Wake, wait_readable};

/// An event channel: ids are made on it, and what happens to them is read from it.
///
/// A cheap handle; the channel goes with the last handle and the last id on it. Its descriptor is
/// readable when an event waits, and fits any event loop. Several threads may read: each event is
/// given to one of them.
#[doc(alias("rdma_event_channel", "rdma_create_event_channel"))]
#[derive(Debug, Clone)]
pub struct EventChannel(Arc<ChannelInner>);

#[derive(Debug)]
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
        let [event, woken, beside] = match beside {
            Some(beside) => wait_readable(kernel, operation, [event, wake, beside], deadline)?,
            None => {
                let [event, woken] = wait_readable(kernel, operation, [event, wake], deadline)?;
                [event, woken, false]
            }
        };
        self.check_open(operation)?;
        if woken {
            self.0.wake.calm();
        }
        Ok(Ready { event, beside })
    }

    /// Makes an id on the channel.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, or the channel was opened before a fork.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, port_space: PortSpace) -> Result<CmId> {
        CmId::create(self, port_space)
    }

    /// The next event; waits for it as long as `timeout` allows, for ever with `None`.
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
    /// When the kernel refuses the read. When a new connection could not be taken over, for want of
    /// memory or descriptors; its peer is rejected, and the channel goes on.
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
            if let Some(event) = self.receive(&raw)? {
                return Ok(Some(event));
            }
        }
    }

    /// Turns the kernel's record into an event, carrying out what goes with it. `None` when it is
    /// about an id that is gone, or hides an aftermath of something reported before.
    fn receive(&self, raw: &ucma::EventResp) -> Result<Option<Event>> {
        let kind = raw.event_type();
        let target = id::find(raw.uid);
        if kind == ucma::EventType::CONNECT_REQUEST {
            return self.receive_request(target, raw);
        }
        let Some(id) = target else { return Ok(None) };
        let event = IdEvent {
            id,
            status: Status::from_kernel(raw.status),
            connection: ConnectionData::from_kernel(raw.conn()),
            cause: None,
        };
        Ok(event.carry_out(kind))
    }

    /// A request brings a new id, which is ours to destroy whatever happens.
    fn receive_request(
        &self,
        listener: Option<CmId>,
        raw: &ucma::EventResp,
    ) -> Result<Option<Event>> {
        let port_space = listener.as_ref().map_or(PortSpace::Tcp, CmId::port_space);
        let id = CmId::adopt(self, raw.id, port_space);
        let Some(listener) = listener else {
            // The listener was destroyed while another thread fetched the request. Dropping the new
            // id rejects the peer.
            return Ok(None);
        };
        listener.bring_over(&id, self)?;
        let connection = ConnectionData::from_kernel(raw.conn());
        id.take_offer(connection.offer())?;
        Ok(Some(Event::ConnectRequest(ConnectRequest {
            listener,
            id,
            connection,
        })))
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
}

/// The same channel, not merely an equal one.
impl PartialEq for EventChannel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EventChannel {}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
