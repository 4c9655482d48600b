//! Memory windows: parts of a region that peers may use for a while.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rdmacm_kernel_abi::uverbs;

use super::mr::Registration;
use super::{Access, Mr, Pd};
use crate::device::{KernelObject, ObjectKind};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{PostError, WindowBind};
use crate::qp_table::QpEntry;

/// The type of a memory window: who chooses its keys, and who can close it.
#[doc(alias = "ibv_mw_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MwType {
    /// Open to all queue pairs of the protection domain. Each bind gives it another key, and it is
    /// closed by a bind.
    #[doc(alias = "IBV_MW_TYPE_1")]
    One,
    /// Open only to the peer of the queue pair that it was bound through. The program may choose the
    /// last byte of the key, and it is closed by invalidating the key, which the peer can do as well.
    #[doc(alias = "IBV_MW_TYPE_2")]
    Two,
}

/// A memory window: a key of its own for a range of a region. Opening and closing it is a request,
/// much cheaper than registering memory.
///
/// rxe does not keep peers to the range: whoever has the key reaches the whole region, in the ways that
/// the window allows.
///
/// A new window is closed. [`Batch::bind_window`](crate::Batch::bind_window) opens it; then it is
/// closed again before the next bind, where it is of type 2, by
/// [`Batch::invalidate`](crate::Batch::invalidate) or the peer's
/// [`Batch::send_invalidate`](crate::Batch::send_invalidate).
///
/// A queue pair that is destroyed takes the windows of type 2 with it that were last bound through it.
/// In C they have to go first, or destroying the queue pair blocks for a minute and fails.
///
/// The window keeps the regions of its last two binds: a [`Buffer`](crate::Buffer) or [`Mr`] that is
/// dropped meanwhile stays registered until the window goes, or is bound to others.
///
/// ```no_run
/// # fn example(pd: &rdmacm::Pd, send: &mut rdmacm::SendHalf) -> rdmacm::Result<()> {
/// use rdmacm::{Access, MwType};
///
/// let buffer = pd.alloc(1 << 20, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let mut window = pd.alloc_mw(MwType::Two)?;
/// let mut batch = send.batch();
/// let bind = batch.bind_window(1, &mut window);
/// let for_peer = bind.to(&buffer, 4096..8192, Access::REMOTE_WRITE)?;
/// batch.send(2).inline(&for_peer.rkey.to_be_bytes())?;
/// batch.submit()?;
/// // When the peer has written: close it.
/// let mut batch = send.batch();
/// batch.invalidate(3, &window).signaled().add()?;
/// batch.submit()?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_mw")]
#[derive(Debug)]
pub struct Mw {
    object: Arc<KernelObject>,
    mw_type: MwType,
    pd: Pd,
    rkey: u32,
    /// What the last bind was to and what the one before, which the kernel may not have undone yet.
    bound_to: [Option<Arc<Registration>>; 2],
    /// What it was last bound through, where it is of type 2.
    bound_through: Weak<QpEntry>,
    /// Whether it was bound and not invalidated since, by what this process posted.
    is_open: AtomicBool,
}

impl Pd {
    /// Makes a memory window.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] where the device has none of the type
    /// ([`DeviceAttr::has_windows_of_type_1`](crate::DeviceAttr::has_windows_of_type_1),
    /// [`DeviceAttr::has_windows_of_type_2`](crate::DeviceAttr::has_windows_of_type_2)), and when it
    /// has none left.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<Mw> {
        let operation = "alloc_mw";
        let context = self.context();
        let attr = context.attr()?;
        let (number, kind, is_there) = match mw_type {
            MwType::One => (1, uverbs::MwType::TYPE_1, attr.has_windows_of_type_1()),
            MwType::Two => (2, uverbs::MwType::TYPE_2, attr.has_windows_of_type_2()),
        };
        if !is_there {
            let name = context.device().name();
            let text = format!("{name} has no memory windows of type {number}");
            return Err(Error::new(operation, ErrorKind::NotSupported, text));
        }
        let response: uverbs::AllocMwResp = self.with_handle(operation, |pd_handle| {
            let request = uverbs::AllocMw {
                pd_handle,
                mw_type: kind.0,
                ..Default::default()
            };
            context
                .command(uverbs::Command::ALLOC_MW, &request)
                .map_err(|error| Error::from_os(operation, &error))
        })?;
        let kind = ObjectKind::MemoryWindow;
        let object = KernelObject::new(kind, context, response.mw_handle, self.parents());
        Ok(Mw {
            object: Arc::new(object),
            mw_type,
            pd: self.clone(),
            rkey: response.rkey,
            bound_to: [None, None],
            bound_through: Weak::new(),
            is_open: AtomicBool::new(false),
        })
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // Before the regions are let go, which the kernel takes back only after the windows that are
        // bound to them. A queue pair that is being destroyed may hold the object a moment longer.
        let _ = self.object.destroy();
    }
}

impl Mw {
    /// The type.
    pub fn mw_type(&self) -> MwType {
        self.mw_type
    }

