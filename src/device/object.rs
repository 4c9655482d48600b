//! Kernel objects of a device: protection domains, memory regions, queues.
//!
//! Each is a handle that must be given back once, before the objects it was made from. A
//! [`KernelObject`] does that, and holds its parents until it has.

use std::fmt;
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
    MemoryWindow,
    AddressHandle,
    CompletionQueue,
    SharedReceiveQueue,
    QueuePair,
    XrcDomain,
}

impl ObjectKind {
    /// What it is called in error texts.
    fn name(self) -> &'static str {
        match self {
            Self::ProtectionDomain => "protection domain",
            Self::MemoryRegion => "memory region",
            Self::MemoryWindow => "memory window",
            Self::AddressHandle => "address handle",
            Self::CompletionQueue => "completion queue",
            Self::SharedReceiveQueue => "shared receive queue",
            Self::QueuePair => "queue pair",
            Self::XrcDomain => "XRC domain",
        }
    }

    /// The operation's name in errors.
    fn destroy_operation(self) -> &'static str {
        match self {
            Self::ProtectionDomain => "dealloc_pd",
            Self::MemoryRegion => "dereg_mr",
            Self::MemoryWindow => "dealloc_mw",
            Self::AddressHandle => "destroy_ah",
            Self::CompletionQueue => "destroy_cq",
            Self::SharedReceiveQueue => "destroy_srq",
            Self::QueuePair => "destroy_qp",
            Self::XrcDomain => "close_xrcd",
        }
    }

    /// The kernel's object and its method that destroys.
    fn destroy_method(self) -> (u16, u16) {
        use ioctl::object;
        match self {
            Self::ProtectionDomain => (object::PD, ioctl::pd::DESTROY),
            Self::MemoryRegion => (object::MR, ioctl::mr::DESTROY),
            Self::MemoryWindow => (object::MW, ioctl::mw::DESTROY),
            Self::AddressHandle => (object::AH, ioctl::ah::DESTROY),
            Self::CompletionQueue => (object::CQ, ioctl::cq::DESTROY),
            Self::SharedReceiveQueue => (object::SRQ, ioctl::srq::DESTROY),
            Self::QueuePair => (object::QP, ioctl::qp::DESTROY),
            Self::XrcDomain => (object::XRCD, ioctl::xrcd::DESTROY),
        }
    }

    /// How many bytes of event counts destroying it answers.
    fn event_counts(self) -> usize {
        match self {
            Self::CompletionQueue => 8,
            Self::SharedReceiveQueue | Self::QueuePair => 4,
            _ => 0,
        }
    }
}

/// Something that is to be kept, whatever it is.
pub(crate) type Kept = Arc<dyn fmt::Debug + Send + Sync>;

/// An object of the kernel's, destroyed when dropped or before.
#[derive(Debug)]
pub(crate) struct KernelObject {
    kind: ObjectKind,
    context: Context,
    handle: u32,
    /// Held for reading while a command names the handle: once it is destroyed the kernel may give
    /// the handle to another object.
    alive: RwLock<bool>,
    /// Memory that the device uses for as long as the object is there.
    kept: Vec<Kept>,
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
            kept: Vec::new(),
            parents,
        }
    }

    /// The same with memory that has to be there until it is destroyed.
    pub(crate) fn keeping(mut self, kept: Vec<Kept>) -> Self {
        self.kept = kept;
        self
    }

    /// The object belongs to others now; those that it was made from are let go.
    pub(crate) fn set_parents(&mut self, parents: Vec<Arc<KernelObject>>) {
        self.parents = parents;
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

    /// Whether it was destroyed.
    pub(crate) fn is_destroyed(&self) -> bool {
        !*self.alive.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys the object. False when that was done before. After an error the object is as
    /// it was. A forked child is refused: its objects are copies of the parent's.
    pub(crate) fn destroy(&self) -> Result<bool> {
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        if !*alive {
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
        // The attributes have the same numbers in all these methods.
        use ioctl::qp::destroy as id;
        let handle = Attr::new(id::HANDLE, Value::Handle(self.handle));
        let (object, method) = self.kind.destroy_method();
        // The counts of events read so far; nobody has to wait for anybody to acknowledge them,
        // since events carry cookies.
        let mut events = [0; 8];
        match self.kind.event_counts() {
            0 => self.context.method(object, method, &mut [handle]),
            length => {
                let counts = Attr::new(id::RESP, Value::Out(&mut events[..length]));
                self.context.method(object, method, &mut [handle, counts])
            }
        }
    }
}

impl Drop for KernelObject {
    fn drop(&mut self) {
        // There is nobody to tell. One more attempt covers a passing shortage or a signal; an
        // object that is still refused stays until the context closes. In a forked child, which
        // is refused, it stays the parent's.
        if self.destroy().is_err() && self.destroy().is_err() && !self.context.is_inherited() {
            // The device goes on using the memory. It is not to be anybody else's.
            std::mem::forget(std::mem::take(&mut self.kept));
        }
        self.parents.clear();
    }
}
