//! Looking for the ways to peers.

use std::net::SocketAddr;
use std::time::Duration;

use super::interface::{Interface, with_port};
use super::wire::SLOT;
use crate::cm::{CmId, EventChannel, PathRecord, PortSpace};
use crate::device::{Context, Gid, GidType, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{AddressHandle, Path};

/// How long the kernel may take for each of the two steps.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ways that are being looked for: a bounded number, since each has an id in the kernel.
#[derive(Debug, Default)]
pub(super) struct Search {
    under_way: Vec<(CmId, SocketAddr)>,
}

impl Search {
    const MOST: usize = 16;

    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < Self::MOST
    }

    /// Begins to look for the way from a local address to a peer.
    pub(super) fn begin(
        &mut self,
        channel: &EventChannel,
        local: SocketAddr,
        peer: SocketAddr,
        type_of_service: Option<u8>,
    ) -> Result<()> {
        let id = channel.create_id(PortSpace::Udp)?;
        if let Some(type_of_service) = type_of_service {
            id.set_type_of_service(type_of_service)?;
        }
        id.resolve_addr(Some(with_port(local, 0).into()), peer, PATIENCE)?;
        self.under_way.push((id, peer));
        Ok(())
    }

    /// The address is resolved; the route is next. Says whose way was given up, if it was.
    pub(super) fn go_on(&mut self, id: &CmId) -> Option<SocketAddr> {
        match id.resolve_route(PATIENCE) {
            Ok(()) => None,
            Err(_) => self.end(id),
        }
    }

    /// The search is over; says for whose way it was.
    pub(super) fn end(&mut self, id: &CmId) -> Option<SocketAddr> {
        let at = self.under_way.iter().position(|(known, _)| known == id)?;
        Some(self.under_way.swap_remove(at).1)
    }
}

/// The handle for the way that was found, and the most data that a packet on it has.
pub(super) fn take(id: &CmId, interface: &Interface) -> Result<(AddressHandle, usize)> {
    let context = id.context()?;
    if !context.same_as(interface.pd().context()) {
        return Err(nowhere("the way begins at another device"));
    }
    let paths = id.paths()?;
    let record = paths
        .iter()
        .find(|path| path.is_primary())
        .or(paths.first())
        .ok_or_else(|| nowhere("the route has no path"))?;
    let path = path_of(&context, id.port()?, record)?;
    let mtu = record.mtu().map_or(SLOT, |mtu| mtu.bytes() as usize);
    let handle = interface.pd().address_handle(&path)?;
    Ok((handle, interface.longest_data(mtu)))
}

fn path_of(context: &Context, port: u8, record: &PathRecord) -> Result<Path> {
    let is_global = context.device().transport() == Transport::Roce || record.hop_limit() > 1;
    let (gid, source_gid_index) = match is_global {
        true => {
            let index = gid_index(context, port, record.source_gid())?;
            (record.destination_gid(), index)
        }
        // Within a subnet of InfiniBand the LID is enough.
        false => (Gid([0; 16]), 0),
    };
    Ok(Path {
        gid,
        source_gid_index,
        port,
        hop_limit: record.hop_limit(),
        traffic_class: record.traffic_class(),
        flow_label: record.flow_label(),
        service_level: record.service_level(),
        lid: record.destination_lid(),
    })
}

/// The index of a GID of the port. RoCE has it once for each version, and the second is what the
/// connection manager prefers as well.
fn gid_index(context: &Context, port: u8, gid: Gid) -> Result<u8> {
    let gids = context.gids()?;
    gids.iter()
        .filter(|entry| entry.port == port && entry.gid == gid)
        .filter_map(|entry| Some((entry.kind, u8::try_from(entry.index).ok()?)))
        .min_by_key(|(kind, _)| *kind != GidType::RoceV2)
        .map(|(_, index)| index)
        .ok_or_else(|| nowhere("the port has no such GID"))
}

fn nowhere(explanation: &'static str) -> Error {
    Error::new("send_to", ErrorKind::Unreachable, explanation)
}
