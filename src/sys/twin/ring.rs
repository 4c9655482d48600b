//! The kernel's end of a ring that it shares with the program.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmacm_kernel_abi::rxe::{MmapInfo, QueueHeader};

use super::Outcome;
use super::files::FileId;
use super::memory::{Memory, PagesId};
use super::script::Script;

const HEADER: usize = size_of::<QueueHeader>();

/// A ring. Its geometry and the kernel's own index are kept here: what the program writes to the
/// header does not change them.
#[derive(Debug)]
pub(super) struct Ring {
    pages: PagesId,
    log2_slot_size: u32,
    mask: u32,
    /// The next slot to read or to fill.
    index: u32,
}

/// What became of an element for the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Done,
    Full,
    /// The program has given the ring back.
    Unmapped,
}

impl Ring {
    /// Makes a ring with room for `entries` elements.
    pub(super) fn new(
        memory: &mut Memory,
        script: &mut Script,
        file: FileId,
        entries: u32,
        element: usize,
    ) -> Outcome<(Self, MmapInfo)> {
        let slots = (entries + 1).next_power_of_two();
        let slot_size = element.next_power_of_two().max(64);
        let length = (HEADER + slots as usize * slot_size).next_multiple_of(4096);
        let (pages, address) = memory.offer(file, length)?;
        let log2_slot_size = slot_size.trailing_zeros();
        let mut header = QueueHeader {
            log2_elem_size: log2_slot_size,
            index_mask: slots - 1,
            ..Default::default()
        };
        script.change_ring(&mut header);
        // SAFETY: the memory is page aligned, longer than a header, and nobody else has it yet.
        unsafe { address.cast::<QueueHeader>().write(header) };
        let info = MmapInfo {
            offset: pages.offset(),
            size: length as u32,
            pad: 0,
        };
        Ok((
            Self {
                pages,
                log2_slot_size,
                mask: slots - 1,
                index: 0,
            },
            info,
        ))
    }

    /// How many elements fit.
    pub(super) fn depth(&self) -> u32 {
        self.mask
    }

    /// Bytes in a slot.
    pub(super) fn slot_size(&self) -> usize {
        1 << self.log2_slot_size
    }

    /// A ring with room for `entries` elements in place of this one, with what waits in it. The
    /// kernel fills it if `kernel_fills`, else the program.
    pub(super) fn resize(
        &mut self,
        memory: &mut Memory,
        script: &mut Script,
        file: FileId,
        entries: u32,
        kernel_fills: bool,
    ) -> Outcome<MmapInfo> {
        // Whoever does not fill it is the one whose index the header tells.
        let waiting = match kernel_fills {
            false => self.waiting(memory),
            true => self.held(memory),
        };
        if entries < waiting {
            return Err(libc::EINVAL);
        }
        let slot_size = self.slot_size();
        let (mut new, info) = Self::new(memory, script, file, entries, slot_size)?;
        let first = match kernel_fills {
            true => self.index.wrapping_sub(waiting) & self.mask,
            false => self.index,
        };
        let base = memory.address(new.pages).ok_or(libc::EFAULT)?;
        if let Some(old) = memory.address(self.pages) {
            for number in 0..waiting {
                let from = self.slot_at(old, first.wrapping_add(number) & self.mask);
                // SAFETY: both slots lie in memory that is there, and are of the same size.
                unsafe {
                    new.slot_at(base, number)
                        .copy_from_nonoverlapping(from, slot_size)
                };
            }
            consumer_index(old).store(first.wrapping_add(waiting) & self.mask, Ordering::Release);
        }
        producer_index(base).store(waiting, Ordering::Release);
        new.index = if kernel_fills { waiting } else { 0 };
        std::mem::replace(self, new).destroy(memory);
        Ok(info)
    }

    /// Forgets the ring: memory that the program has mapped is the program's to give back.
    pub(super) fn destroy(self, memory: &mut Memory) {
        memory.withdraw(self.pages);
    }

    /// How many elements of the program's wait.
    pub(super) fn waiting(&self, memory: &Memory) -> u32 {
        let Some(base) = memory.address(self.pages) else {
            return 0;
        };
        let produced = producer_index(base).load(Ordering::Acquire);
        produced.wrapping_sub(self.index) & self.mask
    }

    /// How many elements of the kernel's the program has not given back.
    pub(super) fn held(&self, memory: &Memory) -> u32 {
        let Some(base) = memory.address(self.pages) else {
            return 0;
        };
        let consumed = consumer_index(base).load(Ordering::Acquire);
        self.index.wrapping_sub(consumed) & self.mask
    }

    /// The next element that the program has handed over, while the ring is mapped.
    pub(super) fn peek(&self, memory: &Memory) -> Option<NonNull<u8>> {
        let base = memory.address(self.pages)?;
        // Acquire: pairs with the program's release of the elements.
        let produced = producer_index(base).load(Ordering::Acquire) & self.mask;
        (produced != self.index).then(|| self.slot(base))
    }

    /// The bytes of the next element's slot.
    pub(super) fn peek_bytes(&self, memory: &Memory) -> Option<Vec<u8>> {
        let slot = self.peek(memory)?;
        // SAFETY: the slot lies in the ring's memory, which was zeroed when it was made, and the
        // program has handed it over.
        Some(unsafe { NonNull::slice_from_raw_parts(slot, self.slot_size()).as_ref() }.to_vec())
    }

    /// Gives the element that `peek` found back to the program.
    pub(super) fn advance(&mut self, memory: &Memory) {
        self.index = (self.index + 1) & self.mask;
        if let Some(base) = memory.address(self.pages) {
            // Release: the element was read before the program may overwrite it.
            consumer_index(base).store(self.index, Ordering::Release);
        }
    }

    /// Hands an element to the program.
    pub(super) fn push(&mut self, memory: &Memory, element: &[u8]) -> Pushed {
        let Some(base) = memory.address(self.pages) else {
            return Pushed::Unmapped;
        };
        let after = (self.index + 1) & self.mask;
        // Acquire: pairs with the program's release of the slot.
        if consumer_index(base).load(Ordering::Acquire) & self.mask == after {
            return Pushed::Full;
        }
        let slot = self.slot(base);
        debug_assert!(element.len() <= self.slot_size());
        // SAFETY: the slot lies in the ring's memory, is large enough, and the program does not
        // touch it until the index says so.
        unsafe { slot.copy_from_nonoverlapping(NonNull::from(element).cast(), element.len()) };
        self.index = after;
        // Release: the element is there before the index that covers it.
        producer_index(base).store(after, Ordering::Release);
        Pushed::Done
    }

    fn slot(&self, base: NonNull<u8>) -> NonNull<u8> {
        self.slot_at(base, self.index)
    }

    fn slot_at(&self, base: NonNull<u8>, index: u32) -> NonNull<u8> {
        let offset = HEADER + ((index as usize) << self.log2_slot_size);
        // SAFETY: the index is below the number of slots that the memory was made for.
        unsafe { base.add(offset) }
    }
}

fn producer_index<'a>(base: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: the header is there while the caller, who holds the memory's table, uses the
    // reference; both sides treat the field as an atomic.
    unsafe { AtomicU32::from_ptr(&raw mut (*base.cast::<QueueHeader>().as_ptr()).producer_index) }
}

fn consumer_index<'a>(base: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: as for `producer_index`.
    unsafe { AtomicU32::from_ptr(&raw mut (*base.cast::<QueueHeader>().as_ptr()).consumer_index) }
}
