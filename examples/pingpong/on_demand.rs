//! Memory that is fetched when the device needs it, instead of being locked beforehand.

use rdmacm::{Access, Context, OdpOperations};

use crate::report::Result;

/// The option that asks for it.
#[derive(Debug, clap::Args)]
pub struct OnDemandOption {
    /// Do not lock the memory, let the device fetch it on demand; where the device can
    #[arg(short, long)]
    odp: bool,
}

impl OnDemandOption {
    /// The access that the memory is to have, when reliable connections do these things with it.
    pub fn access(&self, context: &Context, operations: OdpOperations) -> Result<Access> {
        if !self.odp {
            return Ok(Access::LOCAL_WRITE);
        }
        let able = context.attr()?.on_demand_paging();
        if !able.is_supported || !able.rc.contains(operations) {
            return Err(format!(
                "-o: {} with this kernel does not fetch memory on demand for {operations:?}",
                context.device().name()
            )
            .into());
        }
        Ok(Access::LOCAL_WRITE | Access::ON_DEMAND)
    }
}
