//! Memory regions: memory that a device may touch.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::{Access, MrChange, Pd};
use crate::device::{Context, DriverPart, KernelObject, ObjectKind};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Provider, RegionNote, RemoteAddress, Segment};
use crate::sys::{Attr, Memory, Value, page_size};

/// A registered range of memory that the program manages itself. [`Buffer`](super::Buffer) is the
/// safe alternative.
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct Mr {
    pub(super) registration: Arc<Registration>,
    pub(super) pd: Pd,
    pub(super) access: Access,
    /// What requests name the first byte by.
    pub(super) address: u64,
    /// Where the first byte is.
    pub(super) start: u64,
    pub(super) length: usize,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// A region as the kernel knows it. A memory window that is bound to it holds it as well: the kernel
/// would not take it back before.
#[derive(Debug)]
pub(super) struct Registration {
    // Before the memory: deregistering comes before unmapping.
    pub(super) object: KernelObject,
    /// For messages that the library itself puts into the memory: ends with the registration.
    pub(super) note: Mutex<Option<RegionNote>>,
    /// The library's memory, where it is that.
    _memory: Option<Arc<Memory>>,
}

impl Registration {
    fn set_note(&self, note: Option<RegionNote>) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = note;
    }
}

impl Pd {
    /// Registers memory that the program manages.
    ///
    /// # Errors
    ///
    /// Length 0 and access that contradicts itself are refused before the kernel is asked, and so
    /// is access that the device lacks ([`ErrorKind::NotSupported`]). `EFAULT` when the range is
    /// not mapped (or not writable and `LOCAL_WRITE` asked), `ENOMEM` when the process may not lock
    /// so much memory; the text names the limit.
    ///
    /// # Safety
    ///
    /// Until the region is dropped, and with it each memory window that was ever bound to it (a bind may
    /// fail and leave the one before in force), the device and, with remote access, the peer may write
    /// to the range at any time that the posted requests and the given access allow. That ends earlier
    /// where [`Mr::deregister`] succeeds. The memory must stay mapped, and the program must not hold
    /// references that contradict those writes.
    #[doc(alias("ibv_reg_mr", "rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write"))]
    pub unsafe fn register_raw(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Mr> {
        Mr::register(self, Range::of(address as u64, length), access, None)
    }

    /// Registers memory that the program manages, under other addresses: requests, and peers, name
    /// its first byte by `iova`.
    ///
    /// # Errors
    ///
    /// As [`Pd::register_raw`]; `iova` must be as far from the beginning of a page as `address` is,
    /// and the last byte must have an address.
    ///
    /// # Safety
    ///
    /// As [`Pd::register_raw`].
    #[doc(alias = "ibv_reg_mr_iova")]
    pub unsafe fn register_raw_at(
        &self,
        address: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let range = Range {
            start: address as u64,
            length,
            iova,
        };
        Mr::register(self, range, access, None)
    }

    /// Registers memory of another device, `length` bytes from `offset` on of the DMA buffer that
    /// `file` is. Requests, and peers, name its first byte by `iova`.
    ///
    /// Nothing in it is the program's own: the kernel keeps the buffer for as long as it is
    /// registered, and whoever maps it shares it with devices as it is.
    ///
    /// # Errors
    ///
    /// As [`Pd::register_raw_at`]. [`ErrorKind::NotSupported`] from a device that cannot reach other
    /// devices' memory, as rxe and siw; `EINVAL` or `EBADF` when the file is no DMA buffer, or is
    /// shorter.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn register_dmabuf(
        &self,
        file: impl AsFd,
        offset: u64,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let range = Range {
            start: offset,
            length,
            iova,
        };
        Mr::register_dmabuf(self, file.as_fd(), range, access)
    }
}

/// A range of memory with the addresses that requests name it by.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub start: u64,
    pub length: usize,
    pub iova: u64,
}

impl Range {
    /// Memory that requests name by its own addresses.
    pub(super) fn of(start: u64, length: usize) -> Self {
        Self {
            start,
            length,
            iova: start,
        }
    }

