//! What to look up, and the system's resolver.

use std::ffi::CString;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use super::{AddrInfo, add_routes};
use crate::cm::{Address, IbAddress, PortSpace};
use crate::device::{Gid, Registry};
use crate::error::{Error, Result};
use crate::fastpath::QpType;
use crate::sys::{self, NameQuery, Resolved, ResolverError};

const OPERATION: &str = "getaddrinfo";

/// A family of addresses.
#[doc(alias = "ai_family")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IP version 4.
    #[doc(alias = "AF_INET")]
    Ipv4,
    /// IP version 6.
    #[doc(alias = "AF_INET6")]
    Ipv6,
    /// InfiniBand's own.
    #[doc(alias = "AF_IB")]
    Ib,
}

/// A question for addresses: a host and a service by name, or addresses that are known already.
///
/// ```
/// use rdmacm::AddrInfoQuery;
///
/// // Whom to connect to.
/// let found = AddrInfoQuery::new().node("10.1.2.3").service("7471").resolve()?;
/// assert_eq!(found[0].destination.unwrap().to_string(), "10.1.2.3:7471");
///
/// // Where to listen.
/// let found = AddrInfoQuery::new().service("7471").passive().resolve()?;
/// assert_eq!(found[0].source.unwrap().port(), 7471);
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[doc(alias("rdma_getaddrinfo", "rdma_freeaddrinfo", "rdma_addrinfo"))]
#[derive(Debug, Clone, Default)]
pub struct AddrInfoQuery {
    node: Option<String>,
    service: Option<String>,
    is_passive: bool,
    is_numeric: bool,
    no_route: bool,
    is_route_only: bool,
    wants_canonical_name: bool,
    family: Option<AddressFamily>,
    port_space: Option<PortSpace>,
    qp_type: Option<QpType>,
    source: Option<Address>,
    destination: Option<Address>,
}

