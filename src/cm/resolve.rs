//! From addresses to devices and routes.

use std::time::Duration;

use rdmacm_kernel_abi::ucma;

use super::command::QueryAddr;
use super::conn_param::Offer;
use super::id::{DeviceBinding, State};
use super::{Address, CmId, Ece, address, explain, ibacm};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};

impl CmId {
    /// Binds the id to a local address. Does not block. A wildcard address leaves it without a
    /// device; port 0 takes a free port when the id listens or resolves.
    ///
    /// # Errors
    ///
    /// Addresses that are not this machine's or belong to no RDMA device, ports in use; a device
    /// that cannot be opened ([`ErrorKind::NotSupported`]: a driver other than rxe), after which
    /// the id is bound and can only be destroyed.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, local: impl Into<Address>) -> Result<()> {
        let local = local.into();
        let mut state = self.state();
        let (addr, addr_size) = address::encode(&local);
        let request = ucma::Bind {
            id: self.handle(),
            addr_size,
            addr,
            ..Default::default()
        };
        let registry = state.channel.registry();
        state
            .call("bind_addr", &request)
            .map_err(|error| explain::bind_addr(error, registry, self.port_space(), local))?;
        self.attach_device(&mut state)
    }

    /// Begins to find the device and the local address that lead to `peer`. The outcome is the
    /// event [`AddressResolved`](super::Event::AddressResolved) or
    /// [`AddressError`](super::Event::AddressError), the latter after `timeout` (rounded up to
    /// milliseconds) at the latest.
    ///
    /// # Errors
    ///
    /// No route to the address, a source address that is not this machine's. A zero timeout is
    /// allowed: it finds only addresses that the machine knows already.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<Address>,
        peer: impl Into<Address>,
        timeout: Duration,
    ) -> Result<()> {
        let peer = peer.into();
        let mut state = self.state();
        let (dst_addr, dst_size) = address::encode(&peer);
        let mut request = ucma::ResolveAddr {
            id: self.handle(),
            timeout_ms: millis(timeout),
            dst_addr,
            dst_size,
            ..Default::default()
        };
        if let Some(source) = source {
            (request.src_addr, request.src_size) = address::encode(&source);
        }
        state
            .call("resolve_addr", &request)
            .map_err(|error| explain::resolve_addr(error, peer, source))?;
        state.peer = Some(peer);
        Ok(())
    }

    /// Begins to find the route, for as long as `timeout` at most. The outcome is the event
    /// [`RouteResolved`](super::Event::RouteResolved) or [`RouteError`](super::Event::RouteError).
    ///
    /// Where the service ibacm runs, it is asked first, as the C library does. The call itself
    /// waits for its answer, for up to a second; one that did not answer is not asked for the next ten
    /// seconds.
    ///
    /// # Errors
    ///
    /// A zero timeout, an id whose address is not resolved, a loopback address.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        let operation = "resolve_route";
        if timeout.is_zero() {
            return Err(Error::invalid(
                operation,
                "the timeout must be longer than zero",
            ));
        }
        if self.take_known_route() {
            return Ok(());
        }
        let mut state = self.state();
        let request = ucma::ResolveRoute {
            id: self.handle(),
            timeout_ms: millis(timeout),
        };
        state
            .call(operation, &request)
            .map_err(|error| explain::resolve_route(error, state.peer))?;
        state.route_resolved = true;
        Ok(())
    }

    /// Gives the id the route that ibacm knows, where that runs. False when it is for the kernel to
    /// find one.
    fn take_known_route(&self) -> bool {
        let (registry, source, destination) = {
            let state = self.state();
            let has_paths = |binding: &DeviceBinding| {
                let transport = binding.context.device().transport();
                matches!(transport, Transport::InfiniBand | Transport::Roce)
            };
            let (Some(source), Some(destination), true) = (
                state.local,
                state.peer,
                state.device.as_ref().is_some_and(has_paths),
            ) else {
                return false;
            };
            (state.channel.registry(), source, destination)
        };
        // Outside the lock: it may take a while.
        ibacm::route(registry, &source, &destination)
            .is_some_and(|paths| self.set_path(&paths).is_ok())
    }

    /// Takes over what the kernel knows of the id's addresses and device.
    pub(super) fn attach_device(&self, state: &mut State) -> Result<()> {
        let operation = "query";
        let found = state.call(operation, &QueryAddr::of(self.handle()))?;
        state.local = address::decode(&found.src_addr).or(state.local);
        state.peer = address::decode(&found.dst_addr)
            .filter(|peer| peer.port() != 0 || state.peer.is_none())
            .or(state.peer);
        if found.node_guid.get() == 0 {
            // Not an error: wildcard and loopback addresses have no device.
            return Ok(());
        }
        let context = state
            .channel
            .registry()
            .context_of_index(found.ibdev_index)?;
        state.device = Some(DeviceBinding {
            context,
            port: found.port_num,
        });
        Ok(())
    }

    /// Completes an id that came with a request.
    pub(super) fn take_offer(&self, offer: Offer, ece: Option<Ece>) -> Result<()> {
        let mut state = self.state();
        self.attach_device(&mut state)?;
        if state.device.is_none() {
            return Err(Error::new(
                "next_event",
                ErrorKind::Disconnected,
                "a connection request came for a device that is gone",
            ));
        }
        state.offer = Some(offer);
        state.remote_ece = ece;
        state.route_resolved = true;
        Ok(())
    }
}

/// The kernel counts in milliseconds. Rounded up, so that a short timeout does not become none.
fn millis(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_and_never_wrap() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(2000)), 2000);
        assert_eq!(millis(Duration::MAX), u32::MAX);
    }
}
