//! What the kernel's errnos mean for the connection manager, and what to do about them.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::{Address, CmId, PortSpace};
use crate::device::{Registry, served_addresses};
use crate::error::{ENOTSUPP, Error, ErrorKind};
use crate::sys::Kernel;

pub(super) fn open_channel(kernel: &dyn Kernel, error: &io::Error) -> Error {
    let described = Error::from_os("open_event_channel", error);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            // sysfs knows whether the kernel has a connection manager, node or not.
            let loaded = kernel
                .read_file(Path::new("/sys/class/misc/rdma_cm/dev"))
                .is_ok();
            described.of_kind(ErrorKind::NoDevice).because(if loaded {
                "the kernel has a connection manager but the node /dev/infiniband/rdma_cm is \
                 missing: in a container, pass the node in; elsewhere, check udev"
            } else {
                "the kernel has no RDMA connection manager: load the module with \
                 `modprobe rdma_ucm`"
            })
        }
        Some(libc::EACCES | libc::EPERM) => described.because(
            "no permission on /dev/infiniband/rdma_cm: open it to the user or the group rdma",
        ),
        _ => described,
    }
}

pub(super) fn bind_addr(
    error: Error,
    registry: &'static Registry,
    port_space: PortSpace,
    local: Address,
) -> Error {
    if (port_space, error.errno()) == (PortSpace::Ipoib, Some(libc::EINVAL)) {
        return error.because(
            "the id is bound already, or the device is not InfiniBand, as this port space wants",
        );
    }
    let Some(local) = local.ip() else {
        return match error.errno() {
            Some(libc::ENODEV | libc::EADDRNOTAVAIL) => error.because(
                "no port of this machine has that GID and partition; RoCE and iWARP devices have \
                 IP addresses only",
            ),
            _ => error,
        };
    };
    match error.errno() {
        Some(libc::EADDRINUSE) => {
            error.because(format!("port {} is in use on {}", local.port(), local.ip()))
        }
        Some(libc::EADDRNOTAVAIL) => error.because(format!(
            "{} is not an address of this machine, or port {} is in use on a wildcard address; {}",
            local.ip(),
            local.port(),
            served(registry)
        )),
        Some(libc::ENODEV) => error.because(format!(
            "no RDMA device serves {}; {}",
            local.ip(),
            served(registry)
        )),
        Some(libc::EACCES) if local.port() != 0 && local.port() < 1024 => error.because(format!(
            "port {} needs the privilege CAP_NET_BIND_SERVICE",
            local.port()
        )),
        Some(libc::EINVAL) => error.because(match local.ip() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                "a link-local address needs the index of its interface as scope id"
            }
            _ => "the id is bound already, or the address cannot be used",
        }),
        _ => error,
    }
}

pub(super) fn resolve_addr(error: Error, peer: Address, source: Option<Address>) -> Error {
    match (error.errno(), source) {
        (Some(libc::ENETUNREACH | libc::EHOSTUNREACH), _) => {
            error.because(format!("no route leads to {}", host(&peer)))
        }
        (Some(libc::EADDRNOTAVAIL), Some(source)) => error.because(format!(
            "{} is not an address of this machine",
            host(&source)
        )),
        (Some(libc::EINVAL), _) => error.because(
            "the address is resolved already, source and destination are of different families, \
             or a link-local address lacks its scope id",
        ),
        _ => error,
    }
}

/// ADDR_ERROR: no answer from the network, or no device.
pub(super) fn address_error(error: Error, errno: i32, id: &CmId) -> Error {
    let (registry, peer) = {
        let state = id.state();
        (state.channel.registry(), state.peer)
    };
    let peer = peer.map_or("the address".to_owned(), |peer| host(&peer));
    match errno {
        libc::ENODEV => error.of_kind(ErrorKind::NoDevice).because(format!(
            "{peer} is not reached through an RDMA device; {}",
            served(registry)
        )),
        libc::ETIMEDOUT => error.of_kind(ErrorKind::TimedOut).because(format!(
            "{peer} did not answer in time: nobody has the address on the network"
        )),
        _ => error.because(format!("{peer} could not be resolved")),
    }
}

pub(super) fn resolve_route(error: Error, peer: Option<Address>) -> Error {
    let is_loopback = peer
        .and_then(|peer| peer.ip())
        .is_some_and(|peer| peer.ip().is_loopback() || peer.ip().is_unspecified());
    match error.errno() {
        Some(libc::ENODEV) if is_loopback => error.because(
            "RDMA does not go through loopback addresses: use the address of the interface that \
             the RDMA device is on",
        ),
        Some(libc::EINVAL) => {
            error.because("the address is not resolved yet, or the route is resolved already")
        }
        _ => error,
    }
}

pub(super) fn listen(error: Error, local: Option<Address>) -> Error {
    let port = local.map_or(0, |local| local.port());
    match error.errno() {
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => {
            error.because(format!("port {port} is in use"))
        }
        Some(libc::EINVAL) => error.because("the id listens already, or is used to connect"),
        _ => error,
    }
}

pub(super) fn connect(error: Error) -> Error {
    match error.errno() {
        Some(libc::EINVAL) => error.because(
            "the route is not resolved, or the id has connected before (make a new id for each \
             attempt)",
        ),
        _ => error,
    }
}

/// Both sides' part in the handshake.
pub(super) fn handshake(error: Error) -> Error {
    match error.errno() {
        // For the passive side the kernel has no other word of a peer that takes its request back:
        // the events of an id begin with its acceptance.
        Some(libc::EINVAL) => error
            .of_kind(ErrorKind::Rejected)
            .because("the peer has given up, or the handshake is over"),
        _ => error,
    }
}

pub(super) fn set_path(error: Error) -> Error {
    match error.errno() {
        Some(libc::EINVAL) => error.because(
            "the address is not resolved, the route is resolved already, or no record is a primary \
             path for both directions",
        ),
        _ => error,
    }
}

pub(super) const PEER_UNKNOWN: &str =
    "the peer's queue pair is not known yet: its request or answer has to come";

pub(super) fn init_qp_attr(error: Error) -> Error {
    match error.errno() {
        Some(libc::EINVAL) => error.of_kind(ErrorKind::InvalidState).because(PEER_UNKNOWN),
        _ => error,
    }
}

pub(super) fn notify(error: Error) -> Error {
    match error.errno() {
        Some(libc::EISCONN) => error.because("the connection is established already"),
        Some(libc::EINVAL) => error.because("the id has not accepted a connection"),
        _ => error,
    }
}

pub(super) fn resolve_service(error: Error) -> Error {
    match error.errno() {
        Some(libc::EOPNOTSUPP) => error.because("only InfiniBand has such services"),
        Some(libc::EINVAL) => error.because(
            "the id has to be bound and not resolved, and looks one service up in its life",
        ),
        _ => error,
    }
}

pub(super) fn join_multicast(error: Error, group: &Address) -> Error {
    match error.errno() {
        Some(ENOTSUPP) => error.because(format!(
            "the kernel cannot join {group} on this device; RoCE has groups of IPv4 addresses only"
        )),
        _ => error,
    }
}

/// An address without its port.
fn host(address: &Address) -> String {
    match address.ip() {
        Some(address) => address.ip().to_string(),
        None => address.to_string(),
    }
}

/// What the reader of "no device" needs next.
fn served(registry: &'static Registry) -> String {
    match served_addresses(registry) {
        None => "this machine has no RDMA device".to_owned(),
        Some(addresses) => format!("RDMA devices of this machine: {addresses}"),
    }
}
