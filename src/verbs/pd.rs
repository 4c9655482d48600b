//! Protection domains.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use crate::device::{Context, DriverPart, KernelObject, ObjectKind};
use crate::error::{Error, Result};
use crate::fastpath::Provider;

/// A protection domain: memory regions and queue pairs work together only within one.
///
/// A cheap handle; the domain is freed with the last handle and the last object made in it.
#[doc(alias = "ibv_pd")]
#[derive(Debug, Clone)]
pub struct Pd {
    context: Context,
    handle: u32,
    /// The kernel's object, unless it is the context's own and goes when that is closed.
    object: Option<Arc<KernelObject>>,
}

impl Context {
    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// When the device has none left or is gone.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<Pd> {
        let handle = alloc(self)?;
        let object = KernelObject::new(ObjectKind::ProtectionDomain, self, handle, Vec::new());
        Ok(Pd {
            context: self.clone(),
            handle,
            object: Some(Arc::new(object)),
        })
    }

    /// The protection domain that all ids on this device share unless told otherwise. Made at
    /// first use, freed when the device is closed.
    ///
    /// # Errors
    ///
    /// As [`Context::alloc_pd`].
    pub fn default_pd(&self) -> Result<Pd> {
        let handle = self.default_pd_handle(|| alloc(self))?;
        Ok(Pd {
            context: self.clone(),
            handle,
            object: None,
        })
    }
}

/// Two handles are equal that are of the same domain.
impl PartialEq for Pd {
    fn eq(&self, other: &Self) -> bool {
        match (&self.object, &other.object) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => self.context.same_as(&other.context),
            _ => false,
        }
    }
}

impl Eq for Pd {}

fn alloc(context: &Context) -> Result<u32> {
    let mut answer = vec![0; Provider::of(context)?.pd_answer_length()];
    let driver = DriverPart::Exchange {
        request: &[],
        response: &mut answer,
    };
    let request = uverbs::AllocPd::default();
    let response: uverbs::AllocPdResp = context
        .command_with_driver(uverbs::Command::ALLOC_PD, &request, driver)
        .map_err(|error| Error::from_os("alloc_pd", &error))?;
    Ok(response.pd_handle)
}

impl Pd {
    /// The device of the domain.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Frees the domain now; the shared one of [`Context::default_pd`] stays.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory region or queue pair uses it; it then stays usable for them and is
    /// freed after the last of them.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn dealloc(self) -> Result<()> {
        self.object
            .as_ref()
            .map_or(Ok(()), |object| object.destroy().map(drop))
    }

    /// Sends a command that names the domain, which is not freed meanwhile through another handle
    /// of ours.
    pub(super) fn with_handle<T>(
        &self,
        operation: &'static str,
        command: impl FnOnce(u32) -> Result<T>,
    ) -> Result<T> {
        match &self.object {
            Some(object) => object.with_handle(operation, command),
            None => command(self.handle),
        }
    }

    /// What an object made in the domain has to keep alive.
    pub(super) fn parents(&self) -> Vec<Arc<KernelObject>> {
        self.object.iter().cloned().collect()
    }
}
