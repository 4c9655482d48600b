//! From names to addresses.

mod query;

use std::net::SocketAddr;

use super::ibacm::{self, Ask};
use super::{Address, IbAddress, PathRecord, PortSpace, cma_header};
use crate::device::Registry;
use crate::fastpath::QpType;

pub use query::{AddrInfoQuery, AddressFamily};

/// One way to reach a service, or one address to offer it at: what an id is made and resolved with.
#[doc(alias = "rdma_addrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// The address is one to listen on.
    #[doc(alias = "RAI_PASSIVE")]
    pub is_passive: bool,
    /// Port space of the id.
    #[doc(alias = "ai_port_space")]
    pub port_space: PortSpace,
    /// Type of the queue pair.
    #[doc(alias = "ai_qp_type")]
    pub qp_type: QpType,
    /// Where to bind: always there on the passive side, on the active side when it was asked for.
    #[doc(alias("ai_src_addr", "ai_src_len"))]
    pub source: Option<Address>,
    /// Whom to connect to. Active side only.
    #[doc(alias("ai_dst_addr", "ai_dst_len"))]
    pub destination: Option<Address>,
    /// The full name of the node, if it was asked for.
    #[doc(alias("ai_src_canonname", "ai_dst_canonname"))]
    pub canonical_name: Option<String>,
    /// The route, if ibacm runs and knows one. Otherwise the kernel finds it.
    #[doc(alias("ai_route", "ai_route_len"))]
    pub route: Vec<PathRecord>,
    /// What has to stand before the private data of a connect to `destination`.
    #[doc(alias("ai_connect", "ai_connect_len"))]
    pub connect_data: Vec<u8>,
}

impl AddrInfo {
    /// A service at an address that the subnet's administrator knows.
    pub(super) fn of_service(
        port_space: PortSpace,
        qp_type: QpType,
        destination: IbAddress,
    ) -> Self {
        Self {
            is_passive: false,
            port_space,
            qp_type,
            source: None,
            destination: Some(destination.into()),
            canonical_name: None,
            route: Vec::new(),
            connect_data: Vec::new(),
        }
    }
}

/// Adds what ibacm knows of the route to each of `found`.
fn add_routes(registry: &Registry, found: Vec<AddrInfo>, query: &AddrInfoQuery) -> Vec<AddrInfo> {
    let mut infos = Vec::with_capacity(found.len());
    for mut info in found {
        let question = Ask {
            source: info.source.as_ref(),
            destination: info.destination.as_ref(),
            only_known: query.is_in_a_hurry(),
        };
        if let Some(answer) = ibacm::ask(registry, &question) {
            let told = answer.source.map(|ip| SocketAddr::new(ip, 0).into());
            info.source = info.source.or(told);
            info.route = answer.paths;
            if !query.is_route_only() {
                infos.extend(ib_form(&info));
            }
        }
        infos.push(info);
    }
    infos
}

/// The same connection between the ports at the ends of its path, for which nothing is left to
/// resolve. The peer is told the IP addresses in the connect data.
fn ib_form(info: &AddrInfo) -> Option<AddrInfo> {
    let (source, destination) = (info.source?.ip()?, info.destination?.ip()?);
    let path = info.route.first()?;
    let end = |gid, port| {
        Address::from(IbAddress {
            pkey: path.pkey(),
            flow_info: path.flow_label(),
            ..IbAddress::for_port(info.port_space, port, gid)
        })
    };
    Some(AddrInfo {
        source: Some(end(path.source_gid(), source.port())),
        destination: Some(end(path.destination_gid(), destination.port())),
        connect_data: cma_header::cma_header(source, destination)?,
        ..info.clone()
    })
}

#[cfg(test)]
mod tests;
