//! GIDs and P_Keys: the addresses and partitions of a port.

mod sysfs;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromZeros, IntoBytes};

use super::{Context, PortAttr};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Attr, Value};

/// A global identifier: the 128-bit address of a port.
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that a RoCE GID stands for: IPv4 where the GID is a mapped one.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// The packet format that a GID stands for.
#[doc(alias = "ibv_gid_type")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1 (Ethernet only).
    RoceV1,
    /// RoCE version 2 (UDP).
    RoceV2,
    /// A type of a newer kernel.
    Other(u32),
}

/// One entry of a port's GID table.
#[doc(alias = "ibv_gid_entry")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its place in the table, which is what an address handle names.
    pub index: u32,
    /// The port.
    pub port: u8,
    /// The packet format.
    pub kind: GidType,
    /// Index of the network interface behind it; 0 when there is none.
    pub interface: u32,
}

impl Context {
    /// The GIDs of all ports that are in use.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    #[doc(alias("ibv_query_gid", "ibv_query_gid_table", "ibv_query_gid_ex"))]
    pub fn gids(&self) -> Result<Vec<GidEntry>> {
        let ports: Vec<(u8, PortAttr)> = (1..=self.attr()?.ports())
            .map(|number| Ok((number, self.port(number)?)))
            .collect::<Result<_>>()?;
        let room = ports.iter().fold(0usize, |room, (_, port)| {
            room.saturating_add(port.gid_table_length as usize)
        });
        match self.query_table(room) {
            Err(error) if error.kind() == ErrorKind::NotSupported => self.read_tables(&ports),
            answered => answered,
        }
    }

    fn query_table(&self, room: usize) -> Result<Vec<GidEntry>> {
        use ioctl::device::query_gid_table as attr;
        // A command says in 16 bits how long its answer may be. Tables are mostly empty, and only
        // entries in use are answered.
        let room = room.min(usize::from(u16::MAX) / size_of::<ioctl::GidEntry>());
        let mut entries = vec![ioctl::GidEntry::new_zeroed(); room];
        let mut count = 0u64;
        let entry_size = size_of::<ioctl::GidEntry>() as u64;
        self.method(
            ioctl::object::DEVICE,
            ioctl::device::QUERY_GID_TABLE,
            &mut [
                Attr::new(attr::ENTRY_SIZE, Value::In(entry_size.as_bytes())),
                Attr::new(attr::FLAGS, Value::In(0u32.as_bytes())),
                Attr::new(attr::RESP_ENTRIES, Value::Out(entries.as_mut_bytes())),
                Attr::new(attr::RESP_NUM_ENTRIES, Value::Out(count.as_mut_bytes())),
            ],
        )
        .map_err(|error| Error::from_os("query_gid_table", &error))?;
        let count = usize::try_from(count).unwrap_or(room).min(room);
        let entries = entries[..count].iter();
        Ok(entries.filter_map(GidEntry::from_kernel).collect())
    }

    /// The tables out of sysfs.
    fn read_tables(&self, ports: &[(u8, PortAttr)]) -> Result<Vec<GidEntry>> {
        let mut entries = Vec::new();
        for (number, port) in ports {
            let table = sysfs::Table::new(self, *number, port.link_layer);
            for index in 0..port.gid_table_length {
                match table.entry(index) {
                    Ok(entry) => entries.extend(entry),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) => return Err(Error::from_os("query_gid_table", &error)),
                }
            }
        }
        Ok(entries)
    }

    /// One entry of a port's GID table; `None` where it is not in use. Ports count from 1, entries
    /// from 0.
    ///
    /// Which entries are in use changes with the addresses of the machine
    /// ([`AsyncEvent::GidChange`](crate::AsyncEvent::GidChange)). An entry in use stays in its
    /// place.
    ///
    /// # Errors
    ///
    /// When there is no such port, or the table is shorter; when the device is gone.
    #[doc(alias("ibv_query_gid", "ibv_query_gid_type"))]
    pub fn gid(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        match self.query_entry(port, index) {
            Err(error) if error.kind() == ErrorKind::NotSupported => self.read_entry(port, index),
            answered => answered,
        }
    }

    fn query_entry(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        use ioctl::device::query_gid_entry as attr;
        let mut entry = ioctl::GidEntry::new_zeroed();
        let (number, place) = (u64::from(port), u64::from(index));
        let asked = self.method(
            ioctl::object::DEVICE,
            ioctl::device::QUERY_GID_ENTRY,
            &mut [
                Attr::new(attr::PORT, Value::In(number.as_bytes())),
                Attr::new(attr::GID_INDEX, Value::In(place.as_bytes())),
                Attr::new(attr::FLAGS, Value::In(0u32.as_bytes())),
                Attr::new(attr::RESP_ENTRY, Value::Out(entry.as_mut_bytes())),
            ],
        );
        match asked {
            Ok(()) => Ok(GidEntry::from_kernel(&entry)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENODATA) => Ok(None),
                Some(libc::EINVAL) => Err(self.no_entry(port, index)),
                _ => Err(Error::from_os("query_gid", &error)),
            },
        }
    }

    /// The entry out of sysfs.
    fn read_entry(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        let link_layer = self.port(port)?.link_layer;
        let entry = sysfs::Table::new(self, port, link_layer).entry(index);
        entry.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.no_entry(port, index),
            _ => Error::from_os("query_gid", &error),
        })
    }

    fn no_entry(&self, port: u8, index: u32) -> Error {
        Error::from_errno("query_gid", libc::EINVAL).because(format!(
            "{} has no port {port} or its table no entry {index}",
            self.device().name()
        ))
    }

    /// The P_Keys of a port, in table order. The kernel offers them in sysfs only.
    ///
    /// # Errors
    ///
    /// When the port does not exist or sysfs is not mounted.
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkeys(&self, port: u8) -> Result<Vec<u16>> {
        let folder = Path::new("/sys/class/infiniband")
            .join(self.device().name())
            .join(format!("ports/{port}/pkeys"));
        let failed = |error| {
            Error::from_os("query_pkey", &error)
                .because(format!("{} cannot be read", folder.display()))
        };
        let names = self.kernel().list_dir(&folder).map_err(failed)?;
        let mut indices: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        indices.sort_unstable();
        indices
            .into_iter()
            .map(|index| {
                let text = self
                    .kernel()
                    .read_file(&folder.join(index.to_string()))
                    .map_err(failed)?;
                u16::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| {
                    Error::from_errno("query_pkey", libc::EBADMSG)
                        .because(format!("{text:?} is not a P_Key"))
                })
            })
            .collect()
    }
}

impl GidEntry {
    /// `None` for an entry of a port beyond 255, which other commands cannot name.
    fn from_kernel(entry: &ioctl::GidEntry) -> Option<Self> {
        Some(Self {
            port: u8::try_from(entry.port_num).ok()?,
            gid: Gid(zerocopy::transmute!(entry.gid)),
            index: entry.gid_index,
            kind: match uverbs::GidType(entry.gid_type) {
                uverbs::GidType::IB => GidType::InfiniBand,
                uverbs::GidType::ROCE_V1 => GidType::RoceV1,
                uverbs::GidType::ROCE_V2 => GidType::RoceV2,
                uverbs::GidType(other) => GidType::Other(other),
            },
            interface: entry.netdev_ifindex,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_beyond_255_is_not_taken_for_another() {
        let of_port = |port_num| {
            GidEntry::from_kernel(&ioctl::GidEntry {
                port_num,
                ..FromZeros::new_zeroed()
            })
        };
        assert_eq!(of_port(255).unwrap().port, 255);
        assert_eq!(of_port(257), None);
    }
}
