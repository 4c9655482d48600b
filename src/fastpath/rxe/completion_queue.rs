//! The completion queue, whose elements are completions as the kernel has them.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use super::ring::Consumer;
use crate::error::Error;
use crate::fastpath::completion::Completion;
use crate::sys::Mapping;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: Consumer,
}

impl CompletionQueue {
    /// Takes the ring over.
    pub(crate) fn new(mapping: Arc<Mapping>) -> Result<Self, Error> {
        Ok(Self {
            ring: Consumer::new(mapping, size_of::<uverbs::Wc>())?,
        })
    }

    /// How many completions fit.
    pub(crate) fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Takes out as many completions as there are, up to the length of `entries`, and returns them.
    #[inline(always)]
    pub(crate) fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        let full = self.ring.full();
        if full == 0 {
            return &[];
        }
        let count = entries.len().min(full);
        let entries = &mut entries[..count];
        if let [entry] = &mut *entries {
            self.ring.take_one(|slot| {
                // SAFETY: as in `take`.
                *entry = Completion(unsafe { slot.cast::<uverbs::Wc>().read() });
            });
        } else {
            self.take(&mut *entries);
        }
        entries
    }

    /// Takes out completions, which must be there.
    #[inline(never)]
    fn take(&mut self, entries: &mut [Completion]) {
        if entries.is_empty() {
            return;
        }
        let to = entries.as_mut_ptr();
        self.ring.take(entries.len(), |number, slot| {
            // SAFETY: `new` checked that a slot holds a `Wc`, every bit pattern of which is valid,
            // and the kernel does not touch the slot before it is given back. The number is below
            // `entries.len()`.
            unsafe {
                to.add(number)
                    .write(Completion(slot.cast::<uverbs::Wc>().read()))
            };
        });
    }
    /// How many completions there are.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.full() as u32
    }

    /// Where the completions that there are now end.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.ring.produced()
    }

    /// Takes the next completion before `end`. Its slot is the kernel's again after `give_back`.
    #[inline]
    pub(crate) fn next_before(&mut self, end: u32) -> Option<Completion> {
        let slot = self.ring.next_before(end)?;
        // SAFETY: as in `poll`; the kernel does not touch the slot before `give_back`.
        Some(Completion(unsafe { slot.cast::<uverbs::Wc>().read() }))
    }

    /// Gives the slots that `next_before` emptied to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        self.ring.give_back();
    }
}
