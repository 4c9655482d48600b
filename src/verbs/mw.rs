//! Memory windows: parts of a region that peers may use for a while.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
/// dropped meanwhile stays registered until the window goes, or is bound to others. A bind must have
/// completed before the next but one is posted, else its region may be gone when the device comes to it.
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
    window: Arc<Window>,
    mw_type: MwType,
    pd: Pd,
}

/// A window as the kernel knows it. A batch that is under way has it as well, to put it back as it was.
#[derive(Debug)]
struct Window {
    // Before the regions that it is bound to.
    object: Arc<KernelObject>,
    state: Mutex<State>,
}

/// How a window is after what was put in batches so far.
#[derive(Debug, Clone)]
struct State {
    rkey: u32,
    /// What the last bind was to and what the one before, which the kernel may not have undone yet.
    bound_to: [Option<Arc<Registration>>; 2],
    /// What it was last bound through, where it is of type 2.
    bound_through: Weak<QpEntry>,
    /// How often that queue pair had been reset.
    resets: u32,
    /// Whether it was bound and not invalidated since, by what this process posted.
    is_open: bool,
    /// How many changes there were.
    changes: u64,
}

impl Window {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of a window by a request that has not started.
#[derive(Debug)]
pub(super) struct WindowChange {
    window: Arc<Window>,
    before: State,
    /// How many changes there were with this one.
    changes: u64,
}

impl WindowChange {
    /// The request will never start. Of several the last goes first.
    pub(super) fn undo(self) {
        let Self {
            window,
            before,
            changes,
        } = self;
        let mut state = window.state();
        // Through another queue pair it was changed since.
        if state.changes != changes {
            return;
        }
        if !Weak::ptr_eq(&state.bound_through, &before.bound_through)
            && let Some(qp) = state.bound_through.upgrade()
        {
            qp.remove_window(&window.object);
        }
        *state = before;
    }

    /// The request has started: the window is not open through another queue pair any more.
    pub(super) fn keep(self) {
        let state = self.window.state();
        if !Weak::ptr_eq(&state.bound_through, &self.before.bound_through)
            && let Some(qp) = self.before.bound_through.upgrade()
        {
            qp.remove_window(&self.window.object);
        }
    }
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
        let state = State {
            rkey: response.rkey,
            bound_to: [None, None],
            bound_through: Weak::new(),
            resets: 0,
            is_open: false,
            changes: 0,
        };
        let window = Window {
            object: Arc::new(object),
            state: Mutex::new(state),
        };
        Ok(Mw {
            window: Arc::new(window),
            mw_type,
            pd: self.clone(),
        })
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // Before the regions are let go, which the kernel takes back only after the windows that are
        // bound to them. A queue pair that is being destroyed may hold the object a moment longer.
        let _ = self.window.object.destroy();
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
        self.window.state().rkey
    }

    /// Says which key the window has, where its last bind was posted and failed. A request names the
    /// window by its key, and fails where it has another. The window counts as closed then: so the
    /// present key says that the peer has closed it.
    ///
    /// # Errors
    ///
    /// A key that cannot be one of this window, whose keys differ in the last byte only.
    pub fn set_rkey(&mut self, rkey: u32) -> Result<()> {
        let mut state = self.window.state();
        if (rkey ^ state.rkey) & !KEY_BYTE != 0 {
            let text = format!(
                "{rkey:#x} is no key of the window, whose keys are {:#x} and the 255 that differ in \
                 the last byte",
                state.rkey
            );
            return Err(Error::invalid("set_rkey", text));
        }
        state.rkey = rkey;
        state.is_open = false;
        state.changes += 1;
        Ok(())
    }

    /// Closes the window and gives it back now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn dealloc(self) -> Result<()> {
        self.window.object.destroy().map(drop)
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
            old_rkey: self.rkey(),
            new_rkey: self.next_rkey(key_byte)?,
            access: access.bits(),
            is_of_type_2: self.mw_type() == MwType::Two,
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
            old_rkey: self.rkey(),
            new_rkey: self.next_rkey(None)?,
            access: 0,
            is_of_type_2: self.mw_type() == MwType::Two,
        })
    }

    /// Puts a bind in the queue by `push`, and notes it.
    pub(super) fn post(
        &mut self,
        bind: &WindowBind,
        region: Option<&Mr>,
        through: &Arc<QpEntry>,
        push: impl FnOnce() -> Result<(), PostError>,
    ) -> Result<WindowChange, PostError> {
        let object = &self.window.object;
        let mut state = self.window.state();
        let before = state.clone();
        let moves = self.mw_type == MwType::Two && !before.was_bound_through(through);
        if moves {
            through.add_window(object);
        }
        if let Err(refused) = push() {
            if moves {
                through.remove_window(object);
            }
            return Err(refused);
        }
        if moves {
            // The queue pair before has it as well until the request starts.
            state.bound_through = Arc::downgrade(through);
        }
        state.resets = through.resets();
        state.rkey = bind.new_rkey;
        state.is_open = region.is_some();
        state.bound_to.rotate_right(1);
        state.bound_to[0] = region.map(|region| Arc::clone(region.registration()));
        Ok(self.changed(state, before))
    }

    /// Puts the request that closes a window of type 2 in the queue by `push`, and notes it.
    pub(super) fn invalidate(
        &self,
        through: &Arc<QpEntry>,
        push: impl FnOnce() -> Result<(), PostError>,
    ) -> Result<WindowChange, PostError> {
        let mut state = self.window.state();
        // rxe does not look whether the window is open, and takes the whole machine down. Through
        // the queue pair that opened it the request is not carried out where the bind failed, unless
        // that was reset.
        let is_same = state.was_bound_through(through) && state.resets == through.resets();
        if !state.is_open || !is_same {
            return Err(PostError::WindowClosed);
        }
        push()?;
        let before = state.clone();
        state.is_open = false;
        Ok(self.changed(state, before))
    }

    fn changed(&self, mut state: MutexGuard<'_, State>, before: State) -> WindowChange {
        state.changes += 1;
        WindowChange {
            window: Arc::clone(&self.window),
            before,
            changes: state.changes,
        }
    }

    /// Refuses to post to a queue pair what is not for it.
    pub(super) fn check(&self, pd: &Pd) -> Result<(), PostError> {
        if self.pd != *pd {
            return Err(PostError::ForeignWindow);
        }
        match self.window.object.is_destroyed() {
            true => Err(PostError::WindowDestroyed),
            false => Ok(()),
        }
    }

    fn next_rkey(&self, key_byte: Option<u8>) -> Result<u32, PostError> {
        let rkey = self.rkey();
        let last = match (key_byte, self.mw_type) {
            (Some(_), MwType::One) => return Err(PostError::WindowOfType1),
            (Some(byte), MwType::Two) => u32::from(byte),
            (None, _) => rkey.wrapping_add(1) & KEY_BYTE,
        };
        Ok(rkey & !KEY_BYTE | last)
    }
}

impl State {
    fn was_bound_through(&self, qp: &Arc<QpEntry>) -> bool {
        std::ptr::eq(self.bound_through.as_ptr(), Arc::as_ptr(qp))
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
