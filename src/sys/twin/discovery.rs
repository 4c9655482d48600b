//! The twin's devices, as netlink and sysfs tell of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rdmacm_kernel_abi::netlink::{NlAttr, NlMsgHdr, NldevAttr, NldevCommand, NlmFlags, nldev_type};
use rdmacm_kernel_abi::uverbs::{self, DriverId, ioctl};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Outcome, World};

/// A device of the twin's.
#[derive(Debug, Clone)]
pub(crate) struct TwinDevice {
    pub index: u32,
    pub name: String,
    pub driver: DriverId,
    pub node_type: u8,
    pub protocol: &'static str,
    pub guid: u64,
    pub ips: Vec<IpAddr>,
    pub ports: u8,
    pub gid_table_length: u32,
    /// Whether it has extended reliable connections, which rxe does not.
    pub has_xrc: bool,
    /// What it can do besides the usual.
    pub capabilities: uverbs::DeviceCapFlags,
    /// Whether it pages on demand, which rxe does on Linux 7.
    pub has_paging: bool,
    /// Whether it reaches the memory of other devices, which rxe does not.
    pub has_dmabuf: bool,
    /// The most completions and microseconds that an event can wait for; rxe has no moderation.
    pub moderation: (u16, u16),
    /// What its kernel says of itself when a context is made.
    pub core_support: u64,
    /// How many completion vectors it has.
    pub completion_vectors: u32,
    /// Number of its uverbs node; none for a device without verbs.
    pub uverbs: Option<u32>,
    /// Whether the node is there.
    pub has_node: bool,
    /// The minor number of what is there, if that is a character device.
    pub node_minor: Option<u32>,
    /// It is of another network namespace: sysfs, which is mounted as there, tells of it, and no more.
    pub is_elsewhere: bool,
    /// The device was removed while the program had it open.
    pub is_gone: bool,
}

impl TwinDevice {
    /// What rxe of Linux 6.1 can do.
    pub(crate) const RXE_6_1: uverbs::DeviceCapFlags =
        uverbs::DeviceCapFlags::MEM_WINDOW.union(uverbs::DeviceCapFlags::MEM_WINDOW_TYPE_2B);

    /// An rxe device at one address.
    pub(crate) fn rxe(index: u32, ip: IpAddr) -> Self {
        Self {
            index,
            name: format!("rxe{index}"),
            driver: DriverId::RXE,
            node_type: 1,
            protocol: "roce",
            guid: 0x5054_00ff_fe00_0000 + u64::from(index),
            ips: vec![ip],
            ports: 1,
            gid_table_length: 1024,
            has_xrc: false,
            capabilities: Self::RXE_6_1
                | uverbs::DeviceCapFlags::FLUSH_GLOBAL
                | uverbs::DeviceCapFlags::FLUSH_PERSISTENT
                | uverbs::DeviceCapFlags::ATOMIC_WRITE,
            has_paging: false,
            has_dmabuf: false,
            moderation: (0, 0),
            core_support: 1,
            completion_vectors: 1,
            uverbs: Some(index),
            has_node: true,
            node_minor: Some(192 + index),
            is_elsewhere: false,
            is_gone: false,
        }
    }

    pub(super) fn node(&self) -> Option<PathBuf> {
        let number = self.uverbs?;
        Some(Path::new("/dev/infiniband").join(format!("uverbs{number}")))
    }

    /// The device number of its node: major 231, minors from 192 on.
    pub(super) fn device_number(&self) -> Option<u64> {
        Some(libc::makedev(231, self.node_minor?))
    }

    /// What it can do with memory that is paged on demand.
    pub(super) fn paging(&self) -> uverbs::OdpCaps {
        uverbs::OdpCaps {
            general_caps: u64::from(self.has_paging),
            per_transport_caps: uverbs::OdpTransportCaps {
                rc_odp_caps: if self.has_paging { 0x1f } else { 0 },
                ..Default::default()
            },
            reserved: 0,
        }
    }

