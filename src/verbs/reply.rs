//! The way back to the sender of a datagram.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::Path;
use crate::device::{Context, Gid, GidEntry, GidType};
use crate::error::{Error, Result};
use crate::fastpath::{GRH_LENGTH, Success};

/// As far as packets go. The header of a received one tells how many routers were left to pass, not
/// how many are needed.
const HOP_LIMIT: u8 = 255;

impl Context {
    /// The way back to the sender of a datagram that was received on `port`, whose completion is
    /// `received`. `grh` are the first [`GRH_LENGTH`] bytes of the receive. The sender's queue pair
    /// is [`Success::source_qp`]; its queue key has to be agreed on.
    ///
    /// ```no_run
    /// # fn example(pd: &rdmacm::Pd, inbox: &rdmacm::Buffer, received: &rdmacm::Success<'_>)
    /// #     -> rdmacm::Result<()> {
    /// let mut grh = [0; rdmacm::GRH_LENGTH];
    /// inbox.read(0, &mut grh)?;
    /// let path = pd.context().reply_path(received, &grh, 1)?;
    /// let handle = pd.address_handle(&path)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the datagram has no such header, when the header makes no sense, and when it was not
    /// sent to a GID of the port: to a multicast group for example. The GID to answer from then
    /// has to be chosen by the program.
    #[doc(alias("ibv_init_ah_from_wc", "ibv_create_ah_from_wc"))]
    pub fn reply_path(
        &self,
        received: &Success<'_>,
        grh: &[u8; GRH_LENGTH],
        port: u8,
    ) -> Result<Path> {
        let routes = Route::all_of(received, grh)?;
        way_back(received, &routes, &self.gids()?, port)
    }
}

/// The path back over the first route that names a GID of the port. Where the bytes could be either
/// header, ours is the one that names us.
pub(super) fn way_back(
    received: &Success<'_>,
    routes: &[Route],
    gids: &[GidEntry],
    port: u8,
) -> Result<Path> {
    for route in routes {
        let own = gids
            .iter()
            .filter(|entry| entry.port == port && entry.gid == route.to);
        if let Some(source_gid_index) = route.choose(own) {
            return Ok(Path {
                gid: route.from,
                source_gid_index,
                port,
                hop_limit: HOP_LIMIT,
                traffic_class: route.traffic_class,
                flow_label: route.flow_label,
                service_level: received.service_level(),
                lid: received.source_lid(),
            });
        }
    }
    let sent_to: Vec<String> = routes.iter().map(|route| route.to.to_string()).collect();
    Err(refuse(format!(
        "the datagram was sent to {}, which is no GID of port {port}",
        sent_to.join(" or ")
    )))
}

fn refuse(text: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid("reply_path", text)
}

/// What a header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    from: Gid,
    to: Gid,
    traffic_class: u8,
    flow_label: u32,
    /// Whether it came over UDP, which is RoCE v2.
    is_udp: bool,
}

/// The protocol number of UDP, in either header.
const UDP: u8 = 17;

impl Route {
    /// What the header of a datagram can mean: one or two routes.
    pub(super) fn all_of(received: &Success<'_>, grh: &[u8; GRH_LENGTH]) -> Result<Vec<Self>> {
        if !received.has_grh() {
            return Err(refuse("the datagram came without a header"));
        }
        let routes = [Self::of_ipv4(grh), Self::of_grh(grh)];
        let routes: Vec<Self> = routes.into_iter().flatten().collect();
        match routes.is_empty() {
            true => Err(refuse("the header is neither IPv4 nor a GRH")),
            false => Ok(routes),
        }
    }

    /// The index of the entry to answer from. A GID is often there twice, once for each version of
    /// RoCE, and the answer should go in packets like those that came.
    fn choose<'a>(&self, own: impl Iterator<Item = &'a GidEntry>) -> Option<u8> {
        let fits = |entry: &GidEntry| (entry.kind == GidType::RoceV2) == self.is_udp;
        let usable = own.filter_map(|entry| Some((fits(entry), u8::try_from(entry.index).ok()?)));
        // The first of those that fit, or the first there is.
        let (_, index) = usable.min_by_key(|(fits, _)| !fits)?;
        Some(index)
    }

    /// The GRH of InfiniBand and RoCE v1, which is the IPv6 header on RoCE v2.
    fn of_grh(grh: &[u8; GRH_LENGTH]) -> Option<Self> {
        let (first, rest) = grh.split_first_chunk::<4>()?;
        let word = u32::from_be_bytes(*first);
        let addresses = rest.get(4..)?;
        let (from, to) = addresses.split_first_chunk::<16>()?;
        (word >> 28 == 6).then_some(Self {
            from: Gid(*from),
            to: Gid(*to.first_chunk()?),
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            is_udp: rest[2] == UDP,
        })
    }

    /// The IPv4 header of RoCE v2, which lies in the last 20 bytes; nothing is said of those
    /// before.
    fn of_ipv4(grh: &[u8; GRH_LENGTH]) -> Option<Self> {
        let header = grh.last_chunk::<20>()?;
        let (head, to) = header.split_last_chunk::<4>()?;
        let (head, from) = head.split_last_chunk::<4>()?;
        // Version 4, and no options: they would not have fitted.
        (head[0] == 0x45).then_some(Self {
            from: mapped(*from),
            to: mapped(*to),
            traffic_class: head[1],
            flow_label: 0,
            is_udp: head[9] == UDP,
        })
    }
}

fn mapped(address: [u8; 4]) -> Gid {
    Gid(Ipv4Addr::from(address).to_ipv6_mapped().octets())
}
