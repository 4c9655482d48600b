//! Listening for connections.

use rdmacm_kernel_abi::ucma;

use super::{CmId, explain};
use crate::error::Result;

impl CmId {
    /// Listens for connections. A bound id listens on its address, an unbound one on all IPv4
    /// addresses and a free port, which [`CmId::local_addr`] then tells.
    ///
    /// `backlog` requests wait for being read; the kernel drops further ones, and their senders
    /// repeat them after some seconds. 0 means the most that the kernel allows (the sysctl
    /// `net.rdma_ucm.max_backlog`).
    ///
    /// On siw leave it at 0: further requests are rejected there, and too many at once break the
    /// listener. It then refuses every client, and Linux 6.12 crashes when it is destroyed.
    ///
    /// # Errors
    ///
    /// A port in use, an id that listens or connects already.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        let mut state = self.state();
        let request = ucma::Listen {
            id: self.handle(),
            backlog,
        };
        let local = state.local;
        state
            .call("listen", &request)
            .map_err(|error| explain::listen(error, local))?;
        state.listening = true;
        self.attach_device(&mut state)
    }
}
