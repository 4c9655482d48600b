//! From addresses to devices and routes.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm_kernel_abi::ucma;

use super::conn_param::Offer;
use super::id::{DeviceBinding, State};
use super::{CmId, address, explain};
use crate::error::{Error, ErrorKind, Result};

impl CmId {
    /// Binds the id to a local address. Does not block. A wildcard address leaves it without a device; port 0
    /// takes a free port when the id listens or resolves.
    ///
    /// # Errors
    ///
    /// Addresses that are not this machine's or belong to no RDMA device, ports in use; a device that
    /// cannot be opened, after which the id is bound and can only be destroyed.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, local: SocketAddr) -> Result<()> {
        let mut state = self.state();
        let (addr, addr_size) = address::encode(&local.into());
        let request = ucma::Bind {
            id: self.handle(),
            addr_size,
            addr,
            ..Default::default()
        };
        let registry = state.channel.registry();
        state
            .call("bind_addr", &request)
            .map_err(|error| explain::bind_addr(error, registry, local))?;
        self.attach_device(&mut state)
    }

    /// Begins to find the device and the local address that lead to `peer`. The outcome is the event
    /// [`AddressResolved`](super::Event::AddressResolved) or
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
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        let mut state = self.state();
        let (dst_addr, dst_size) = address::encode(&peer.into());
        let mut request = ucma::ResolveAddr {
            id: self.handle(),
            timeout_ms: millis(timeout),
            dst_addr,
            dst_size,
            ..Default::default()
        };
        if let Some(source) = source {
            (request.src_addr, request.src_size) = address::encode(&source.into());
        }
        state
            .call("resolve_addr", &request)
            .map_err(|error| explain::resolve_addr(error, peer, source))?;
        state.peer = Some(peer);
        Ok(())
    }

    /// Begins to find the route. The outcome is the event [`RouteResolved`](super::Event::RouteResolved)
    /// or [`RouteError`](super::Event::RouteError).
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
        let state = self.state();
        let request = ucma::ResolveRoute {
            id: self.handle(),
            timeout_ms: millis(timeout),
        };
        state
            .call(operation, &request)
            .map_err(|error| explain::resolve_route(error, state.peer))
            .map(drop)
    }

    /// Listens for connections. A bound id listens on its address, an unbound one on all IPv4
    /// addresses and a free port, which [`CmId::local_addr`] then tells.
    ///
    /// `backlog` requests wait for being read; the kernel drops further ones, and their senders
    /// repeat them after some seconds. 0 means the most that the kernel allows (the sysctl
    /// `net.rdma_ucm.max_backlog`).
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

    /// Takes over what the kernel knows of the id's addresses and device.
    pub(super) fn attach_device(&self, state: &mut State) -> Result<()> {
        let operation = "query";
        let request = ucma::Query {
            id: self.handle(),
            option: ucma::QueryOption::ADDR.0,
            ..Default::default()
        };
        let found = state.call(operation, &request)?;
        state.local = address::decode(&found.src_addr)
            .and_then(|address| address.ip())
            .or(state.local);
        state.peer = address::decode(&found.dst_addr)
            .and_then(|address| address.ip())
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
    pub(super) fn take_offer(&self, offer: Offer) -> Result<()> {
        let mut state = self.state();
        self.attach_device(&mut state)?;
        if state.device.is_none() {
            return Err(Error::new(
                "next_event",
                ErrorKind::Disconnected,
                "a connection request came for a device that is gone; the channel goes on",
            ));
        }
        state.offer = Some(offer);
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
