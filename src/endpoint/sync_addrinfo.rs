//! Ids that wait, made of names and addresses.

use std::time::Duration;

use super::SyncId;
use crate::cm::{AddrInfo, AddrInfoQuery, Event, Service};
use crate::error::{Error, Result};
use crate::verbs::QpAttr;

/// How long the steps of [`SyncId::create_ep`] may take, as in the C library.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

impl SyncId {
    /// Makes an id out of what [`AddrInfoQuery`](crate::AddrInfoQuery) found, and takes it as far
    /// as it goes without the peer: a passive one is bound, and makes its connections' queue pairs
    /// of `attr`; an active one is resolved (2 seconds each for address and route), and its queue
    /// pair is made of `attr`. An `attr` that lives as long as this one can name no protection
    /// domain, completion queue or shared receive queue of the program's: pass `None` for those,
    /// and call [`SyncId::create_qp`] afterwards.
    ///
    /// ```no_run
    /// use rdmacm::{AddrInfoQuery, ConnParam, QpAttr, SyncId};
    ///
    /// let found = AddrInfoQuery::new().node("10.0.0.1").service("7471").resolve()?;
    /// let mut id = SyncId::create_ep(&found[0], Some(QpAttr::default()))?;
    /// id.connect(&ConnParam::new())?;
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As the steps; nothing is left behind.
    #[doc(alias = "rdma_create_ep")]
    pub fn create_ep(info: &AddrInfo, attr: Option<QpAttr<'static>>) -> Result<Self> {
        let operation = "create_ep";
        let mut id = Self::create_for(info.port_space, info.qp_type)?;
        if info.is_passive {
            let source = info.source.ok_or_else(|| without(operation, "source"))?;
            id.bind_addr(source)?;
            id.request_attr = attr;
            return Ok(id);
        }
        let peer = info
            .destination
            .ok_or_else(|| without(operation, "destination"))?;
        id.resolve_addr(info.source, peer, RESOLVE_TIMEOUT)?;
        if info.route.is_empty() {
            id.resolve_route(RESOLVE_TIMEOUT)?;
        } else {
            id.id.set_path(&info.route)?;
            let resolved = |event: &Event| matches!(event, Event::RouteResolved(_));
            id.wait(operation, resolved)?;
        }
        if let Some(attr) = attr {
            id.create_qp(&attr)?;
        }
        id.connect_data = info.connect_data.clone();
        Ok(id)
    }

    /// Looks names up for the id. With Linux before 6.18 [`AddrInfoQuery::resolve`] does the same
    /// without an id.
    ///
    /// # Errors
    ///
    /// As [`CmId::resolve_addrinfo`](crate::CmId::resolve_addrinfo).
    #[doc(alias("rdma_resolve_addrinfo", "rdma_query_addrinfo"))]
    pub fn resolve_addrinfo(&mut self, query: &AddrInfoQuery) -> Result<Vec<AddrInfo>> {
        self.id.resolve_addrinfo(query)?;
        self.looked_up("resolve_addrinfo")
    }

    /// Looks a service of the InfiniBand subnet up.
    ///
    /// # Errors
    ///
    /// As [`CmId::resolve_service`](crate::CmId::resolve_service), and when there is no such
    /// service.
    #[doc(alias("rdma_resolve_addrinfo", "rdma_query_addrinfo"))]
    pub fn resolve_service(&mut self, service: Service<'_>) -> Result<Vec<AddrInfo>> {
        self.id.resolve_service(service)?;
        self.looked_up("resolve_service")
    }

    fn looked_up(&mut self, operation: &'static str) -> Result<Vec<AddrInfo>> {
        self.wait(operation, |event| {
            matches!(event, Event::AddrInfoResolved(_))
        })?;
        self.id.query_addrinfo()
    }
}

fn without(operation: &'static str, what: &str) -> Error {
    Error::invalid(operation, format!("the address information has no {what}"))
}
