//! The way from an address of this machine to itself.

use std::error::Error;
use std::net::IpAddr;

use rdmacm::{Path, Pd};

pub fn own_path(pd: &Pd, address: IpAddr) -> Result<Path, Box<dyn Error>> {
    let gids = pd.context().gids()?;
    let own = gids.iter().find(|entry| entry.gid.to_ip() == address);
    let own = own.ok_or("no GID of that address")?;
    Ok(Path {
        gid: own.gid,
        source_gid_index: own.index as u8,
        port: own.port,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        service_level: 0,
        lid: 0,
    })
}
