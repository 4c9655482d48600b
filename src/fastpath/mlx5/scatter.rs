//! Short messages that arrive within their completion: the processor copies them to where the
//! request or the receive says, as the device would have done.
//!
//! The device no longer checks whether that memory is registered. So this does: a copy into memory
//! that was given back would be a copy into somebody else's.

use std::collections::HashMap;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rdmacm_kernel_abi::mlx5::{
    AtomicSeg, CtrlSeg, DataSeg, INLINE_SCATTER_64, INVALID_LKEY, Opcode, RaddrSeg, SrqNextSeg,
};
use rdmacm_kernel_abi::uverbs::WcStatus;

use super::card::Card;
use super::cq_ring::Entry;
use super::posted::{Incoming, Sends};
use super::sizes::SEGMENT;
use crate::device::Context;
use crate::error::Result;

/// The registered memory of an open device that may be written, by local key.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<HashMap<u32, Arc<Region>>>);

/// A registered range of memory.
#[derive(Debug)]
struct Region {
    /// The addresses that requests name.
    iova: Range<u64>,
    /// What is added to such an address to find the memory.
    shift: u64,
    /// Held for reading while something is copied, for writing when the registration ends: nobody
    /// waits for a reader but who ends it.
    alive: RwLock<bool>,
}

/// The regions, as one poller knows them: the last few that it copied to are at hand, without the
/// lock that all pollers share.
#[derive(Debug)]
pub(super) struct KnownRegions {
    all: Arc<Regions>,
    recent: [Option<(u32, Arc<Region>)>; RECENT],
}

const RECENT: usize = 4;

/// Notes a region for as long as it exists. When it is dropped, no copy is under way, and none will
/// be.
#[derive(Debug)]
pub(crate) struct RegionNote {
    lkey: u32,
    region: Arc<Region>,
    home: Arc<Regions>,
}

/// Notes `length` bytes from `address` on, which requests name by `iova`.
pub(crate) fn note_region(
    context: &Context,
    lkey: u32,
    (iova, address, length): (u64, u64, u64),
) -> Result<RegionNote> {
    Ok(Regions::note(
        &Card::of(context)?.regions,
        lkey,
        (iova, address, length),
    ))
}

