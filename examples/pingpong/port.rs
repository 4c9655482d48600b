//! The port that the queue pairs are at: which device, which GID, and the way to a peer.

use std::hash::{BuildHasher, Hasher};

use rdmacm::{Context, Cq, Device, Gid, LinkLayer, Path, PortAttr, Transport, devices};

use crate::args::Options;
use crate::report::Result;
use crate::wire::Address;

/// A port of an open device, and which of its addresses to use.
pub struct Port {
    context: Context,
    number: u8,
    attr: PortAttr,
    gid: Gid,
    gid_index: u8,
    service_level: u8,
}

impl Port {
    pub fn open(options: &Options) -> Result<Self> {
        let device = find(options.device.as_deref())?;
        let (name, number) = (device.name(), options.device_port);
        if device.transport() == Transport::Iwarp {
            return Err(format!(
                "{name} is an iWARP device, whose queue pairs rdma_cm connects and nobody else; \
                 rping does the like there"
            )
            .into());
        }
        let context = device.open()?;
        let attr = context.port(number)?;
        if attr.link_layer == LinkLayer::Ethernet && options.gid_index.is_none() {
            return Err(format!(
                "port {number} of {name} is on Ethernet, where ports are found by their GIDs: \
                 choose one with -g (`devinfo -v` lists them)"
            )
            .into());
        }
        if attr.link_layer != LinkLayer::Ethernet && attr.lid == 0 {
            return Err(format!("port {number} of {name} has no LID yet").into());
        }
        let gid = match options.gid_index {
            Some(index) => gid_at(&context, number, index)?,
            None => Address::NONE.gid,
        };
        Ok(Self {
            context,
            number,
            attr,
            gid,
            gid_index: options.gid_index.unwrap_or(0),
            service_level: options.service_level,
        })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn number(&self) -> u8 {
        self.number
    }

    pub fn attr(&self) -> &PortAttr {
        &self.attr
    }

    /// A completion queue, with a channel where the program is to sleep.
    pub fn completion_queue(&self, entries: u32, sleep: bool) -> Result<Cq> {
        let builder = self.context.completion_queue(entries);
        if !sleep {
            return Ok(builder.build()?);
        }
        let channel = self.context.completion_channel()?;
        Ok(builder.channel(&channel).build()?)
    }

    /// Where a queue pair of ours is. It begins with any packet number: those that may still be on
    /// their way to an earlier queue pair of the same number have others, almost certainly.
    pub fn address(&self, qp_num: u32) -> Address {
        Address {
            lid: self.attr.lid,
            qp_num,
            psn: random() & 0xff_ffff,
            gid: self.gid,
        }
    }

    /// The way to a peer's port.
    pub fn path_to(&self, peer: &Address, hop_limit: u8) -> Result<Path> {
        if self.attr.link_layer == LinkLayer::Ethernet && !peer.has_gid() {
            return Err("the peer told no GID; it needs -g as well".into());
        }
        Ok(Path {
            // Without one the way is by the LID.
            gid: if peer.has_gid() {
                peer.gid
            } else {
                Address::NONE.gid
            },
            source_gid_index: self.gid_index,
            port: self.number,
            hop_limit,
            traffic_class: 0,
            flow_label: 0,
            service_level: self.service_level,
            lid: peer.lid,
        })
    }
}

/// The device of this name, or the first one.
fn find(name: Option<&str>) -> Result<Device> {
    let mut all = devices()?;
    let Some(name) = name else {
        let first = all.into_iter().next();
        return first.ok_or_else(|| "no RDMA device is here; devinfo tells more".into());
    };
    match all.iter().position(|device| device.name() == name) {
        Some(index) => Ok(all.swap_remove(index)),
        None => {
            let names: Vec<&str> = all.iter().map(Device::name).collect();
            Err(format!("there is no device {name}; there is {}", names.join(", ")).into())
        }
    }
}

fn gid_at(context: &Context, port: u8, index: u8) -> Result<Gid> {
    let table = context.gids()?;
    let found = table
        .iter()
        .find(|entry| entry.port == port && entry.index == u32::from(index));
    found.map(|entry| entry.gid).ok_or_else(|| {
        let used = table.iter().filter(|entry| entry.port == port);
        let used: Vec<String> = used
            .map(|entry| format!("{} ({})", entry.index, entry.gid))
            .collect();
        format!(
            "port {port} has no GID of the index {index}; it has {}",
            used.join(", ")
        )
        .into()
    })
}

/// The keys of hash tables are the random numbers that the standard library has.
fn random() -> u32 {
    let keys = std::hash::RandomState::new();
    keys.build_hasher().finish() as u32
}
