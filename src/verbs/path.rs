//! The way to a peer.

use rdmacm_kernel_abi::uverbs;

use crate::device::Gid;

/// The way to a peer: that of a connected queue pair ([`QpModify::path`](crate::QpModify::path)),
/// or of datagrams ([`Pd::address_handle`](crate::Pd::address_handle)).
#[doc(alias("ibv_ah_attr", "ibv_global_route"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The peer's GID. All zero it is none: the peer is found by its LID alone, which works within a
    /// subnet of InfiniBand. The fields of a global route then have no meaning.
    pub gid: Gid,
    /// Index of our GID in the port's table ([`GidEntry`](crate::GidEntry)).
    pub source_gid_index: u8,
    /// Our port.
    pub port: u8,
    /// Routers that may be passed. For datagrams on RoCE the kernel takes it from the route instead.
    pub hop_limit: u8,
    /// Traffic class (the IP header's on RoCE v2).
    pub traffic_class: u8,
    /// Flow label, 20 bits. rxe writes none.
    pub flow_label: u32,
    /// Service level.
    pub service_level: u8,
    /// The peer's LID; 0 on Ethernet.
    pub lid: u16,
}

/// Stands for a way without a global route.
const NO_GID: Gid = Gid([0; 16]);

impl Path {
    pub(crate) fn from_kernel(attr: &uverbs::AhAttr) -> Self {
        Self {
            gid: match attr.is_global {
                0 => NO_GID,
                _ => Gid(attr.grh.dgid),
            },
            source_gid_index: attr.grh.sgid_index,
            port: attr.port_num,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            flow_label: attr.grh.flow_label,
            service_level: attr.sl,
            lid: attr.dlid,
        }
    }

    pub(crate) fn to_kernel(self) -> uverbs::AhAttr {
        uverbs::AhAttr {
            grh: uverbs::GlobalRoute {
                dgid: self.gid.0,
                flow_label: self.flow_label,
                sgid_index: self.source_gid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
                reserved: 0,
            },
            dlid: self.lid,
            sl: self.service_level,
            is_global: u8::from(self.gid != NO_GID),
            port_num: self.port,
            ..Default::default()
        }
    }
}

/// A path as queue pairs are told it: the record that address handles have, in a different order.
pub(super) fn to_qp_dest(ah: &uverbs::AhAttr) -> uverbs::QpDest {
    uverbs::QpDest {
        dgid: ah.grh.dgid,
        flow_label: ah.grh.flow_label,
        dlid: ah.dlid,
        reserved: 0,
        sgid_index: ah.grh.sgid_index,
        hop_limit: ah.grh.hop_limit,
        traffic_class: ah.grh.traffic_class,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: ah.is_global,
        port_num: ah.port_num,
    }
}

/// The other way round.
pub(super) fn from_qp_dest(dest: &uverbs::QpDest) -> uverbs::AhAttr {
    uverbs::AhAttr {
        grh: uverbs::GlobalRoute {
            dgid: dest.dgid,
            flow_label: dest.flow_label,
            sgid_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
            reserved: 0,
        },
        dlid: dest.dlid,
        sl: dest.sl,
        src_path_bits: dest.src_path_bits,
        static_rate: dest.static_rate,
        is_global: dest.is_global,
        port_num: dest.port_num,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_kernels_record_holds_all_of_a_path(
            gid in any::<[u8; 16]>().prop_filter("a GID", |gid| *gid != NO_GID.0),
            numbers: [u8; 5],
            flow_label: u32,
            lid: u16,
        ) {
            let [source_gid_index, port, hop_limit, traffic_class, service_level] = numbers;
            let path = Path {
                gid: Gid(gid),
                source_gid_index,
                port,
                hop_limit,
                traffic_class,
                flow_label,
                service_level,
                lid,
            };
            let record = path.to_kernel();
            prop_assert_eq!(record.is_global, 1);
            prop_assert_eq!(Path::from_kernel(&record), path);
            let local = Path { gid: NO_GID, ..path };
            let record = local.to_kernel();
            prop_assert_eq!(record.is_global, 0);
            prop_assert_eq!(Path::from_kernel(&record), local);
        }
    }

    #[test]
    fn a_gid_that_is_said_not_to_count_is_none() {
        let mut record = uverbs::AhAttr {
            dlid: 7,
            ..Default::default()
        };
        record.grh.dgid = [9; 16];
        let path = Path::from_kernel(&record);
        assert_eq!((path.gid, path.lid), (NO_GID, 7));
    }
}