    /// The limits that rxe has.
    pub(super) fn attributes(&self) -> uverbs::QueryDeviceResp {
        uverbs::QueryDeviceResp {
            node_guid: self.guid.into(),
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            device_cap_flags: uverbs::DeviceCapFlags::SRQ_RESIZE.bits() as u32,
            max_mr: 524_287,
            atomic_cap: 1,
            max_qp: 1_048_560,
            max_qp_wr: 1_048_576,
            max_sge: 32,
            max_srq: 1_048_576,
            max_srq_wr: 1_048_576,
            max_srq_sge: 27,
            max_cq: 1_048_576,
            max_cqe: 32_767,
            max_qp_rd_atom: 128,
            max_qp_init_rd_atom: 128,
            phys_port_cnt: self.ports,
            ..FromZeros::new_zeroed()
        }
    }

    /// A RoCE v2 entry for each address.
    pub(super) fn gids(&self) -> Vec<ioctl::GidEntry> {
        let entry = |(index, ip): (usize, &IpAddr)| {
            let octets = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            ioctl::GidEntry {
                gid: zerocopy::transmute!(octets),
                gid_index: index as u32,
                port_num: 1,
                gid_type: 2,
                netdev_ifindex: 3,
            }
        };
        self.ips.iter().enumerate().map(entry).collect()
    }
}

impl World {
    /// A device that netlink and the connection manager still know.
    pub(super) fn device(&self, index: u32) -> Outcome<&TwinDevice> {
        let mut present = self.devices.iter().filter(|device| !device.is_gone);
        present
            .find(|device| device.index == index && !device.is_elsewhere)
            .ok_or(libc::ENODEV)
    }

