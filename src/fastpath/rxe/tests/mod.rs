//! The rings against the kernel's end of them.

// A model checker of its own.
#[cfg(not(miri))]
mod orders;
mod queues;
mod ring;
mod status;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::sys::twin::Twin;
use crate::sys::{Kernel, MapFor, Mapping};

/// A ring between the library and the twin.
struct Shared {
    twin: Arc<Twin>,
    _fd: OwnedFd,
    number: usize,
    mapping: Arc<Mapping>,
}

impl Shared {
    fn new(entries: u32, element: usize) -> Self {
        Self::on(&Twin::new(), entries, element)
    }

    fn on(twin: &Arc<Twin>, entries: u32, element: usize) -> Self {
        let fd = twin.open(Path::new("/dev/infiniband/uverbs0")).unwrap();
        let (number, info) = twin.new_ring(fd.as_fd(), entries, element);
        let kernel: Arc<dyn Kernel> = twin.clone();
        let mapping = Mapping::new(
            &kernel,
            fd.as_fd(),
            info.size as usize,
            info.offset,
            MapFor::ReadingAndWriting,
        )
        .unwrap();
        Self {
            twin: twin.clone(),
            _fd: fd,
            number,
            mapping: Arc::new(mapping),
        }
    }

    /// The next element that the library has handed over.
    fn take(&self) -> Option<Vec<u8>> {
        self.twin.take(self.number)
    }

    fn put(&self, element: &[u8]) -> bool {
        self.twin.put(self.number, element)
    }
}
