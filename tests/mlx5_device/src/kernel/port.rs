//! The port: attributes, addresses, partitions.

use rdmacm_kernel_abi::uverbs::ioctl::{self, GidEntry, QueryPortRespEx};
use rdmacm_kernel_abi::uverbs::{self, GidType, LinkLayer, Mtu, PortCapFlags, PortState};
use zerocopy::IntoBytes;

use super::packet::Attrs;
use crate::world::{Outcome, World};

/// The LID of the port, where it is InfiniBand.
pub(crate) const LID: u16 = 0x11;
/// The Ethernet address of the port.
pub(crate) const MAC: [u8; 6] = [0x02, 0x00, 0x0a, 0x09, 0x00, 0x01];
/// Slots in the table of GIDs.
const GIDS: u32 = 256;

impl World {
    /// The GIDs of the port, and whether packets from them have an IP header.
    pub(crate) fn gids(&self) -> Vec<([u8; 16], GidType)> {
        if self.config.is_infiniband {
            return vec![(
                [
                    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xba, 0xbe, 0xef, 0, 0, 0, 0, 1,
                ],
                GidType::IB,
            )];
        }
        let [a, b, c, d, e, f] = MAC;
        let link = [
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ];
        let ip = self.config.address.to_ipv6_mapped().octets();
        vec![
            (link, GidType::ROCE_V1),
            (link, GidType::ROCE_V2),
            (ip, GidType::ROCE_V2),
            (ip, GidType::ROCE_V1),
        ]
    }

    pub(super) fn port_attributes(&self, port: u64) -> Outcome<QueryPortRespEx> {
        if port != 1 {
            return Err(libc::EINVAL);
        }
        let is_infiniband = self.config.is_infiniband;
        let legacy_resp = uverbs::QueryPortResp {
            port_cap_flags: (PortCapFlags::CM_SUP | PortCapFlags::IP_BASED_GIDS).bits(),
            max_msg_sz: 1 << 30,
            gid_tbl_len: GIDS,
            pkey_tbl_len: 1,
            lid: if is_infiniband { LID } else { 0 },
            sm_lid: if is_infiniband { 1 } else { 0 },
            state: PortState::ACTIVE.0,
            max_mtu: Mtu::B4096.0,
            active_mtu: Mtu::B4096.0,
            max_vl_num: 1,
            active_width: 2,
            active_speed: 32,
            phys_state: 5,
            link_layer: match is_infiniband {
                true => LinkLayer::INFINIBAND.0,
                false => LinkLayer::ETHERNET.0,
            },
            flags: u8::from(!is_infiniband),
            ..Default::default()
        };
        Ok(QueryPortRespEx {
            legacy_resp,
            ..Default::default()
        })
    }

    pub(super) fn query_port_method(&self, attrs: &mut Attrs) -> Outcome {
        use ioctl::device::query_port as id;
        attrs.check_known(&[id::PORT_NUM, id::RESP])?;
        let answer = self.port_attributes(attrs.typed(id::PORT_NUM)?)?;
        if attrs.room(id::RESP) < size_of_val(&answer) {
            return Err(libc::EINVAL);
        }
        attrs.put(id::RESP, &answer)
    }

    fn gid_entries(&self) -> Vec<GidEntry> {
        let entry = |(index, (gid, kind)): (usize, ([u8; 16], GidType))| {
            let mut entry = GidEntry {
                gid_index: index as u32,
                port_num: 1,
                gid_type: kind.0,
                netdev_ifindex: u32::from(kind != GidType::IB),
                ..Default::default()
            };
            entry.gid.as_mut_bytes().copy_from_slice(&gid);
            entry
        };
        self.gids().into_iter().enumerate().map(entry).collect()
    }

    pub(super) fn query_gid_table(&self, attrs: &mut Attrs) -> Outcome {
        use ioctl::device::query_gid_table as id;
        let known = [
            id::ENTRY_SIZE,
            id::FLAGS,
            id::RESP_ENTRIES,
            id::RESP_NUM_ENTRIES,
        ];
        attrs.check_known(&known)?;
        let size = size_of::<GidEntry>();
        let flags = attrs.optional::<u32>(id::FLAGS)?;
        if attrs.typed::<u64>(id::ENTRY_SIZE)? != size as u64 || flags.is_some_and(|f| f != 0) {
            return Err(libc::EINVAL);
        }
        let mut entries = self.gid_entries();
        entries.truncate(attrs.room(id::RESP_ENTRIES) / size);
        attrs.put(id::RESP_ENTRIES, entries.as_slice())?;
        attrs.put(id::RESP_NUM_ENTRIES, &(entries.len() as u64))
    }

    pub(super) fn query_gid_entry(&self, attrs: &mut Attrs) -> Outcome {
        use ioctl::device::query_gid_entry as id;
        attrs.check_known(&[id::PORT, id::GID_INDEX, id::FLAGS, id::RESP_ENTRY])?;
        let (port, index): (u64, u64) = (attrs.typed(id::PORT)?, attrs.typed(id::GID_INDEX)?);
        if port != 1 || index >= GIDS.into() || attrs.typed::<u32>(id::FLAGS)? != 0 {
            return Err(libc::EINVAL);
        }
        let entries = self.gid_entries();
        let entry = entries.get(index as usize).ok_or(libc::ENODATA)?;
        attrs.put(id::RESP_ENTRY, entry)
    }
}

/// The Ethernet address that the kernel finds for a GID.
pub(crate) fn mac_of(gid: &[u8; 16]) -> [u8; 6] {
    match gid {
        // A multicast group.
        [0xff, .., a, b, c, d] => [0x33, 0x33, *a, *b, *c, *d],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if (224..240).contains(a) => {
            [0x01, 0x00, 0x5e, *b & 0x7f, *c, *d]
        }
        _ => MAC,
    }
}
