//! Asynchronous events of a device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromZeros, IntoBytes};

use super::Context;
use crate::error::{Error, Result};
use crate::sys::{Attr, Deadline, Value, wait_readable};

/// Something that happened to a device or one of its objects without anyone having asked.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The device failed and is gone (`IBV_EVENT_DEVICE_FATAL`).
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
    /// The port's GID table changed (`IBV_EVENT_GID_CHANGE`).
    GidChange {
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
        let port = event.element as u8;
        use uverbs::AsyncEventType;
        match AsyncEventType(event.event_type) {
            AsyncEventType::DEVICE_FATAL => Self::DeviceFatal,
            AsyncEventType::PORT_ACTIVE => Self::PortActive { port },
            AsyncEventType::PORT_ERR => Self::PortError { port },
            AsyncEventType::GID_CHANGE => Self::GidChange { port },
            AsyncEventType(kind) => Self::Other {
                kind,
                element: event.element,
            },
        }
    }
}

/// A stream of a device's asynchronous events, from the moment it was made.
///
/// Its descriptor is readable when an event waits.
#[derive(Debug)]
pub struct AsyncEvents {
    fd: OwnedFd,
    context: Context,
}

impl Context {
    /// Starts listening to the device's asynchronous events.
    ///
    /// # Errors
    ///
    /// When the device is gone or the process has no descriptor left.
    pub fn async_events(&self) -> Result<AsyncEvents> {
        let operation = "async_events";
        let mut fd = None;
        self.method(
            ioctl::object::ASYNC_EVENT,
            ioctl::async_event::ALLOC,
            &mut [Attr::new(
                ioctl::async_event::alloc::FD_HANDLE,
                Value::NewFd(&mut fd),
            )],
        )
        .map_err(|error| Error::from_os(operation, &error))?;
        let fd = fd.ok_or_else(|| Error::from_errno(operation, libc::EBADF))?;
        self.kernel()
            .set_nonblocking(fd.as_fd())
            .map_err(|error| Error::from_os(operation, &error))?;
        Ok(AsyncEvents {
            fd,
            context: self.clone(),
        })
    }
}

impl AsyncEvents {
    /// The next event; waits for it as long as `timeout` allows, for ever with `None`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time.
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(event) = self.try_next_event()? {
                return Ok(event);
            }
            let kernel = &**self.context.kernel();
            wait_readable(kernel, "next_async_event", [self.fd.as_fd()], deadline)?;
        }
    }

    /// The next event if one waits. Does not block.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the read.
    pub fn try_next_event(&self) -> Result<Option<AsyncEvent>> {
        let operation = "next_async_event";
        let mut event = uverbs::AsyncEventDesc::new_zeroed();
        let read = |()| {
            self.context
                .kernel()
                .read(self.fd.as_fd(), event.as_mut_bytes())
        };
        match self.context.check_own().and_then(read) {
            Ok(length) if length == size_of_val(&event) => {
                Ok(Some(AsyncEvent::from_kernel(&event)))
            }
            Ok(_) => Err(Error::from_errno(operation, libc::ENODATA)),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(error) => Err(Error::from_os(operation, &error)),
        }
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
