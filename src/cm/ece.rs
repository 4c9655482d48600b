//! Enhanced connection establishment: options that only one vendor's devices know.

use rdmacm_kernel_abi::ucma;

use super::CmId;
use crate::error::{Error, ErrorKind, Result};

/// Vendor options of a connection. The two sides agree on what both know.
///
/// For programs that make their queue pairs themselves and move them by hand; those of an id have
/// none.
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ece {
    /// Who defines the options; never 0.
    pub vendor_id: u32,
    /// The options.
    pub options: u32,
}

impl Ece {
    /// The kernel's 0 is for none.
    pub(super) fn from_kernel(ece: ucma::Ece) -> Option<Self> {
        (ece.vendor_id != 0).then_some(Self {
            vendor_id: ece.vendor_id,
            options: ece.attr_mod,
        })
    }

    pub(super) fn to_kernel(ece: Option<Self>) -> ucma::Ece {
        ece.map_or_else(Default::default, |ece| ucma::Ece {
            vendor_id: ece.vendor_id,
            attr_mod: ece.options,
        })
    }

    /// The answer to a peer's options: in its vendor's name, or none.
    pub(super) fn answer(local: Option<Self>, remote: Option<Self>) -> Option<Self> {
        remote.map(|remote| Self {
            vendor_id: remote.vendor_id,
            options: local
                .filter(|local| local.vendor_id == remote.vendor_id)
                .map_or(0, |local| local.options),
        })
    }
}

impl CmId {
    /// Sets the vendor options to offer with the next connect, or to answer with. For an id without
    /// a queue pair of its own.
    ///
    /// # Errors
    ///
    /// Vendor 0; an id that has a queue pair.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<()> {
        let operation = "set_local_ece";
        if ece.vendor_id == 0 {
            return Err(Error::invalid(operation, "vendor 0 stands for no options"));
        }
        let mut state = self.state();
        state.check_alive(operation)?;
        state.check_without_qp(operation)?;
        state.local_ece = Some(ece);
        Ok(())
    }

    /// The peer's vendor options, after its request or its answer came; `None` when it has none.
    ///
    /// # Errors
    ///
    /// An id that has a queue pair, whose options are not the program's to agree on.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Option<Ece>> {
        let operation = "remote_ece";
        let state = self.state();
        state.check_alive(operation)?;
        state.check_without_qp(operation)?;
        Ok(state.remote_ece)
    }
}

impl super::id::State {
    pub(super) fn check_without_qp(&self, operation: &'static str) -> Result<()> {
        match self.qp_entry() {
            None => Ok(()),
            Some(_) => Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "the id has a queue pair; this call is for a queue pair that the program moves \
                 itself",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_in_the_name_of_the_asking_vendor() {
        let of = |vendor_id, options| Some(Ece { vendor_id, options });
        assert_eq!(Ece::answer(of(1, 5), of(1, 7)), of(1, 5));
        assert_eq!(Ece::answer(of(1, 5), of(2, 7)), of(2, 0));
        assert_eq!(Ece::answer(None, of(2, 7)), of(2, 0));
        assert_eq!(Ece::answer(of(1, 5), None), None);
        assert_eq!(Ece::to_kernel(None), ucma::Ece::default());
    }
}