impl AddrInfoQuery {
    /// A question for nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The host, by name or by address. A link-local address needs its interface: `fe80::1%eth0`.
    ///
    /// Without a host, or with `*` where the resolver is glibc's, the answer is the wildcard
    /// address on the passive side, and the loopback address on the active one. To the latter the
    /// kernel knows no route.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// The service, by name (of /etc/services) or by port number. Without one the port is 0.
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = Some(service.into());
        self
    }

    /// Asks for addresses to listen on instead of addresses to connect to.
    #[doc(alias = "RAI_PASSIVE")]
    pub fn passive(mut self) -> Self {
        self.is_passive = true;
        self
    }

    /// Takes the node for an address in text: no name server is asked.
    #[doc(alias = "RAI_NUMERICHOST")]
    pub fn numeric_host(mut self) -> Self {
        self.is_numeric = true;
        self
    }

    /// Leaves out routes that ibacm would first have to ask for in the subnet.
    #[doc(alias = "RAI_NOROUTE")]
    pub fn no_route(mut self) -> Self {
        self.no_route = true;
        self
    }

    /// Adds routes to the addresses, and no addresses of InfiniBand's own.
    #[doc(alias = "RAI_ROUTEONLY")]
    pub fn route_only(mut self) -> Self {
        self.is_route_only = true;
        self
    }

    /// Asks for the full name of the node as well.
    pub fn canonical_name(mut self) -> Self {
        self.wants_canonical_name = true;
        self
    }

    /// Wants addresses of this family only. [`AddressFamily::Ib`] takes the node for a GID in text.
    #[doc(alias = "RAI_FAMILY")]
    pub fn family(mut self, family: AddressFamily) -> Self {
        self.family = Some(family);
        self
    }

    /// The port space; by default [`PortSpace::Tcp`], with datagram queue pairs [`PortSpace::Udp`].
    pub fn port_space(mut self, port_space: PortSpace) -> Self {
        self.port_space = Some(port_space);
        self
    }

    /// The type of the queue pair; by default the one that the port space has.
    pub fn qp_type(mut self, qp_type: QpType) -> Self {
        self.qp_type = Some(qp_type);
        self
    }

    /// The address to bind to on the active side. Its family decides which addresses are found,
    /// unless [`AddrInfoQuery::family`] does. On the passive side it takes the place of node and
    /// service.
    pub fn source(mut self, source: impl Into<Address>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The address to connect to, instead of node and service.
    pub fn destination(mut self, destination: impl Into<Address>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Looks up all addresses, the preferred one first. Where ibacm runs and knows the route to
    /// one, the route is with it, and the same connection between InfiniBand's own addresses stands
    /// before it.
    ///
    /// Blocks as long as name servers do. ibacm is waited for a second at most.
    ///
    /// # Errors
    ///
    /// [`Resolver`](crate::ErrorKind::Resolver) with the resolver's text and number when it finds
    /// nothing. A question for nothing, or with parts that contradict each other, is refused
    /// before anybody is asked.
    #[doc(alias = "rdma_getaddrinfo")]
    pub fn resolve(&self) -> Result<Vec<AddrInfo>> {
        self.resolve_on(Registry::of_this_machine())
    }

    pub(in crate::cm) fn resolve_on(&self, registry: &Registry) -> Result<Vec<AddrInfo>> {
        self.check()?;
        let found = self.find()?;
        Ok(match self.is_passive {
            true => found,
            false => add_routes(registry, found, self),
        })
    }

    /// Whether ibacm is to answer at once.
    pub(super) fn is_in_a_hurry(&self) -> bool {
        self.is_numeric || self.no_route
    }

    pub(super) fn is_route_only(&self) -> bool {
        self.is_route_only
    }

    fn is_by_name(&self) -> bool {
        self.node.is_some() || self.service.is_some()
    }

    fn check(&self) -> Result<()> {
        let refuse = |why| Err(Error::invalid(OPERATION, why));
        if self.destination.is_some() && self.is_passive {
            return refuse("a passive query has no destination: the peer is who connects");
        }
        if self.destination.is_some() && self.is_by_name() {
            return refuse(
                "a destination takes the place of node and service: give one or the other",
            );
        }
        let known = if self.is_passive {
            self.source
        } else {
            self.destination
        };
        if !self.is_by_name() && known.is_none() {
            return refuse(match self.is_passive {
                true => "there is nothing to look up: give a node, a service or a source",
                false => "there is nothing to look up: give a node, a service or a destination",
            });
        }
        let is_datagram = self.effective_qp_type() == QpType::Ud;
        match self.port_space {
            Some(PortSpace::Tcp) if is_datagram => {
                refuse("ids of the port space Tcp are connected")
            }
            Some(PortSpace::Udp | PortSpace::Ipoib) if !is_datagram => {
                refuse("ids of the port spaces Udp and Ipoib have queue pairs of the type Ud")
            }
            _ => self.check_port(),
        }
    }

    /// Resolvers cut larger numbers to 16 bits.
    fn check_port(&self) -> Result<()> {
        let service = self.service.as_deref().unwrap_or_default();
        let is_number = !service.is_empty() && service.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && service.parse::<u16>().is_err() {
            return Err(Error::invalid(
                OPERATION,
                format!("{service} is no port: the largest one is 65535"),
            ));
        }
        Ok(())
    }

    fn effective_qp_type(&self) -> QpType {
        self.qp_type.unwrap_or(match self.port_space {
            Some(PortSpace::Udp | PortSpace::Ipoib) => QpType::Ud,
            Some(PortSpace::Tcp | PortSpace::Ib) | None => QpType::Rc,
        })
    }

    fn effective_port_space(&self) -> PortSpace {
        self.port_space.unwrap_or(match self.effective_qp_type() {
            QpType::Ud => PortSpace::Udp,
            _ => PortSpace::Tcp,
        })
    }

    /// The addresses without routes.
    fn find(&self) -> Result<Vec<AddrInfo>> {
        if !self.is_by_name() {
            return Ok(vec![self.info(self.source, self.destination, None)]);
        }
        let found = self.look_up()?;
        let addresses = found
            .addresses
            .into_iter()
            .map(|address| match self.family {
                Some(AddressFamily::Ib) => self.gid_address(address),
                _ => address.into(),
            });
        let name = found.canonical_name;
        Ok(addresses
            .map(|address| match self.is_passive {
                true => self.info(Some(address), None, name.clone()),
                false => self.info(self.source, Some(address), name.clone()),
            })
            .collect())
    }

    fn info(
        &self,
        source: Option<Address>,
        destination: Option<Address>,
        canonical_name: Option<String>,
    ) -> AddrInfo {
        AddrInfo {
            is_passive: self.is_passive,
            port_space: self.effective_port_space(),
            qp_type: self.effective_qp_type(),
            source,
            destination,
            canonical_name,
            route: Vec::new(),
            connect_data: Vec::new(),
        }
    }

    /// A GID looks like an IPv6 address.
    fn gid_address(&self, address: SocketAddr) -> Address {
        let port = address.port();
        let v6 = match address {
            SocketAddr::V6(v6) => v6,
            // Not answered when IPv6 is asked for.
            SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), port, 0, 0),
        };
        let gid = Gid(Ipv6Addr::octets(v6.ip()));
        IbAddress {
            flow_info: v6.flowinfo(),
            scope_id: v6.scope_id().into(),
            ..IbAddress::for_port(self.effective_port_space(), port, gid)
        }
        .into()
    }

    fn look_up(&self) -> Result<Resolved> {
        let node = c_text("node", self.node.as_deref())?;
        let service = c_text("service", self.service.as_deref())?;
        let query = NameQuery {
            node: node.as_deref(),
            service: service.as_deref(),
            is_passive: self.is_passive,
            is_numeric: self.is_numeric || self.family == Some(AddressFamily::Ib),
            wants_canonical_name: self.wants_canonical_name,
            family: self.resolver_family(),
            is_datagram: self.effective_qp_type() == QpType::Ud,
        };
        sys::resolve_name(&query).map_err(|error| self.explain(&error))
    }

    fn resolver_family(&self) -> i32 {
        let is_active = !self.is_passive;
        let source = self
            .source
            .filter(|_| is_active)
            .and_then(|source| source.ip());
        match (self.family, source) {
            (Some(AddressFamily::Ipv4), _) | (None, Some(SocketAddr::V4(_))) => libc::AF_INET,
            (Some(AddressFamily::Ipv6 | AddressFamily::Ib), _)
            | (None, Some(SocketAddr::V6(_))) => libc::AF_INET6,
            (None, None) => libc::AF_UNSPEC,
        }
    }

    /// The resolver's own text, what it was asked, and what that means.
    fn explain(&self, error: &ResolverError) -> Error {
        let mut asked = Vec::new();
        asked.extend(self.node.as_ref().map(|node| format!("node {node:?}")));
        asked.extend(
            self.service
                .as_ref()
                .map(|service| format!("service {service:?}")),
        );
        let meaning = match error.code {
            libc::EAI_NONAME if self.is_numeric || self.family == Some(AddressFamily::Ib) => {
                "; only addresses in text are taken here, no names"
            }
            libc::EAI_AGAIN => "; no name server answered, so try again later",
            libc::EAI_SERVICE => "; the port space has no service of that name in /etc/services",
            _ => "",
        };
        Error::from_resolver(
            OPERATION,
            error.code,
            error.errno,
            format!("{error}: {}{meaning}", asked.join(", ")),
        )
    }
}

fn c_text(what: &str, text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new)
        .transpose()
        .map_err(|_| Error::invalid(OPERATION, format!("the {what} has a NUL byte in it")))
}