    pub(super) fn check(self, operation: &'static str) -> Result<()> {
        let refuse = |text: &'static str| Err(Error::invalid(operation, text));
        if self.length == 0 {
            return refuse("a memory region has at least one byte");
        }
        if (self.start ^ self.iova) & (page_size() as u64 - 1) != 0 {
            return refuse("iova must be as far from the beginning of a page as the memory is");
        }
        let last = self.length as u64 - 1;
        if self.start.checked_add(last).is_none() || self.iova.checked_add(last).is_none() {
            return refuse("the range reaches beyond the end of the address space");
        }
        Ok(())
    }
}

impl Mr {
    /// Registers a range that stays mapped as long as the registration: it is in `memory`, or the
    /// caller vouches for it.
    pub(super) fn register(
        pd: &Pd,
        range: Range,
        access: Access,
        memory: Option<Arc<Memory>>,
    ) -> Result<Self> {
        let operation = "reg_mr";
        range.check(operation)?;
        let context = pd.context();
        let access_flags = access.of_region(operation, context)?;
        let mut driver = Provider::of(context)?.registration();
        let response: uverbs::RegMrResp = pd.with_handle(operation, |pd_handle| {
            let request = uverbs::RegMr {
                start: range.start,
                length: range.length as u64,
                hca_va: range.iova,
                pd_handle,
                access_flags,
                ..Default::default()
            };
            let (request_part, response) = driver.parts();
            let driver = DriverPart::Exchange {
                request: request_part,
                response,
            };
            context
                .command_with_driver(uverbs::Command::REG_MR, &request, driver)
                .map_err(|error| explain(operation, context, range.length, access, &error))
        })?;
        let keys = (response.lkey, response.rkey);
        let made = Self::made(pd, response.mr_handle, range, access, keys, memory);
        made.note()?;
        Ok(made)
    }

    /// A region that the kernel has made.
    fn made(
        pd: &Pd,
        handle: u32,
        range: Range,
        access: Access,
        (lkey, rkey): (u32, u32),
        memory: Option<Arc<Memory>>,
    ) -> Self {
        let kind = ObjectKind::MemoryRegion;
        let object = KernelObject::new(kind, pd.context(), handle, pd.parents());
        Self {
            registration: Arc::new(Registration {
                object,
                note: Mutex::new(None),
                _memory: memory,
            }),
            pd: pd.clone(),
            access,
            address: range.iova,
            start: range.start,
            length: range.length,
            lkey,
            rkey,
        }
    }

    /// Notes where the memory is that may be written, once it is registered.
    pub(super) fn note(&self) -> Result<()> {
        let context = self.pd.context();
        let place = (self.address, self.start, self.length as u64);
        let note = match self.access.contains(Access::LOCAL_WRITE) {
            true => Provider::of(context)?.note_region(context, self.lkey, place)?,
            false => None,
        };
        self.registration.set_note(note);
        Ok(())
    }

    fn register_dmabuf(
        pd: &Pd,
        file: BorrowedFd<'_>,
        range: Range,
        access: Access,
    ) -> Result<Self> {
        use ioctl::mr::reg_dmabuf as id;
        let operation = "reg_dmabuf_mr";
        range.check(operation)?;
        let context = pd.context();
        let access_flags = access.of_region(operation, context)?;
        let (mut handle, mut lkey, mut rkey) = (0, 0u32, 0u32);
        let length = range.length as u64;
        // This one method takes a number, not a descriptor.
        let number = file.as_raw_fd();
        pd.with_handle(operation, |pd| {
            let mut attrs = [
                Attr::new(id::HANDLE, Value::NewHandle(&mut handle)),
                Attr::new(id::PD_HANDLE, Value::Handle(pd)),
                Attr::new(id::OFFSET, Value::In(range.start.as_bytes())),
                Attr::new(id::LENGTH, Value::In(length.as_bytes())),
                Attr::new(id::IOVA, Value::In(range.iova.as_bytes())),
                Attr::new(id::FD, Value::In(number.as_bytes())),
                Attr::new(id::ACCESS_FLAGS, Value::In(access_flags.as_bytes())),
                Attr::new(id::RESP_LKEY, Value::Out(lkey.as_mut_bytes())),
                Attr::new(id::RESP_RKEY, Value::Out(rkey.as_mut_bytes())),
            ];
            context
                .method(ioctl::object::MR, ioctl::mr::REG_DMABUF, &mut attrs)
                .map_err(|error| explain_dmabuf(operation, context, &error))
        })?;
        Ok(Self::made(pd, handle, range, access, (lkey, rkey), None))
    }

