//! Doorbell records: counters in memory that the device reads, two for each queue.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdmacm_kernel_abi::mlx5::DoorbellRecord;

use crate::error::{Error, Result};
use crate::sys::{Kernel, Memory, page_size};

/// Bytes from one record to the next: one a cache line, so that queues do not disturb each other.
const STRIDE: usize = 64;

/// Pages of records.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Places that were given back.
    free: Mutex<Vec<Place>>,
}

#[derive(Debug)]
struct Place {
    page: Arc<Memory>,
    offset: usize,
}

/// The two counters of a queue. Given back when dropped: after the queue is destroyed.
#[derive(Debug)]
pub(super) struct Record {
    place: Option<Place>,
    home: Arc<Records>,
    counters: NonNull<DoorbellRecord>,
}

// SAFETY: a `Record` is an address in a page that it keeps alive, of which no other record has this
// part; what is behind it is accessed as atomics only.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

impl Records {
    /// A record of zeros.
    pub(super) fn take(self: &Arc<Self>, kernel: &Arc<dyn Kernel>) -> Result<Record> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let length = page_size();
            let page = Memory::new(kernel, length)
                .map(Arc::new)
                .map_err(|error| Error::from_os("map_queue", &error))?;
            // The lowest last, which is taken first.
            free.extend((0..length / STRIDE).rev().map(|number| Place {
                page: Arc::clone(&page),
                offset: number * STRIDE,
            }));
        }
        let place = free.pop().expect("a page has places");
        // SAFETY: the offset lies in the page.
        let counters = unsafe { place.page.address().add(place.offset) }.cast();
        let record = Record {
            place: Some(place),
            home: Arc::clone(self),
            counters,
        };
        record.reset();
        Ok(record)
    }
}

impl Record {
    /// What the kernel is told.
    pub(super) fn address(&self) -> u64 {
        self.counters.as_ptr() as u64
    }

    /// Sets one of the two counters. The caller orders this after what it counts.
    #[inline(always)]
    pub(super) fn set(&self, which: usize, value: u32) {
        self.counter(which).store(value.to_be(), Ordering::Relaxed);
    }

    /// One of the two counters.
    pub(super) fn get(&self, which: usize) -> u32 {
        u32::from_be(self.counter(which).load(Ordering::Relaxed))
    }

    /// Sets both counters to zero.
    pub(super) fn reset(&self) {
        self.set(0, 0);
        self.set(1, 0);
    }

    /// Where one of the two counters is, in the device's byte order.
    #[inline(always)]
    pub(super) fn counter(&self, which: usize) -> &AtomicU32 {
        // SAFETY: the record is in memory that `self` keeps alive, has two counters, which the mask
        // says again, and is 64-aligned.
        unsafe { AtomicU32::from_ptr(self.counters.cast::<u32>().add(which & 1).as_ptr()) }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut free = self
            .home
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.extend(self.place.take());
    }
}
