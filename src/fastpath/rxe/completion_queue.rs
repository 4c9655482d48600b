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

    /// Takes out as many completions as there are, up to the length of `entries`.
    #[inline(always)]
    pub(crate) fn poll(&mut self, entries: &mut [Completion]) -> usize {
        match entries {
            [] => 0,
            [entry] => {
                let taken = self.ring.take_one(|slot| {
                    // SAFETY: as in `poll_many`.
                    *entry = Completion(unsafe { slot.cast::<uverbs::Wc>().read() });
                });
                usize::from(taken)
            }
            many => self.poll_many(many),
        }
    }

    #[inline(never)]
    fn poll_many(&mut self, entries: &mut [Completion]) -> usize {
        let to = entries.as_mut_ptr();
        self.ring.drain(entries.len(), |index, slot| {
            // SAFETY: `new` checked that a slot holds a `Wc`, every bit pattern of which is valid,
            // and the kernel does not touch the slot before `drain` gives it back. The index is
            // below `entries.len()`: `drain` counts no further.
            unsafe {
                to.add(index)
                    .write(Completion(slot.cast::<uverbs::Wc>().read()))
            };
        })
    }
}
