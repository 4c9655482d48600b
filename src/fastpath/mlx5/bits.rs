//! A set of small numbers that several threads add to.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: u32 = u64::BITS;

/// The set.
#[derive(Debug)]
pub(super) struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// An empty set of numbers below `count`.
    pub(super) fn new(count: u32) -> Self {
        Self(
            (0..count.div_ceil(WORD))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    /// Adds a number.
    #[inline]
    pub(super) fn set(&self, number: u32) {
        if let Some(word) = self.0.get((number / WORD) as usize) {
            // Release: what was read of the thing was read before somebody else uses it.
            word.fetch_or(1 << (number % WORD), Ordering::Release);
        }
    }

    /// Whether a number is in the set.
    pub(super) fn has(&self, number: u32) -> bool {
        // Acquire pairs with `set`.
        let word = self.0.get((number / WORD) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) & 1 << (number % WORD) != 0)
    }

    /// Takes a number out.
    pub(super) fn clear(&self, number: u32) {
        if let Some(word) = self.0.get((number / WORD) as usize) {
            word.fetch_and(!(1 << (number % WORD)), Ordering::Relaxed);
        }
    }

    /// The first run of numbers in a range that are all in the set: where it begins and its length.
    pub(super) fn first_run(&self, range: std::ops::Range<u32>) -> Option<(u32, u32)> {
        let first = range.clone().find(|number| self.has(*number))?;
        let length = (first..range.end)
            .take_while(|number| self.has(*number))
            .count();
        Some((first, length as u32))
    }
}
