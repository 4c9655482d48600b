//! Memory that the twin hands out: rings, and pages of the program's own.
//!
//! It comes from the heap, page aligned, and is given back when the program unmaps it, so that a
//! sanitizer sees every access that comes too late.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

use super::Outcome;
use super::files::FileId;

const PAGE: usize = 4096;

/// Names a range of memory for as long as the twin lives; addresses are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagesId(u64);

impl PagesId {
    /// The offset under which a file can map the range.
    pub(super) fn offset(self) -> u64 {
        self.0 * PAGE as u64
    }
}

#[derive(Debug)]
enum State {
    /// A ring that this file may map, once.
    Offered(FileId),
    /// In the program's hands, with the length that it asked for.
    Mapped(usize),
}

#[derive(Debug)]
struct Pages {
    id: PagesId,
    address: NonNull<u8>,
    layout: Layout,
    state: State,
}

// SAFETY: an address of memory that this object owns; who reads or writes there says why that is
// sound across threads.
unsafe impl Send for Pages {}

impl Pages {
    fn new(id: PagesId, length: usize, state: State) -> Outcome<Self> {
        let layout = Layout::from_size_align(length.next_multiple_of(PAGE), PAGE)
            .map_err(|_| libc::ENOMEM)?;
        if layout.size() == 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the size is not zero.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(libc::ENOMEM)?;
        Ok(Self {
            id,
            address,
            layout,
            state,
        })
    }

    fn range(&self) -> Range<u64> {
        let start = self.address.as_ptr() as u64;
        start..start + self.layout.size() as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed here only.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    pages: Vec<Pages>,
    made: u64,
}

impl Memory {
    fn add(&mut self, length: usize, state: State) -> Outcome<(PagesId, NonNull<u8>)> {
        self.made += 1;
        let pages = Pages::new(PagesId(self.made), length, state)?;
        let added = (pages.id, pages.address);
        self.pages.push(pages);
        Ok(added)
    }

    /// Makes memory that `file` may map.
    pub(super) fn offer(&mut self, file: FileId, length: usize) -> Outcome<(PagesId, NonNull<u8>)> {
        self.add(length, State::Offered(file))
    }

    /// Carries out the mapping of offered memory. An offer can be taken up once.
    pub(super) fn map(&mut self, file: FileId, length: usize, offset: u64) -> Outcome<NonNull<u8>> {
        let pages = self
            .pages
            .iter_mut()
            .find(|pages| {
                pages.id.offset() == offset
                    && matches!(pages.state, State::Offered(by) if by == file)
            })
            .ok_or(libc::EINVAL)?;
        if length == 0 || length > pages.layout.size() {
            return Err(libc::EINVAL);
        }
        pages.state = State::Mapped(length);
        Ok(pages.address)
    }

    /// Carries out a mapping of fresh memory.
    pub(super) fn map_fresh(&mut self, length: usize) -> Outcome<NonNull<u8>> {
        self.add(length, State::Mapped(length))
            .map(|(_, address)| address)
    }

    /// Frees a mapping. `None` when there is no such mapping.
    pub(super) fn unmap(&mut self, address: NonNull<u8>, length: usize) -> Option<PagesId> {
        let is_it = |pages: &Pages| {
            pages.address == address && matches!(pages.state, State::Mapped(all) if all == length)
        };
        let index = self.pages.iter().position(is_it)?;
        Some(self.pages.swap_remove(index).id)
    }

    /// Takes an offer back, if it was not taken up.
    pub(super) fn withdraw(&mut self, id: PagesId) {
        self.pages
            .retain(|pages| pages.id != id || !matches!(pages.state, State::Offered(_)));
    }

    /// Where a range of memory is, while it is there.
    pub(super) fn address(&self, id: PagesId) -> Option<NonNull<u8>> {
        self.pages
            .iter()
            .find(|pages| pages.id == id)
            .map(|pages| pages.address)
    }

    /// The memory that an address lies in, if it is the twin's.
    pub(super) fn containing(&self, address: u64) -> Option<PagesId> {
        self.pages
            .iter()
            .find(|pages| pages.range().contains(&address))
            .map(|pages| pages.id)
    }

    pub(super) fn mapped_count(&self) -> usize {
        self.pages
            .iter()
            .filter(|pages| matches!(pages.state, State::Mapped(_)))
            .count()
    }
}
