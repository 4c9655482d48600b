//! Protection domains.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rdmacm_kernel_abi::uverbs;

use crate::device::{Context, DriverData, KernelObject, ObjectKind};
use crate::error::{Error, Result};

/// A protection domain: memory regions and queue pairs work together only within one.
///
/// A cheap handle; the domain is freed with the last handle and the last object made in it.
#[doc(alias = "ibv_pd")]
#[derive(Debug, Clone)]
pub struct Pd(Arc<KernelObject>);

impl Context {
    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// When the device has none left or is gone.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<Pd> {
        let response: uverbs::AllocPdResp = self
            .command(
                uverbs::Command::ALLOC_PD,
                &uverbs::AllocPd::default(),
                DriverData::default(),
            )
            .map_err(|error| Error::from_os("alloc_pd", &error))?;
        let object =
            KernelObject::new(ObjectKind::ProtectionDomain, self, response.pd_handle, Vec::new());
        Ok(Pd(Arc::new(object)))
    }

    /// The protection domain that all ids on this device share unless told otherwise. Made at
    /// first use, freed when nobody uses it any more.
    ///
    /// # Errors
    ///
    /// As [`Context::alloc_pd`].
    pub fn default_pd(&self) -> Result<Pd> {
        static DEFAULTS: Mutex<Vec<Weak<KernelObject>>> = Mutex::new(Vec::new());
        // Held while making one, so that two threads at first use get the same.
        let mut defaults = DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        defaults.retain(|default| default.strong_count() > 0);
        let mut alive = defaults.iter().filter_map(Weak::upgrade);
        if let Some(object) = alive.find(|object| object.context().same_as(self)) {
            return Ok(Pd(object));
        }
        let pd = self.alloc_pd()?;
        defaults.push(Arc::downgrade(&pd.0));
        Ok(pd)
    }
}

impl Pd {
    /// The device of the domain.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Frees the domain now.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory region or queue pair uses it; it then stays usable for them and is
    /// freed after the last of them.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn dealloc(self) -> Result<()> {
        self.0.destroy().map(drop)
    }

    pub(super) fn object(&self) -> &Arc<KernelObject> {
        &self.0
    }
}
