//! What can be changed of a memory region.

use std::io;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{self, ReregMrFlags};

use super::mr::{Range, explain};
use super::{Access, Mr, Pd};
use crate::device::Context;
use crate::error::{Error, ErrorKind, Result};

/// What [`Mr::reregister`] is to change of a memory region; the rest stays.
///
/// ```no_run
/// # fn example(mr: &mut rdmacm::Mr) -> rdmacm::Result<()> {
/// use rdmacm::{Access, MrChange};
///
/// // SAFETY: what peers may read now is not secret.
/// unsafe { mr.reregister(&MrChange::new().access(Access::REMOTE_READ))? };
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MrChange<'a> {
    access: Option<Access>,
    pd: Option<&'a Pd>,
    range: Option<(u64, usize)>,
}

impl<'a> MrChange<'a> {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What may be done to the memory, in place of what was allowed before.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// The protection domain, of the same device.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub fn pd(mut self, pd: &'a Pd) -> Self {
        self.pd = Some(pd);
        self
    }

    /// The memory.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub fn range(mut self, address: *mut u8, length: usize) -> Self {
        self.range = Some((address as u64, length));
        self
    }

    fn flags(&self) -> ReregMrFlags {
        let mut flags = ReregMrFlags::empty();
        flags.set(ReregMrFlags::ACCESS, self.access.is_some());
        flags.set(ReregMrFlags::PD, self.pd.is_some());
        flags.set(ReregMrFlags::TRANSLATION, self.range.is_some());
        flags
    }
}

impl Mr {
    /// Changes the region; the caller has thought of the memory.
    pub(super) fn change(&mut self, change: &MrChange<'_>) -> Result<()> {
        let operation = "rereg_mr";
        let range = self.check_change(operation, change)?;
        let access = change.access.unwrap_or(self.access);
        let context = self.pd.context();
        let access_flags = access.of_region(operation, context)?;
        let registration = Arc::get_mut(&mut self.registration).ok_or_else(|| {
            Error::new(
                operation,
                ErrorKind::InvalidState,
                "memory windows are or were bound to the region; drop them first, or bind them to \
                 others twice",
            )
        })?;
        let pd = change.pd.unwrap_or(&self.pd);
        let object = &registration.object;
        let response: uverbs::ReregMrResp = object.with_handle(operation, |mr_handle| {
            pd.with_handle(operation, |pd_handle| {
                let request = uverbs::ReregMr {
                    mr_handle,
                    flags: change.flags().bits(),
                    start: range.start,
                    length: range.length as u64,
                    hca_va: range.iova,
                    pd_handle,
                    access_flags,
                    ..Default::default()
                };
                context
                    .command(uverbs::Command::REREG_MR, &request)
                    .map_err(|error| explain_change(operation, context, change, &error))
            })
        })?;
        registration.object.set_parents(pd.parents());
        (self.address, self.length) = (range.iova, range.length);
        (self.lkey, self.rkey) = (response.lkey, response.rkey);
        (self.pd, self.access) = (pd.clone(), access);
        if let Some((start, _)) = change.range {
            self.start = start;
        }
        self.note()
    }

    /// The range that the region has after the change.
    fn check_change(&self, operation: &'static str, change: &MrChange<'_>) -> Result<Range> {
        if change.flags().is_empty() {
            return Err(Error::invalid(operation, "nothing is to be changed"));
        }
        let context = self.pd.context();
        if change.pd.is_some_and(|pd| !pd.context().same_as(context)) {
            return Err(Error::invalid(
                operation,
                "the protection domain belongs to another device",
            ));
        }
        let (start, length) = change.range.unwrap_or((self.address, self.length));
        let range = Range::of(start, length);
        range.check(operation)?;
        Ok(range)
    }
}

fn explain_change(
    operation: &'static str,
    context: &Context,
    change: &MrChange<'_>,
    error: &io::Error,
) -> Error {
    let described = Error::from_os(operation, error);
    if described.kind() != ErrorKind::NotSupported {
        let length = change.range.map_or(0, |(_, length)| length);
        let access = change.access.unwrap_or_default();
        return explain(operation, context, length, access, error);
    }
    described.because(format!(
        "the driver of {} cannot change {:?} of a region with this kernel; register it anew",
        context.device().name(),
        change.flags()
    ))
}
