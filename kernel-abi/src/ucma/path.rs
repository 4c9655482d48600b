//! Path records and service records.

use zerocopy::byteorder::big_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const HEADER: &str = "rdma/ib_user_sa.h";

flag_bits! {
    /// What a path record is for.
    pub struct PathFlags: u32, "IB_PATH_" {
        /// General management packets.
        GMP = 1,
        /// Primary path.
        PRIMARY = 1 << 1,
        /// Alternate path.
        ALTERNATE = 1 << 2,
        /// From here to the peer.
        OUTBOUND = 1 << 3,
        /// From the peer to here.
        INBOUND = 1 << 4,
        /// Reversed path of an inbound one.
        INBOUND_REVERSE = 1 << 5,
        /// Both ways.
        BIDIRECTIONAL = 1 << 3 | 1 << 5,
    }
}

pub use wire::PathRecord;

mod wire {
    use zerocopy::byteorder::big_endian;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    // The kernel has no structure for it, only a table of its bits in `sa_query.c`.
    const HEADER: &str = "infiniband/sa.h";

    /// A path record as on the wire, the PathRecord attribute of IBTA.
    #[doc(alias = "ibv_path_record")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct PathRecord {
        /// Service id.
        pub service_id: big_endian::U64,
        /// Destination GID.
        pub dgid: [u8; 16],
        /// Source GID.
        pub sgid: [u8; 16],
        /// Destination LID.
        pub dlid: big_endian::U16,
        /// Source LID.
        pub slid: big_endian::U16,
        /// Raw traffic in bit 31, flow label in bits 27:8, hop limit in bits 7:0.
        pub flowlabel_hoplimit: big_endian::U32,
        /// Traffic class.
        pub tclass: u8,
        /// Reversible in bit 7, number of paths in bits 6:0.
        pub reversible_numpath: u8,
        /// Partition key.
        pub pkey: big_endian::U16,
        /// Class of service in bits 15:4, service level in bits 3:0.
        pub qosclass_sl: big_endian::U16,
        /// Selector in bits 7:6, MTU number in bits 5:0.
        pub mtu: u8,
        /// Selector in bits 7:6, rate number in bits 5:0.
        pub rate: u8,
        /// Selector in bits 7:6, exponent in bits 5:0.
        pub packetlifetime: u8,
        /// Preference among paths.
        pub preference: u8,
        /// Must be 0.
        pub reserved: [u8; 6],
    }
    layout!(PathRecord, "struct ibv_path_record", 64, {
        service_id: 0, dgid: 8, sgid: 24, dlid: 40, slid: 42, flowlabel_hoplimit: 44, tclass: 48,
        reversible_numpath: 49, pkey: 50, qosclass_sl: 52, mtu: 54, rate: 55, packetlifetime: 56,
        preference: 57, reserved: 58,
    });
}

/// A path record with its purpose.
#[doc(alias = "ib_path_rec_data")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PathData {
    /// [`PathFlags`] bits.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The record.
    pub path_rec: PathRecord,
}
layout!(PathData, "struct ib_path_rec_data", 72, { flags: 0, reserved: 4, path_rec: 8 });

/// A path record, unpacked.
#[doc(alias = "ib_user_path_rec")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IbUserPathRec {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Source GID.
    pub sgid: [u8; 16],
    /// Destination LID.
    pub dlid: big_endian::U16,
    /// Source LID.
    pub slid: big_endian::U16,
    /// 1 for raw traffic.
    pub raw_traffic: u32,
    /// Flow label.
    pub flow_label: big_endian::U32,
    /// 1 if the path is reversible.
    pub reversible: u32,
    /// MTU number.
    pub mtu: u32,
    /// Partition key.
    pub pkey: big_endian::U16,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Number of paths.
    pub numb_path: u8,
    /// Service level.
    pub sl: u8,
    /// How to compare the MTU.
    pub mtu_selector: u8,
    /// How to compare the rate.
    pub rate_selector: u8,
    /// Rate number.
    pub rate: u8,
    /// How to compare the packet life time.
    pub packet_life_time_selector: u8,
    /// Packet life time, exponent of 4.096 µs.
    pub packet_life_time: u8,
    /// Preference among paths.
    pub preference: u8,
}
layout!(IbUserPathRec, "struct ib_user_path_rec", 64, {
    dgid: 0, sgid: 16, dlid: 32, slid: 34, raw_traffic: 36, flow_label: 40, reversible: 44, mtu: 48,
    pkey: 52, hop_limit: 54, traffic_class: 55, numb_path: 56, sl: 57, mtu_selector: 58,
    rate_selector: 59, rate: 60, packet_life_time_selector: 61, packet_life_time: 62,
    preference: 63,
});

/// A service record. Newer than Linux 6.1.
#[doc(alias = "ib_user_service_rec")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IbUserServiceRec {
    /// Service id.
    pub id: big_endian::U64,
    /// GID of the port that offers the service.
    pub gid: [u8; 16],
    /// Partition key.
    pub pkey: big_endian::U16,
    /// Unused.
    pub reserved: [u8; 2],
    /// Seconds the record stays valid.
    pub lease: big_endian::U32,
    /// Service key.
    pub key: [u8; 16],
    /// Service name, NUL-padded.
    pub name: [u8; 64],
    /// Bytes of the service.
    pub data_8: [u8; 16],
    /// Half words of the service.
    pub data_16: [big_endian::U16; 8],
    /// Words of the service.
    pub data_32: [big_endian::U32; 4],
    /// Double words of the service.
    pub data_64: [big_endian::U64; 2],
}
layout!(IbUserServiceRec, "struct ib_user_service_rec", 176, {
    id: 0, gid: 8, pkey: 24, reserved: 26, lease: 28, key: 32, name: 48, data_8: 112, data_16: 128,
    data_32: 144, data_64: 160,
});

zeroed_default!(IbUserServiceRec);
