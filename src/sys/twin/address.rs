//! Addresses of ids: binding, resolving, and their form in the kernel's records.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rdmacm_kernel_abi::sockaddr::{AF_IB, SockaddrIb, SockaddrIn, SockaddrIn6, SockaddrStorage};
use rdmacm_kernel_abi::ucma::{self, EventType};
use zerocopy::{FromBytes, IntoBytes};

use super::cm::Phase;
use super::files::FileId;
use super::{Outcome, World};

/// Nobody has this address: resolving it times out.
pub(crate) const SILENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99));
/// This address is reached, but through no RDMA device.
pub(crate) const WITHOUT_RDMA: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 7));

impl World {
    pub(super) fn bind(&mut self, file: FileId, request: &ucma::Bind) -> Outcome {
        let address = decode(&request.addr, request.addr_size)?;
        if self.alive(file, request.id)?.phase != Phase::Idle {
            return Err(libc::EINVAL);
        }
        self.bind_to(request.id, address)
    }

    pub(super) fn bind_to(&mut self, handle: u32, mut address: SocketAddr) -> Outcome {
        let device = self.device_of_ip(address.ip());
        let is_wildcard = address.ip().is_unspecified();
        if device.is_none() && !is_wildcard && !address.ip().is_loopback() {
            return Err(libc::EADDRNOTAVAIL);
        }
        let space = self.ids.get(handle)?.space;
        if space == ucma::PortSpace::IPOIB && device.is_some() {
            // The devices are none of InfiniBand's.
            return Err(libc::EINVAL);
        }
        if address.port() == 0 {
            address.set_port(self.free_port(space));
        } else {
            self.check_port(handle, address)?;
        }
        let id = self.ids.get(handle)?;
        (id.local, id.device, id.phase) = (Some(address), device, Phase::Bound);
        Ok(())
    }

    /// Refuses an address that is in use, in the id's port space.
    fn check_port(&mut self, handle: u32, address: SocketAddr) -> Outcome {
        let id = self.ids.get(handle)?;
        let (space, options) = (id.space, id.options);
        for other in self.ids.0.values().filter(|id| id.space == space) {
            let Some(local) = other.bound_to().filter(|it| it.port() == address.port()) else {
                continue;
            };
            let shares = options.is_reused && other.options.is_reused;
            if shares && other.phase != Phase::Listening {
                continue;
            }
            let only_own = |address: SocketAddr, is_only: bool| address.is_ipv6() && is_only;
            let is_apart = address.is_ipv4() != local.is_ipv4()
                && (only_own(address, options.is_family_only)
                    || only_own(local, other.options.is_family_only));
            if is_apart {
                continue;
            }
            let is_vague = |ip: IpAddr| ip.is_unspecified() || ip.is_loopback();
            if address.ip() == local.ip() && !address.ip().is_unspecified() {
                return Err(libc::EADDRINUSE);
            } else if is_vague(address.ip()) || is_vague(local.ip()) {
                return Err(libc::EADDRNOTAVAIL);
            }
        }
        Ok(())
    }

    fn free_port(&self, space: ucma::PortSpace) -> u16 {
        let taken = |port: u16| {
            let mut others = self.ids.0.values().filter(|id| id.space == space);
            others.any(|id| id.bound_to().is_some_and(|local| local.port() == port))
        };
        (40_000..)
            .find(|port| !taken(*port))
            .expect("a test binds few ports")
    }

    pub(super) fn resolve_addr(&mut self, file: FileId, request: &ucma::ResolveAddr) -> Outcome {
        let peer = decode(&request.dst_addr, request.dst_size)?;
        let source = match request.src_size {
            0 => None,
            size => Some(decode(&request.src_addr, size)?),
        };
        let id = self.alive(file, request.id)?;
        if ![Phase::Idle, Phase::Bound].contains(&id.phase) {
            return Err(libc::EINVAL);
        }
        if let Some(source) = source {
            if source.is_ipv4() != peer.is_ipv4() {
                return Err(libc::EINVAL);
            }
            self.bind_to(request.id, source)?;
        }
        let device = self.device_of_ip(peer.ip());
        let outcome = match device {
            Some(_) => 0,
            None if peer.ip() == SILENT => -libc::ETIMEDOUT,
            None if peer.ip() == WITHOUT_RDMA => -libc::ENODEV,
            None => return Err(libc::ENETUNREACH),
        };
        let space = self.ids.get(request.id)?.space;
        let port = self.free_port(space);
        let id = self.ids.get(request.id)?;
        id.remote = Some(peer);
        if outcome != 0 {
            self.emit(request.id, EventType::ADDR_ERROR, outcome, None);
            return Ok(());
        }
        id.phase = Phase::AddressResolved;
        // The twin's network is one machine: the way to an address begins at that address.
        id.device = id.device.or(device);
        id.local = id.local.or(Some(SocketAddr::new(peer.ip(), port)));
        self.emit(request.id, EventType::ADDR_RESOLVED, 0, None);
        Ok(())
    }

    pub(super) fn resolve_route(&mut self, file: FileId, request: &ucma::ResolveRoute) -> Outcome {
        let id = self.alive(file, request.id)?;
        if id.phase != Phase::AddressResolved || request.timeout_ms == 0 {
            return Err(libc::EINVAL);
        }
        id.phase = Phase::RouteResolved;
        self.emit(request.id, EventType::ROUTE_RESOLVED, 0, None);
        Ok(())
    }

    /// The device that serves an address.
    fn device_of_ip(&self, ip: IpAddr) -> Option<u32> {
        let mut present = self.devices.iter().filter(|device| !device.is_gone);
        present
            .find(|device| device.ips.contains(&ip))
            .map(|device| device.index)
    }
}

pub(super) fn decode(address: &SockaddrStorage, size: u16) -> Outcome<SocketAddr> {
    let bytes = &address.as_bytes()[..usize::from(size).min(128)];
    if address.family == AF_IB && usize::from(size) == size_of::<SockaddrIb>() {
        // There are no ports with such addresses.
        return Err(libc::ENODEV);
    }
    match i32::from(address.family) {
        libc::AF_INET => {
            let v4 = SockaddrIn::read_from_bytes(bytes).map_err(|_| libc::EINVAL)?;
            Ok(SocketAddr::new(
                Ipv4Addr::from(v4.addr).into(),
                v4.port.get(),
            ))
        }
        libc::AF_INET6 => {
            let v6 = SockaddrIn6::read_from_bytes(bytes).map_err(|_| libc::EINVAL)?;
            Ok(SocketAddr::new(
                Ipv6Addr::from(v6.addr).into(),
                v6.port.get(),
            ))
        }
        _ => Err(libc::EINVAL),
    }
}

pub(super) fn encode(address: SocketAddr) -> (SockaddrStorage, u16) {
    let mut storage = SockaddrStorage::default();
    let encoded = match address {
        SocketAddr::V4(v4) => SockaddrIn {
            family: libc::AF_INET as u16,
            port: v4.port().into(),
            addr: v4.ip().octets(),
            zero: [0; 8],
        }
        .as_bytes()
        .to_vec(),
        SocketAddr::V6(v6) => SockaddrIn6 {
            family: libc::AF_INET6 as u16,
            port: v6.port().into(),
            flowinfo: 0.into(),
            addr: v6.ip().octets(),
            scope_id: v6.scope_id(),
        }
        .as_bytes()
        .to_vec(),
    };
    storage.as_mut_bytes()[..encoded.len()].copy_from_slice(&encoded);
    (storage, encoded.len() as u16)
}
