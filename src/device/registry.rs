//! The contexts this process has open: one per device, shared by all who ask.

use std::fmt;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use super::context::ContextInner;
use super::{Context, Device, discovery};
use crate::error::Result;
use crate::sys::{self, Absence, Kernel};

/// A kernel, and the devices of it that this process has open.
pub(crate) struct Registry {
    kernel: Arc<dyn Kernel>,
    contexts: Mutex<Vec<Weak<ContextInner>>>,
    path_service: Absence,
    /// Whether the kernel has the connection manager's commands for lookups, once that was asked.
    knows_lookups: OnceLock<bool>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it knows is of no interest wherever a device is printed.
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            kernel,
            contexts: Mutex::new(Vec::new()),
            path_service: Absence::default(),
            knows_lookups: OnceLock::new(),
        }
    }

    /// The registry of the running kernel.
    pub(crate) fn of_this_machine() -> &'static Self {
        #[cfg(any(test, fuzzing))]
        if let Some(twin) = STAND_IN.get() {
            return twin;
        }
        static RUNNING: LazyLock<Registry> = LazyLock::new(|| Registry::new(sys::running_kernel()));
        &RUNNING
    }

    /// A registry of a kernel that stands in for the running one; it lives as long as the process.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_stand_in(kernel: Arc<dyn Kernel>) -> &'static Self {
        // Kept where leak checkers see it.
        static TWINS: Mutex<Vec<&'static Registry>> = Mutex::new(Vec::new());
        let registry: &'static Self = Box::leak(Box::new(Self::new(kernel)));
        TWINS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(registry);
        registry
    }

    /// Puts this registry in the place of the running kernel's, for the current thread.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn stand_in(&'static self) {
        STAND_IN.set(Some(self));
    }

    pub(crate) fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }

    /// Whether the kernel knows lookups for ids; `ask` finds out.
    pub(crate) fn knows_lookups(&self, ask: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        match self.knows_lookups.get() {
            Some(knows) => Ok(*knows),
            None => {
                let knows = ask()?;
                Ok(*self.knows_lookups.get_or_init(|| knows))
            }
        }
    }

    /// Whether the machine's service for paths was found missing lately.
    pub(crate) fn path_service(&self) -> &Absence {
        &self.path_service
    }

    /// The context of `device`, opened when this is the first use.
    pub(super) fn context(&self, device: &Device) -> Result<Context> {
        // Held while opening, so that two threads at first use get the same context.
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|context| context.strong_count() > 0);
        if let Some(context) = find_open(&contexts, |known| known.is_of(device)) {
            return Ok(context);
        }
        let context = Context::open(device)?;
        contexts.push(context.downgrade());
        Ok(context)
    }

    /// The context of the device with this index, found and opened when it is not yet open.
    pub(crate) fn context_of_index(&'static self, index: u32) -> Result<Context> {
        let open = {
            let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            find_open(&contexts, |known| {
                !known.is_inherited() && known.device().index() == Some(index)
            })
        };
        match open {
            Some(context) => Ok(context),
            None => self.context(&discovery::find(self, index)?),
        }
    }
}

/// The first context that is still open and wanted.
fn find_open(
    contexts: &[Weak<ContextInner>],
    wanted: impl Fn(&Context) -> bool,
) -> Option<Context> {
    let open = contexts.iter().filter_map(Weak::upgrade);
    open.map(Context::from_inner).find(wanted)
}

#[cfg(any(test, fuzzing))]
thread_local! {
    static STAND_IN: std::cell::Cell<Option<&'static Registry>> = const { std::cell::Cell::new(None) };
}