    /// Changes the region without giving it back: its access, its protection domain, its memory.
    ///
    /// The keys may change. Segments and remote addresses that were made before are then of no use,
    /// and requests with them fail. No request may be under way that names the region.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] where the driver cannot change it: rxe changes access and
    /// protection domain, and on Linux 6.1 nothing; siw changes nothing. Otherwise as
    /// [`Pd::register_raw`]; when the kernel refuses, the region of a hardware device may be of no
    /// more use than to be dropped.
    ///
    /// # Safety
    ///
    /// As [`Pd::register_raw`], for the new access and the new range.
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn reregister(&mut self, change: &MrChange<'_>) -> Result<()> {
        self.change(change)
    }

    /// The local key, for segments made by hand.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The remote key. A peer that gets it together with the address can do what the access
    /// allows.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Address and remote key of the region's first byte, for a peer.
    pub fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.address,
            rkey: self.rkey,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the region has no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes the registration back now.
    ///
    /// # Errors
    ///
    /// While memory windows are bound to it, the kernel refuses (`EINVAL`). The region then stays until
    /// the last of them is dropped.
    #[doc(alias("ibv_dereg_mr", "rdma_dereg_mr"))]
    pub fn deregister(self) -> Result<()> {
        let destroyed = self.registration.object.destroy();
        if destroyed.is_ok() {
            self.registration.set_note(None);
        }
        match destroyed {
            Err(error) if error.errno() == Some(libc::EINVAL) => Err(error.because(
                "memory windows are bound to the region; invalidate, unbind or drop them first",
            )),
            done => done.map(drop),
        }
    }

    pub(super) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// A segment of `length` bytes from `offset` on; the caller has checked the range.
    pub(super) fn segment(&self, offset: usize, length: usize) -> Option<Segment> {
        let length = u32::try_from(length).ok()?;
        Some(Segment::of_buffer(
            self.address + offset as u64,
            length,
            self.lkey,
        ))
    }
}

impl AsRef<Mr> for Mr {
    fn as_ref(&self) -> &Mr {
        self
    }
}

pub(super) fn explain(
    operation: &'static str,
    context: &Context,
    length: usize,
    access: Access,
    error: &io::Error,
) -> Error {
    let described = Error::from_os(operation, error);
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM) => {
            let limit = match context.kernel().locked_memory_limit() {
                Some(limit) => format!("{limit} bytes"),
                None => "unlimited".to_owned(),
            };
            described.because(format!(
                "{length} bytes cannot be locked in memory: the limit of locked memory is {limit} \
                 in all (ulimit -l, RLIMIT_MEMLOCK, LimitMEMLOCK= of a service)"
            ))
        }
        Some(libc::EFAULT) => described
            .because("the range is not mapped, or is read-only while LOCAL_WRITE was asked for"),
        Some(libc::EOPNOTSUPP | libc::EINVAL) => described.because(lacking(context, access)),
        _ => described,
    }
}

/// What a refusal without a reason can have for one.
fn lacking(context: &Context, access: Access) -> String {
    let name = context.device().name();
    match access.contains(Access::FLUSH_PERSISTENT) {
        true => format!("{name} can make only persistent memory FLUSH_PERSISTENT"),
        false => format!("{name} cannot give memory this access: {access:?}"),
    }
}

fn explain_dmabuf(operation: &'static str, context: &Context, error: &io::Error) -> Error {
    let described = Error::from_os(operation, error);
    let name = context.device().name();
    if described.kind() == ErrorKind::NotSupported && described.errno().is_some() {
        return described.because(format!("{name} cannot reach the memory of other devices"));
    }
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EBADF) => described.because(
            "the file is no DMA buffer, or the range is not in it, or such memory cannot be \
                 given this access",
        ),
        _ => described,
    }
}
