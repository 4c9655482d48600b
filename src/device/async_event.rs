//! Asynchronous events of a device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{self, ioctl};

use super::event_file::EventFile;
use super::{Context, CqToken, QpToken, SrqToken};
use crate::error::{Error, Result};
use crate::sys::{Attr, Value};

/// Something that happened to a device or one of its objects without anyone having asked.
///
/// An event of a queue names it by its token. Tokens are never used again, so that an event of a
/// queue that is gone names nothing.
///
/// An event is a plain value. Dropping it is all the acknowledgement that there is: destroying a
/// queue waits for nobody.
///
/// What a device reports depends on its driver. rxe and siw report completion queues that overflow,
/// limits of shared receive queues, ports that go down and come back, and
/// [`SendQueueDrained`](Self::SendQueueDrained). rxe reports GIDs as well; on Linux 6.12, but not on
/// 6.1, also [`LastWqeReached`](Self::LastWqeReached); and on 7.x
/// [`QpAccessError`](Self::QpAccessError). siw reports what fails at the peer or on this side:
/// [`QpFatal`](Self::QpFatal), [`QpRequestError`](Self::QpRequestError),
/// [`QpAccessError`](Self::QpAccessError).
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The completion queue was full, and a completion is lost (`IBV_EVENT_CQ_ERR`). With
    /// rxe there is one event for each completion, and the queue works again once it was polled; a
    /// queue pair goes on when the completion of a request is lost, and not when it is a receive's.
    CqError(CqToken),
    /// The queue pair failed, and no completion could say so (`IBV_EVENT_QP_FATAL`). siw reports it
    /// also where one does.
    QpFatal(QpToken),
    /// The queue pair received a request that makes no sense (`IBV_EVENT_QP_REQ_ERR`).
    QpRequestError(QpToken),
    /// The peer asked for memory that it may not reach (`IBV_EVENT_QP_ACCESS_ERR`). With siw also: what
    /// came was to be put into memory of this side that may not be written to.
    QpAccessError(QpToken),
    /// A message came before the queue pair was moved to RTS (`IBV_EVENT_COMM_EST`).
    /// [`CmId::notify_established`](crate::CmId::notify_established) tells the connection manager.
    CommunicationEstablished(QpToken),
    /// The send queue is drained, after a move to SQD (`IBV_EVENT_SQ_DRAINED`). With siw: there were
    /// requests when the connection ended, and all of them have come back.
    SendQueueDrained(QpToken),
    /// The connection went over to its alternate path (`IBV_EVENT_PATH_MIG`).
    PathMigrated(QpToken),
    /// The connection could not go over to its alternate path (`IBV_EVENT_PATH_MIG_ERR`).
    PathMigrationError(QpToken),
    /// The queue pair is in ERROR and takes no more from its shared receive queue
    /// (`IBV_EVENT_QP_LAST_WQE_REACHED`). It may come more than once.
    LastWqeReached(QpToken),
    /// The shared receive queue failed (`IBV_EVENT_SRQ_ERR`).
    SrqError(SrqToken),
    /// Fewer receives are left than [`Srq::arm_limit`](crate::Srq::arm_limit) said
    /// (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    SrqLimitReached(SrqToken),
    /// The device failed and is gone (`IBV_EVENT_DEVICE_FATAL`). Nothing comes after it.
    DeviceFatal,
    /// The port became active (`IBV_EVENT_PORT_ACTIVE`).
    PortActive {
        /// The port's number.
        port: u8,
    },
    /// The port went down (`IBV_EVENT_PORT_ERR`).
    PortError {
        /// The port's number.
        port: u8,
    },
    /// The port has another LID (`IBV_EVENT_LID_CHANGE`).
    LidChange {
        /// The port's number.
        port: u8,
    },
    /// The port's partition keys changed (`IBV_EVENT_PKEY_CHANGE`).
    PkeyChange {
        /// The port's number.
        port: u8,
    },
    /// The port's subnet has another manager (`IBV_EVENT_SM_CHANGE`).
    SmChange {
        /// The port's number.
        port: u8,
    },
    /// The subnet manager wants what was registered with it once more
    /// (`IBV_EVENT_CLIENT_REREGISTER`).
    ClientReregister {
        /// The port's number.
        port: u8,
    },
    /// The port's GID table changed (`IBV_EVENT_GID_CHANGE`).
    GidChange {
        /// The port's number.
        port: u8,
    },
    /// The port has another speed (`IBV_EVENT_DEVICE_SPEED_CHANGE`).
    SpeedChange {
        /// The port's number.
        port: u8,
    },
    /// Any other event.
    Other {
        /// The kernel's number for the event (`enum ib_uverbs_event_type`).
        kind: u32,
        /// The object's cookie or the port, as the kernel gave it.
        element: u64,
    },
}

impl AsyncEvent {
    fn from_kernel(event: &uverbs::AsyncEventDesc) -> Self {
        let cq = CqToken::from_kernel(event.element);
        let qp = QpToken::from_kernel(event.element);
        let srq = SrqToken::from_kernel(event.element);
        use uverbs::AsyncEventType as T;
        match T(event.event_type) {
            T::CQ_ERR => Self::CqError(cq),
            T::QP_FATAL => Self::QpFatal(qp),
            T::QP_REQ_ERR => Self::QpRequestError(qp),
            T::QP_ACCESS_ERR => Self::QpAccessError(qp),
            T::COMM_EST => Self::CommunicationEstablished(qp),
            T::SQ_DRAINED => Self::SendQueueDrained(qp),
            T::PATH_MIG => Self::PathMigrated(qp),
            T::PATH_MIG_ERR => Self::PathMigrationError(qp),
            T::QP_LAST_WQE_REACHED => Self::LastWqeReached(qp),
            T::SRQ_ERR => Self::SrqError(srq),
            T::SRQ_LIMIT_REACHED => Self::SrqLimitReached(srq),
            T::DEVICE_FATAL => Self::DeviceFatal,
            kind => Self::of_port(kind, event.element).unwrap_or(Self::Other {
                kind: kind.0,
                element: event.element,
            }),
        }
    }