impl Drop for RegionNote {
    fn drop(&mut self) {
        let mut regions = self.home.lock();
        // The kernel may have given the key to another region meanwhile.
        let is_known = regions.get(&self.lkey);
        if is_known.is_some_and(|known| Arc::ptr_eq(known, &self.region)) {
            regions.remove(&self.lkey);
        }
        drop(regions);
        let alive = self.region.alive.write();
        *alive.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Regions {
    pub(super) fn note(
        self: &Arc<Self>,
        lkey: u32,
        (iova, address, length): (u64, u64, u64),
    ) -> RegionNote {
        let region = Arc::new(Region {
            iova: iova..iova.saturating_add(length),
            shift: address.wrapping_sub(iova),
            alive: RwLock::new(true),
        });
        self.lock().insert(lkey, Arc::clone(&region));
        RegionNote {
            lkey,
            region,
            home: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Region>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, lkey: u32) -> Option<Arc<Region>> {
        self.lock().get(&lkey).cloned()
    }
}

impl KnownRegions {
    pub(super) fn new(all: Arc<Regions>) -> Self {
        Self {
            all,
            recent: Default::default(),
        }
    }

    /// Copies to the memory that a segment names. False when that is not registered.
    fn copy(&mut self, lkey: u32, iova: u64, bytes: &[u8]) -> bool {
        // The low byte of a key is the program's; regions follow one another in the rest.
        let recent = &mut self.recent[(lkey >> 8) as usize % RECENT];
        let known = recent.as_ref().filter(|(known, _)| *known == lkey);
        if known.is_some_and(|(_, region)| region.copy(iova, bytes)) {
            return true;
        }
        // The region of this key may be another by now.
        *recent = self.all.find(lkey).map(|region| (lkey, region));
        let known = recent.as_ref();
        known.is_some_and(|(_, region)| region.copy(iova, bytes))
    }
}

impl Region {
    /// Copies to an address. False when it is not in the region, or the registration has ended or
    /// is about to.
    fn copy(&self, iova: u64, bytes: &[u8]) -> bool {
        let Ok(alive) = self.alive.try_read() else {
            return false;
        };
        let end = iova.checked_add(bytes.len() as u64);
        let is_inside = self.iova.start <= iova && end.is_some_and(|end| end <= self.iova.end);
        if !*alive || !is_inside {
            return false;
        }
        let to = iova.wrapping_add(self.shift) as *mut u8;
        // SAFETY: the range is registered, and stays so while the lock is held: who registered it
        // vouches that it is mapped, and that the device may write where a receive or a read says,
        // which is what happens here in its stead.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }
}

/// Copies an answer to the segments of the read or atomic that begins at a block.
#[cold]
pub(super) fn to_request(
    entry: Entry,
    block: u32,
    sends: &Sends,
    length: u32,
    regions: &mut KnownRegions,
) -> WcStatus {
    if !sends.is_reliable {
        return WcStatus::GENERAL_ERR;
    }
    let memory = &sends.memory;
    // SAFETY: a request begins with this segment.
    let control = unsafe { memory.at(block).cast::<CtrlSeg>().read() };
    let opcode = Opcode(control.opmod_idx_opcode.get() as u8);
    let before = match opcode {
        Opcode::RDMA_READ => size_of::<CtrlSeg>() + size_of::<RaddrSeg>(),
        Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => {
            size_of::<CtrlSeg>() + size_of::<RaddrSeg>() + size_of::<AtomicSeg>()
        }
        _ => return WcStatus::REM_INV_REQ_ERR,
    };
    let before = before as u32 / SEGMENT;
    let all = control.qpn_ds.get() & 0x3f;
    let per_block = memory.stride() as u32 / SEGMENT;
    let list = (before..all).map(|number| {
        let block = memory
            .at(block.wrapping_add(number / per_block))
            .cast::<DataSeg>();
        // SAFETY: a block has so many segments.
        unsafe { block.add((number % per_block) as usize).read() }
    });
    copy(entry, list, length, regions)
}

/// Copies a message to the segments of its receive.
#[cold]
pub(super) fn to_receive(
    entry: Entry,
    counter: u32,
    incoming: &Incoming,
    length: u32,
    regions: &mut KnownRegions,
) -> WcStatus {
    let (memory, link) = match incoming {
        Incoming::Own(receives) => (&receives.memory, 0),
        Incoming::Shared(receives) => (&receives.memory, size_of::<SrqNextSeg>()),
        Incoming::None => return WcStatus::GENERAL_ERR,
    };
    let first = memory.at(counter);
    let count = (memory.stride() - link) / size_of::<DataSeg>();
    let list = (0..count).map(|number| {
        // SAFETY: a place has so many segments behind its link.
        unsafe { first.add(link).cast::<DataSeg>().add(number).read() }
    });
    let list = list.take_while(|segment| segment.lkey.get() != INVALID_LKEY);
    copy(entry, list, length, regions)
}

/// Copies `length` bytes of an entry to a list of segments.
fn copy(
    entry: Entry,
    list: impl Iterator<Item = DataSeg>,
    length: u32,
    regions: &mut KnownRegions,
) -> WcStatus {
    let is_before = entry.op_own & INLINE_SCATTER_64 != 0;
    let room = if is_before { 64 } else { 32 };
    let Some(data) = entry.data(is_before) else {
        return WcStatus::GENERAL_ERR;
    };
    if length > room {
        return WcStatus::LOC_LEN_ERR;
    }
    let mut bytes = &data[..length as usize];
    for segment in list {
        if bytes.is_empty() {
            break;
        }
        let count = bytes.len().min(segment.byte_count.get() as usize);
        let (now, later) = bytes.split_at(count);
        if !now.is_empty() && !regions.copy(segment.lkey.get(), segment.addr.get(), now) {
            return WcStatus::LOC_PROT_ERR;
        }
        bytes = later;
    }
    match bytes.is_empty() {
        true => WcStatus::SUCCESS,
        false => WcStatus::LOC_LEN_ERR,
    }
}