    /// The key that the window has after all binds that were put in a batch so far. Peers need it
    /// together with the address that [`BindBuilder::to`](crate::BindBuilder::to) returns.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Says which key the window has, where its last bind was not carried out: the batch was
    /// dropped, or the request failed. A request names the window by its key, and fails where it has
    /// another. The window counts as closed then.
    ///
    /// # Errors
    ///
    /// A key that cannot be one of this window, whose keys differ in the last byte only.
    pub fn set_rkey(&mut self, rkey: u32) -> Result<()> {
        if (rkey ^ self.rkey) & !KEY_BYTE != 0 {
            let text = format!(
                "{rkey:#x} is no key of the window, whose keys are {:#x} and the 255 that differ in \
                 the last byte",
                self.rkey
            );
            return Err(Error::invalid("set_rkey", text));
        }
        self.rkey = rkey;
        *self.is_open.get_mut() = false;
        Ok(())
    }

    /// Closes the window and gives it back now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn dealloc(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    /// The request that opens the window, with a last byte of the program's or the next one.
    pub(super) fn opening(
        &self,
        region: &Mr,
        range: &Range<usize>,
        access: Access,
        key_byte: Option<u8>,
    ) -> Result<WindowBind, PostError> {
        check_access(region, access)?;
        let length = range.end.saturating_sub(range.start);
        if length == 0 || range.end > region.len() {
            return Err(PostError::WindowRange {
                offset: range.start,
                length,
            });
        }
        Ok(WindowBind {
            address: region.remote().address + range.start as u64,
            length: length as u64,
            lkey: region.lkey(),
            old_rkey: self.rkey,
            new_rkey: self.next_rkey(key_byte)?,
            access: access.bits(),
        })
    }

    /// The request that closes a window of type 1.
    pub(super) fn closing(&self) -> Result<WindowBind, PostError> {
        if self.mw_type == MwType::Two {
            return Err(PostError::WindowOfType2);
        }
        Ok(WindowBind {
            address: 0,
            length: 0,
            lkey: 0,
            old_rkey: self.rkey,
            new_rkey: self.next_rkey(None)?,
            access: 0,
        })
    }

    /// Puts a bind in the queue by `push`, and notes it.
    pub(super) fn post(
        &mut self,
        bind: &WindowBind,
        region: Option<&Mr>,
        through: &Arc<QpEntry>,
        push: impl FnOnce() -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let moves = self.mw_type == MwType::Two
            && !std::ptr::eq(self.bound_through.as_ptr(), Arc::as_ptr(through));
        if moves {
            through.add_window(&self.object);
        }
        if let Err(refused) = push() {
            if moves {
                through.remove_window(&self.object);
            }
            return Err(refused);
        }
        if moves {
            if let Some(before) = self.bound_through.upgrade() {
                before.remove_window(&self.object);
            }
            self.bound_through = Arc::downgrade(through);
        }
        self.rkey = bind.new_rkey;
        *self.is_open.get_mut() = region.is_some();
        self.bound_to.rotate_right(1);
        self.bound_to[0] = region.map(|region| Arc::clone(region.registration()));
        Ok(())
    }

    /// Puts the request that closes a window of type 2 in the queue by `push`, and notes it.
    pub(super) fn invalidate(
        &self,
        push: impl FnOnce() -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        // rxe does not look whether the window is open, and takes the whole machine down.
        if !self.is_open.swap(false, Ordering::Relaxed) {
            return Err(PostError::WindowClosed);
        }
        push().inspect_err(|_| self.is_open.store(true, Ordering::Relaxed))
    }

    /// Refuses to post to a queue pair what is not for it.
    pub(super) fn check(&self, pd: &Pd) -> Result<(), PostError> {
        if self.pd != *pd {
            return Err(PostError::ForeignWindow);
        }
        match self.object.is_destroyed() {
            true => Err(PostError::WindowDestroyed),
            false => Ok(()),
        }
    }

    fn next_rkey(&self, key_byte: Option<u8>) -> Result<u32, PostError> {
        let last = match (key_byte, self.mw_type) {
            (Some(_), MwType::One) => return Err(PostError::WindowOfType1),
            (Some(byte), MwType::Two) => u32::from(byte),
            (None, _) => self.rkey.wrapping_add(1) & KEY_BYTE,
        };
        Ok(self.rkey & !KEY_BYTE | last)
    }
}

/// The part of a window's key that changes.
const KEY_BYTE: u32 = 0xff;

/// Refuses what the device would fail the request for, and the queue pair with it.
fn check_access(region: &Mr, access: Access) -> Result<(), PostError> {
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let peers = writes | Access::REMOTE_READ | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    if !region.access().contains(Access::MW_BIND) {
        return Err(PostError::NoWindowsInRegion);
    }
    let may_write = region.access().contains(Access::LOCAL_WRITE);
    if !peers.contains(access) || access.intersects(writes) && !may_write {
        return Err(PostError::WindowAccess);
    }
    Ok(())
}
