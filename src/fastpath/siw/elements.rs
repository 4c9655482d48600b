//! A mapped array of elements that change hands one by one.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Result;
use crate::fastpath::provider::bad_queue;
use crate::sys::Mapping;

/// The array, reached by a counter that never ends: the place of an element is the counter modulo
/// the number of elements.
#[derive(Debug)]
pub(super) struct Elements<T> {
    first: NonNull<u8>,
    mask: u32,
    /// Keeps `first` valid.
    _mapping: Arc<Mapping>,
    _element: PhantomData<T>,
}

// SAFETY: an `Elements` is an address into a mapping that it keeps alive. What is behind it is
// reached only through the queues, each by `&mut` of its one user, or as atomics.
unsafe impl<T> Send for Elements<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Elements<T> {}

impl<T> Elements<T> {
    /// `count` elements from the start of the mapping on.
    pub(super) fn new(mapping: Arc<Mapping>, count: u32) -> Result<Self> {
        let length = count as usize * size_of::<T>();
        if !count.is_power_of_two() || length > mapping.length() {
            let bytes = mapping.length();
            return Err(bad_queue(format!(
                "a queue of {count} elements is none, or not in {bytes} bytes"
            )));
        }
        Ok(Self {
            first: mapping.address(),
            mask: count - 1,
            _mapping: mapping,
            _element: PhantomData,
        })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.mask + 1
    }

    /// The element that `counter` leads to. Aligned to 8 as the elements are: the mapping begins at
    /// a page, and their sizes are multiples of 8.
    #[inline]
    pub(super) fn at(&self, counter: u32) -> NonNull<T> {
        let index = (counter & self.mask) as usize;
        // SAFETY: `new` checked that `mask + 1` elements lie in the mapping.
        unsafe { self.first.cast::<T>().add(index) }
    }
}
