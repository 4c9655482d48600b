//! Kernel objects of a device: protection domains, memory regions, queues.
//!
//! Each is a handle that must be given back once, before the objects it was made from. A
//! [`KernelObject`] does that, and holds its parents until it has.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use rdmacm_kernel_abi::uverbs::ioctl;

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Attr, Value};

/// What an object is, for destroying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    ProtectionDomain,
    MemoryRegion,
    CompletionQueue,
    QueuePair,
}

impl ObjectKind {
    /// What it is called in error texts.
    fn name(self) -> &'static str {
        match self {
            Self::ProtectionDomain => "protection domain",
            Self::MemoryRegion => "memory region",
            Self::CompletionQueue => "completion queue",
            Self::QueuePair => "queue pair",
        }
    }

    /// The operation's name in errors.
    fn destroy_operation(self) -> &'static str {
        match self {
            Self::ProtectionDomain => "dealloc_pd",
            Self::MemoryRegion => "dereg_mr",
            Self::CompletionQueue => "destroy_cq",
            Self::QueuePair => "destroy_qp",
        }
    }
}

/// An object of the kernel's, destroyed when dropped or before.
#[derive(Debug)]
pub(crate) struct KernelObject {
    kind: ObjectKind,
    context: Context,
    handle: u32,
    /// Held for reading while a command names the handle: once it is destroyed the kernel may give
    /// the handle to another object.
    alive: RwLock<bool>,
    /// Objects that the kernel would refuse to destroy (`EBUSY`) before this one. Dropped after
    /// this one is destroyed.
    parents: Vec<Arc<KernelObject>>,
}

impl KernelObject {
    pub(crate) fn new(
        kind: ObjectKind,
        context: &Context,
        handle: u32,
        parents: Vec<Arc<KernelObject>>,
    ) -> Self {
        Self {
            kind,
            context: context.clone(),
            handle,
            alive: RwLock::new(true),
            parents,
        }
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Sends a command about the object, which is not destroyed meanwhile. Refused when it was
    /// destroyed before.
    pub(crate) fn with_handle<T>(
        &self,
        operation: &'static str,
        command: impl FnOnce(u32) -> Result<T>,
    ) -> Result<T> {
        let alive = self.alive.read().unwrap_or_else(PoisonError::into_inner);
        if *alive {
            return command(self.handle);
        }
        let explanation = format!("the {} was destroyed", self.kind.name());
        Err(Error::new(operation, ErrorKind::Destroyed, explanation))
    }

    /// Destroys the object. False when that was done before. After an error the object is as
    /// it was.
    pub(crate) fn destroy(&self) -> Result<bool> {
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        // A forked child has copies of objects that are still the parent's.
        if !*alive || self.context.is_inherited() {
            return Ok(false);
        }
        if let Err(error) = self.send_destroy() {
            // A device that was removed took the object with it.
            let is_gone = error.raw_os_error() == Some(libc::EIO) && self.context.is_disconnected();
            if !is_gone {
                return Err(Error::from_os(self.kind.destroy_operation(), &error));
            }
        }
        *alive = false;
        Ok(true)
    }

    fn send_destroy(&self) -> io::Result<()> {
        use ioctl::object;
        let handle = |id| Attr::new(id, Value::Handle(self.handle));
        match self.kind {
            ObjectKind::ProtectionDomain => self.context.method(
                object::PD,
                ioctl::pd::DESTROY,
                &mut [handle(ioctl::pd::destroy::HANDLE)],
            ),
            ObjectKind::MemoryRegion => self.context.method(
                object::MR,
                ioctl::mr::DESTROY,
                &mut [handle(ioctl::mr::destroy::HANDLE)],
            ),
            ObjectKind::CompletionQueue => {
                // The counts of events read so far; nobody has to wait for anybody to
                // acknowledge them, since events carry cookies.
                let mut events = [0; 8];
                self.context.method(
                    object::CQ,
                    ioctl::cq::DESTROY,
                    &mut [
                        handle(ioctl::cq::destroy::HANDLE),
                        Attr::new(ioctl::cq::destroy::RESP, Value::Out(&mut events)),
                    ],
                )
            }
            ObjectKind::QueuePair => {
                let mut events = [0; 4];
                self.context.method(
                    object::QP,
                    ioctl::qp::DESTROY,
                    &mut [
                        handle(ioctl::qp::destroy::HANDLE),
                        Attr::new(ioctl::qp::destroy::RESP, Value::Out(&mut events)),
                    ],
                )
            }
        }
    }
}

impl Drop for KernelObject {
    fn drop(&mut self) {
        // There is nobody to tell. One more attempt covers a passing shortage or a signal; an
        // object that is still refused stays until the context closes.
        if self.destroy().is_err() {
            let _ = self.destroy();
        }
        self.parents.clear();
    }
}