    /// An event of a port that commands can name: the kernel numbers ports beyond 255 as well.
    fn of_port(kind: uverbs::AsyncEventType, element: u64) -> Option<Self> {
        let port = u8::try_from(element).ok()?;
        use uverbs::AsyncEventType as T;
        match kind {
            T::PORT_ACTIVE => Some(Self::PortActive { port }),
            T::PORT_ERR => Some(Self::PortError { port }),
            T::LID_CHANGE => Some(Self::LidChange { port }),
            T::PKEY_CHANGE => Some(Self::PkeyChange { port }),
            T::SM_CHANGE => Some(Self::SmChange { port }),
            T::CLIENT_REREGISTER => Some(Self::ClientReregister { port }),
            T::GID_CHANGE => Some(Self::GidChange { port }),
            T::DEVICE_SPEED_CHANGE => Some(Self::SpeedChange { port }),
            _ => None,
        }
    }
}

/// A stream of a device's asynchronous events, from the moment it was made.
///
/// Every stream has the events of device and ports. Those of a completion queue, queue pair or
/// shared receive queue come to one: the oldest that was open when the queue was made. Of a queue
/// that was made before there was any, nothing is reported, so a program begins with the stream.
///
/// Its descriptor is readable when an event waits, and fits any event loop.
///
/// ```no_run
/// # fn example(context: &rdmacm::Context) -> rdmacm::Result<()> {
/// use rdmacm::{AsyncEvent, SrqAttr};
///
/// let events = context.async_events()?;
/// let srq = context.alloc_pd()?.create_srq(&SrqAttr::default())?;
/// srq.arm_limit(4)?;
/// match events.next_event(None)? {
///     AsyncEvent::SrqLimitReached(token) if token == srq.token() => println!("post more"),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AsyncEvents(Arc<EventFile>);

impl Context {
    /// Starts listening to the device's asynchronous events.
    ///
    /// A kernel without RDMA ioctls has one stream for each open device, which is given to one at a
    /// time.
    ///
    /// # Errors
    ///
    /// When the device is gone or the process has no descriptor left.
    /// [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) when there is one stream only and
    /// it is in use.
    pub fn async_events(&self) -> Result<AsyncEvents> {
        let fd = match self.only_events() {
            Some(only) => Arc::clone(only),
            None => self.new_events()?,
        };
        self.kernel()
            .set_nonblocking(fd.as_fd())
            .map_err(|error| Error::from_os(OPERATION, &error))?;
        let file = Arc::new(EventFile::new(fd, self.clone()));
        self.note_event_file(&file)?;
        if self.only_events().is_some() {
            forget_older(&file);
        }
        Ok(AsyncEvents(file))
    }

    fn new_events(&self) -> Result<Arc<OwnedFd>> {
        let mut fd = None;
        self.method(
            ioctl::object::ASYNC_EVENT,
            ioctl::async_event::ALLOC,
            &mut [Attr::new(
                ioctl::async_event::alloc::FD_HANDLE,
                Value::NewFd(&mut fd),
            )],
        )
        .map_err(|error| Error::from_os(OPERATION, &error))?;
        let fd = fd.ok_or_else(|| Error::from_errno(OPERATION, libc::EBADF))?;
        Ok(Arc::new(fd))
    }
}

const OPERATION: &str = "async_events";

/// Takes out what the stream has held since the device was opened.
fn forget_older(file: &EventFile) {
    // Whatever the kernel does, this ends.
    const MOST: usize = 1 << 16;
    let read = || file.try_next::<uverbs::AsyncEventDesc>(OPERATION);
    let _ = (0..MOST)
        .take_while(|_| matches!(read(), Ok(Some(_))))
        .last();
}

impl AsyncEvents {
    /// The next event; waits for it as long as `timeout` allows, for ever with `None`.
    ///
    /// There is nothing to acknowledge. The kernel counts what was read and tells the number when
    /// an object is destroyed, but it is the C library that waits then, not the kernel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time.
    #[doc(alias("ibv_get_async_event", "ibv_ack_async_event"))]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent> {
        let record = self.0.next("next_async_event", timeout)?;
        Ok(AsyncEvent::from_kernel(&record))
    }

    /// The next event if one waits. Does not block.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the read.
    pub fn try_next_event(&self) -> Result<Option<AsyncEvent>> {
        let record = self.0.try_next("next_async_event")?;
        Ok(record.as_ref().map(AsyncEvent::from_kernel))
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rdmacm_kernel_abi::uverbs::AsyncEventDesc;

    use super::AsyncEvent;

    #[test]
    fn a_port_beyond_255_is_not_taken_for_another() {
        let of_port = |element| {
            AsyncEvent::from_kernel(&AsyncEventDesc {
                element,
                event_type: 9,
                reserved: 0,
            })
        };
        assert_eq!(of_port(255), AsyncEvent::PortActive { port: 255 });
        let kept = AsyncEvent::Other {
            kind: 9,
            element: 257,
        };
        assert_eq!(of_port(257), kept);
    }
}