    /// Answers netlink requests one after the other; the first refusal ends it.
    pub(super) fn netlink(&mut self, mut requests: &[u8]) -> Outcome<Vec<(u16, Vec<u8>)>> {
        let mut answers = Vec::new();
        while !requests.is_empty() {
            let (header, _) = NlMsgHdr::read_from_prefix(requests).map_err(|_| libc::EINVAL)?;
            let length = header.nlmsg_len as usize;
            let attributes = requests
                .get(size_of::<NlMsgHdr>()..length)
                .ok_or(libc::EINVAL)?;
            for mut payload in self.answer_netlink(&header, attributes)? {
                self.script.change_netlink(&mut payload);
                answers.push((header.nlmsg_type, payload));
            }
            requests = requests.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(answers)
    }

    fn answer_netlink(&self, header: &NlMsgHdr, attributes: &[u8]) -> Outcome<Vec<Vec<u8>>> {
        let asked = parse(attributes)?;
        let kind = header.nlmsg_type;
        let index = asked.get(&NldevAttr::DEV_INDEX.0).map(Vec::as_slice);
        let index = index.and_then(|value| u32::read_from_bytes(value).ok());
        if kind == nldev_type(NldevCommand::GET) {
            if header.nlmsg_flags & NlmFlags::DUMP.bits() != 0 {
                let present = self.devices.iter().filter(|device| !device.is_gone);
                let seen = present.filter(|device| !device.is_elsewhere);
                return Ok(seen.map(device_message).collect());
            }
            let device = self
                .device(index.ok_or(libc::EINVAL)?)
                .map_err(|_| libc::EINVAL)?;
            return Ok(vec![device_message(device)]);
        }
        if kind == nldev_type(NldevCommand::GET_CHARDEV) {
            let wanted = asked.get(&NldevAttr::CHARDEV_TYPE.0).ok_or(libc::EINVAL)?;
            let device = self
                .device(index.ok_or(libc::EOPNOTSUPP)?)
                .map_err(|_| libc::EINVAL)?;
            return match (wanted.as_slice(), device.uverbs) {
                (b"uverbs\0", Some(number)) => Ok(vec![node_message(device, number)]),
                (b"uverbs\0", None) => Err(libc::EOPNOTSUPP),
                _ => Err(libc::EINVAL),
            };
        }
        if kind == nldev_type(NldevCommand::SYS_GET) {
            let are_shared = !self.devices.iter().any(|device| device.is_elsewhere);
            let mut message = Vec::new();
            put(
                &mut message,
                NldevAttr::SYS_NETNS_MODE,
                &[are_shared.into()],
            );
            return Ok(vec![message]);
        }
        Err(libc::EOPNOTSUPP)
    }

    /// The files of sysfs with their contents.
    pub(super) fn sysfs(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut add = |path: String, text: String| drop(files.insert(path, text));
        if self.has_sysfs_entry_of_cm {
            add("/sys/class/misc/rdma_cm/dev".into(), "10:124".into());
        }
        for device in self.devices.iter().filter(|device| !device.is_gone) {
            let folder = format!("/sys/class/infiniband/{}", device.name);
            add(format!("{folder}/node_guid"), guid_text(device.guid));
            add(
                format!("{folder}/node_type"),
                format!("{}: CA", device.node_type),
            );
            add(format!("{folder}/ports/1/link_layer"), "Ethernet".into());
            add(format!("{folder}/ports/1/pkeys/0"), "0xffff".into());
            let card = self.card.as_ref();
            let card = card.filter(|_| device.driver == DriverId::MLX5);
            let gids = card.map_or(Vec::new(), |card| card.gids());
            for (index, (gid, kind)) in gids.into_iter().enumerate() {
                let (folder, gid) = (format!("{folder}/ports/1"), Ipv6Addr::from(gid));
                add(format!("{folder}/gids/{index}"), gid.to_string());
                add(format!("{folder}/gid_attrs/types/{index}"), kind.into());
            }
            if let Some(number) = device.uverbs {
                let node = format!("/sys/class/infiniband_verbs/uverbs{number}");
                add(format!("{node}/ibdev"), device.name.clone());
                add(format!("{node}/dev"), format!("231:{}", 192 + number));
            }
        }
        files
    }
}

/// As sysfs writes it: four groups of four digits.
fn guid_text(guid: u64) -> String {
    let bytes = guid.to_be_bytes();
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<String>>().join(":")
}

fn device_message(device: &TwinDevice) -> Vec<u8> {
    let mut message = Vec::new();
    put(
        &mut message,
        NldevAttr::DEV_INDEX,
        &device.index.to_ne_bytes(),
    );
    put(&mut message, NldevAttr::DEV_NAME, &with_nul(&device.name));
    put(
        &mut message,
        NldevAttr::PORT_INDEX,
        &u32::from(device.ports).to_ne_bytes(),
    );
    put(
        &mut message,
        NldevAttr::NODE_GUID,
        &device.guid.to_ne_bytes(),
    );
    put(&mut message, NldevAttr::DEV_NODE_TYPE, &[device.node_type]);
    put(
        &mut message,
        NldevAttr::DEV_PROTOCOL,
        &with_nul(device.protocol),
    );
    message
}

fn node_message(device: &TwinDevice, number: u32) -> Vec<u8> {
    let minor = u64::from(192 + number);
    let encoded = minor & 0xff | 231 << 8 | (minor & 0xf_ff00) << 12;
    let mut message = Vec::new();
    put(&mut message, NldevAttr::CHARDEV, &encoded.to_ne_bytes());
    put(&mut message, NldevAttr::CHARDEV_ABI, &2u64.to_ne_bytes());
    put(
        &mut message,
        NldevAttr::CHARDEV_NAME,
        &with_nul(&format!("uverbs{number}")),
    );
    put(
        &mut message,
        NldevAttr::UVERBS_DRIVER_ID,
        &device.driver.0.to_ne_bytes(),
    );
    message
}

fn with_nul(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn put(message: &mut Vec<u8>, kind: NldevAttr, value: &[u8]) {
    let nla_len = (size_of::<NlAttr>() + value.len()) as u16;
    message.extend(
        NlAttr {
            nla_len,
            nla_type: kind.0,
        }
        .as_bytes(),
    );
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// The attributes of a request by their numbers.
fn parse(mut attributes: &[u8]) -> Outcome<BTreeMap<u16, Vec<u8>>> {
    let mut found = BTreeMap::new();
    while !attributes.is_empty() {
        let (header, _) = NlAttr::read_from_prefix(attributes).map_err(|_| libc::EINVAL)?;
        let length = usize::from(header.nla_len);
        let value = attributes
            .get(size_of::<NlAttr>()..length)
            .ok_or(libc::EINVAL)?;
        found.insert(header.nla_type, value.to_vec());
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(found)
}
