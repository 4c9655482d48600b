//! GIDs as sysfs tells of them, for kernels that have no command for them.

use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::{Gid, GidEntry, GidType};
use crate::device::{Context, LinkLayer};

/// A port's GID table.
pub(super) struct Table<'a> {
    context: &'a Context,
    port: u8,
    link_layer: LinkLayer,
    folder: PathBuf,
}

impl<'a> Table<'a> {
    pub(super) fn new(context: &'a Context, port: u8, link_layer: LinkLayer) -> Self {
        let device = Path::new("/sys/class/infiniband").join(context.device().name());
        Self {
            context,
            port,
            link_layer,
            folder: device.join(format!("ports/{port}")),
        }
    }

    /// One entry; `None` where it is not in use.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] behind the end of the table.
    pub(super) fn entry(&self, index: u32) -> io::Result<Option<GidEntry>> {
        let text = self.read(&format!("gids/{index}"))?;
        let gid: Ipv6Addr = text.parse().map_err(|_| {
            let text = format!("{text:?} is not a GID");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        let used = !gid.is_unspecified();
        Ok(used.then(|| GidEntry {
            gid: Gid(gid.octets()),
            index,
            port: self.port,
            kind: self.kind(index),
            interface: self.interface(index).unwrap_or(0),
        }))
    }

    /// The packet format. One text is of two, which the ports do not have side by side.
    fn kind(&self, index: u32) -> GidType {
        match self.read(&format!("gid_attrs/types/{index}")).as_deref() {
            Ok("RoCE v2") => GidType::RoceV2,
            _ if self.link_layer == LinkLayer::Ethernet => GidType::RoceV1,
            // Some kernels have no such file there.
            _ => GidType::InfiniBand,
        }
    }

    fn interface(&self, index: u32) -> Option<u32> {
        let name = self.read(&format!("gid_attrs/ndevs/{index}")).ok()?;
        let file = Path::new("/sys/class/net").join(name).join("ifindex");
        self.context.kernel().read_file(&file).ok()?.parse().ok()
    }

    fn read(&self, file: &str) -> io::Result<String> {
        self.context.kernel().read_file(&self.folder.join(file))
    }
}
