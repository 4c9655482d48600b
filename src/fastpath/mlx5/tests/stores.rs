//! Pages in place of the device's registers, and what is stored to them.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::fastpath::mlx5::directory::Directory;
use crate::fastpath::mlx5::doorbell::observer;
use crate::fastpath::mlx5::record::Record;
use crate::fastpath::mlx5::register::{Register, Use};
use crate::sys::{Kernel, MapFor, Mapping, page_size};

/// Bytes of a register, both halves.
pub(super) const REGISTER: u64 = 512;

/// What was seen of the registers.
#[derive(Clone)]
pub(super) struct Stores(Rc<RefCell<Seen>>);

#[derive(Default)]
struct Seen {
    /// Address and bytes of each store.
    stores: Vec<(usize, u64)>,
    /// The doorbell record that must be up to date, and what it was at the first store.
    record: Option<RecordOf>,
    at_first_store: Option<[u8; 8]>,
    /// Where the pages lie, by their offsets in the device.
    pages: Vec<(u64, Arc<Mapping>)>,
}

#[derive(Clone)]
enum RecordOf {
    Pair(Arc<Record>),
    Completions(Arc<Directory>),
}

/// Stores to consecutive addresses.
pub(super) struct Run {
    pub map_offset: u64,
    pub page_off: u64,
    pub bytes: Vec<u8>,
    pub count: usize,
}

impl Stores {
    pub(super) fn new() -> Self {
        let stores = Self(Rc::default());
        let seen = Rc::clone(&stores.0);
        observer::observe(move |address, bytes| {
            let mut seen = seen.borrow_mut();
            if seen.stores.is_empty() {
                seen.at_first_store = seen.record.as_ref().map(RecordOf::bytes);
            }
            seen.stores.push((address, bytes));
        });
        stores
    }

    /// The page at an offset.
    pub(super) fn page(&self, kernel: &Arc<dyn Kernel>, offset: u64) -> Arc<Mapping> {
        let mut seen = self.0.borrow_mut();
        if let Some((_, page)) = seen.pages.iter().find(|(at, _)| *at == offset) {
            return Arc::clone(page);
        }
        let zero = File::options().read(true).write(true).open("/dev/zero");
        let zero = zero.expect("/dev/zero");
        let how = MapFor::ReadingAndWriting;
        let page = Mapping::new(kernel, zero.as_fd(), page_size(), 0, how).expect("a page");
        let page = Arc::new(page);
        seen.pages.push((offset, Arc::clone(&page)));
        page
    }

    /// The register at a place, whose turn is `half`.
    pub(super) fn register(
        &self,
        kernel: &Arc<dyn Kernel>,
        (page, at): (u64, u64),
        half: u64,
        how: Use,
    ) -> Arc<Register> {
        let page = self.page(kernel, page);
        let number = (at / REGISTER) as u32;
        let register = Register::new(&page, 0, number, REGISTER as u32 / 2, how, 0);
        let register = register.expect("a register in its page");
        if half != 0 {
            register.ring(0);
        }
        Arc::new(register)
    }

    /// Forgets what was stored; from now on the record of a queue pair is looked at.
    pub(super) fn watch_pair(&self, record: &Arc<Record>) {
        self.watch(RecordOf::Pair(Arc::clone(record)));
    }

    /// Forgets what was stored; from now on the record of the completion queue is looked at.
    pub(super) fn watch_completions(&self, directory: &Arc<Directory>) {
        self.watch(RecordOf::Completions(Arc::clone(directory)));
    }

    fn watch(&self, record: RecordOf) {
        let mut seen = self.0.borrow_mut();
        seen.record = Some(record);
        seen.stores.clear();
        seen.at_first_store = None;
    }

    /// The record at the first store.
    pub(super) fn record_at_first(&self) -> Option<[u8; 8]> {
        self.0.borrow().at_first_store
    }

    /// What was stored, adjacent stores put together.
    pub(super) fn runs(&self) -> Vec<Run> {
        let seen = self.0.borrow();
        let mut runs: Vec<Run> = Vec::new();
        for (address, bytes) in &seen.stores {
            let (map_offset, page_off) = seen.locate(*address);
            let last = runs.last_mut().filter(|run| {
                run.map_offset == map_offset && run.page_off + run.bytes.len() as u64 == page_off
            });
            match last {
                Some(run) => {
                    run.bytes.extend(bytes.as_bytes());
                    run.count += 1;
                }
                None => runs.push(Run {
                    map_offset,
                    page_off,
                    bytes: bytes.as_bytes().to_vec(),
                    count: 1,
                }),
            }
        }
        runs
    }
}

impl Seen {
    /// The page of an address, and the place in it.
    fn locate(&self, address: usize) -> (u64, u64) {
        let found = self.pages.iter().find_map(|(map_offset, page)| {
            let offset = address.checked_sub(page.address().as_ptr() as usize)?;
            (offset < page.length()).then_some((*map_offset, offset as u64))
        });
        found.expect("a store lies in a page")
    }
}

impl RecordOf {
    fn bytes(&self) -> [u8; 8] {
        match self {
            Self::Pair(record) => record_bytes(record),
            Self::Completions(directory) => record_bytes(directory.record()),
        }
    }
}

/// A doorbell record as it stands in memory.
pub(super) fn record_bytes(record: &Record) -> [u8; 8] {
    let value = u64::from(record.get(0)) << 32 | u64::from(record.get(1));
    value.to_be_bytes()
}
