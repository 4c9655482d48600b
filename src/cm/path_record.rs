//! Path records.

use std::fmt;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::{self, PathData, PathFlags};
use zerocopy::transmute;

use crate::device::{Gid, Mtu};

/// In the bytes of MTU, rate and life time: the number is meant exactly, not as a limit.
const EXACTLY: u8 = 2 << 6;
/// The number in such a byte.
const NUMBER: u8 = 0x3f;
/// The bit of a reversible path.
const REVERSIBLE: u8 = 1 << 7;
/// What a packet life time of exponent 0 is.
const LIFETIME_UNIT: Duration = Duration::from_nanos(4096);

/// One path through the fabric: the ports at its ends, and what packets on it carry.
///
/// A resolved route has one, or several. They come from the subnet's administrator; on RoCE the
/// kernel makes them up. Numbers are in host byte order.
///
/// ```
/// use rdmacm::{Gid, Mtu, PathRecord};
///
/// let mut path = PathRecord::new(Gid([1; 16]), Gid([2; 16]));
/// path.set_pkey(0xffff);
/// path.set_mtu(Mtu::from_bytes(2048).unwrap());
/// assert_eq!(path.mtu().unwrap().bytes(), 2048);
/// ```
#[doc(alias("ibv_path_record", "ibv_path_data", "ibv_sa_path_rec"))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PathRecord(PathData);

impl PathRecord {
    /// A reversible path between two ports that is used in both directions, with all else zero.
    pub fn new(source: Gid, destination: Gid) -> Self {
        let path_rec = ucma::PathRecord {
            sgid: source.0,
            dgid: destination.0,
            reversible_numpath: REVERSIBLE | 1,
            ..Default::default()
        };
        Self::both_ways(path_rec)
    }

    /// A path from the 64 bytes of a PathRecord attribute as on the wire.
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self::both_ways(transmute!(bytes))
    }

    /// The 64 bytes of the PathRecord attribute as on the wire.
    pub fn to_bytes(&self) -> [u8; 64] {
        transmute!(self.0.path_rec)
    }

    /// With the purpose that the kernel wants of a path that it is given.
    fn both_ways(path_rec: ucma::PathRecord) -> Self {
        let flags = PathFlags::GMP | PathFlags::PRIMARY | PathFlags::BIDIRECTIONAL;
        Self(PathData {
            flags: flags.bits(),
            reserved: 0,
            path_rec,
        })
    }

    pub(super) fn from_kernel(data: PathData) -> Self {
        Self(data)
    }

    pub(super) fn to_kernel(self) -> PathData {
        self.0
    }

    /// Whether this is the path in use, not the alternate one.
    pub fn is_primary(&self) -> bool {
        self.has(PathFlags::PRIMARY)
    }

    /// Whether the path is for both directions.
    pub fn is_bidirectional(&self) -> bool {
        self.has(PathFlags::BIDIRECTIONAL)
    }

    fn has(&self, wanted: PathFlags) -> bool {
        PathFlags::from_bits_retain(self.0.flags).contains(wanted)
    }

    /// GID of the port that the path begins at.
    pub fn source_gid(&self) -> Gid {
        Gid(self.0.path_rec.sgid)
    }

    /// GID of the port that the path leads to.
    pub fn destination_gid(&self) -> Gid {
        Gid(self.0.path_rec.dgid)
    }

    /// LID of the port that the path begins at.
    pub fn source_lid(&self) -> u16 {
        self.0.path_rec.slid.get()
    }

    /// LID of the port that the path leads to, or of the router.
    pub fn destination_lid(&self) -> u16 {
        self.0.path_rec.dlid.get()
    }

    /// The service that the path was asked for; 0 for any.
    pub fn service_id(&self) -> u64 {
        self.0.path_rec.service_id.get()
    }

    /// Partition key.
    pub fn pkey(&self) -> u16 {
        self.0.path_rec.pkey.get()
    }

    /// The largest payload of a packet; `None` for a number without meaning.
    pub fn mtu(&self) -> Option<Mtu> {
        let code = self.0.path_rec.mtu & NUMBER;
        Mtu::from_bytes(128u32.checked_shl(code.into())?)
    }

    /// The rate, as IBTA numbers it: 2 is 2.5 Gb/s, 3 is 10, 7 is 40, 16 is 100, and so on.
    #[doc(alias = "ibv_rate")]
    pub fn rate(&self) -> u8 {
        self.0.path_rec.rate & NUMBER
    }

    /// How long a packet may be on its way.
    pub fn packet_lifetime(&self) -> Duration {
        let exponent = self.0.path_rec.packetlifetime & NUMBER;
        lifetime(exponent)
    }

    /// Service level.
    pub fn service_level(&self) -> u8 {
        (self.0.path_rec.qosclass_sl.get() & 0xf) as u8
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        self.0.path_rec.tclass
    }

    /// Flow label, of 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.0.path_rec.flowlabel_hoplimit.get() >> 8 & 0xf_ffff
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.0.path_rec.flowlabel_hoplimit.get() as u8
    }

    /// Whether the way back is the same way.
    pub fn is_reversible(&self) -> bool {
        self.0.path_rec.reversible_numpath & REVERSIBLE != 0
    }

    /// Sets the LIDs of both ends.
    pub fn set_lids(&mut self, source: u16, destination: u16) {
        self.0.path_rec.slid = source.into();
        self.0.path_rec.dlid = destination.into();
    }

    /// Sets the service that the path is for.
    pub fn set_service_id(&mut self, service_id: u64) {
        self.0.path_rec.service_id = service_id.into();
    }

    /// Sets the partition key.
    pub fn set_pkey(&mut self, pkey: u16) {
        self.0.path_rec.pkey = pkey.into();
    }

    /// Sets the largest payload of a packet.
    pub fn set_mtu(&mut self, mtu: Mtu) {
        self.0.path_rec.mtu = EXACTLY | mtu.code() & NUMBER;
    }

    /// Sets the rate by its IBTA number, of which the low 6 bits count.
    pub fn set_rate(&mut self, rate: u8) {
        self.0.path_rec.rate = EXACTLY | rate & NUMBER;
    }

    /// Sets how long a packet may be on its way, rounded up to 4.096 µs times a power of two.
    pub fn set_packet_lifetime(&mut self, at_most: Duration) {
        let exponent = (0..NUMBER).find(|exponent| lifetime(*exponent) >= at_most);
        self.0.path_rec.packetlifetime = EXACTLY | exponent.unwrap_or(NUMBER);
    }

    /// Sets the service level, of which the low 4 bits count.
    pub fn set_service_level(&mut self, level: u8) {
        let others = self.0.path_rec.qosclass_sl.get() & !0xf;
        self.0.path_rec.qosclass_sl = (others | u16::from(level & 0xf)).into();
    }

    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        self.0.path_rec.tclass = class;
    }

    /// Sets the flow label, of which the low 20 bits count.
    pub fn set_flow_label(&mut self, label: u32) {
        let others = self.0.path_rec.flowlabel_hoplimit.get() & !(0xf_ffff << 8);
        self.0.path_rec.flowlabel_hoplimit = (others | (label & 0xf_ffff) << 8).into();
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, limit: u8) {
        let others = self.0.path_rec.flowlabel_hoplimit.get() & !0xff;
        self.0.path_rec.flowlabel_hoplimit = (others | u32::from(limit)).into();
    }

    /// Sets whether the way back is the same way.
    pub fn set_reversible(&mut self, is_reversible: bool) {
        self.0.path_rec.reversible_numpath &= !REVERSIBLE;
        if is_reversible {
            self.0.path_rec.reversible_numpath |= REVERSIBLE;
        }
    }
}

/// 4.096 µs times two to the power of `exponent`, which is at most 63.
fn lifetime(exponent: u8) -> Duration {
    let nanos = LIFETIME_UNIT.as_nanos() << exponent;
    Duration::new(
        (nanos / 1_000_000_000) as u64,
        (nanos % 1_000_000_000) as u32,
    )
}

impl fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRecord")
            .field("source_gid", &self.source_gid())
            .field("destination_gid", &self.destination_gid())
            .field("source_lid", &self.source_lid())
            .field("destination_lid", &self.destination_lid())
            .field("pkey", &format_args!("{:#x}", self.pkey()))
            .field("mtu", &self.mtu().map_or(0, Mtu::bytes))
            .field("rate", &self.rate())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_the_wire_has_them() {
        let mut path = PathRecord::new(Gid([1; 16]), Gid([2; 16]));
        path.set_service_id(0x0106_1d2f);
        path.set_lids(0x11, 0x22);
        path.set_pkey(0x8001);
        path.set_mtu(Mtu::from_bytes(2048).unwrap());
        path.set_rate(7);
        path.set_packet_lifetime(Duration::from_millis(1));
        path.set_service_level(3);
        path.set_traffic_class(0x60);
        path.set_flow_label(0xabcde);
        path.set_hop_limit(64);
        let bytes = path.to_bytes();
        assert_eq!(bytes[..8], 0x0106_1d2fu64.to_be_bytes());
        assert_eq!(bytes[8..24], [2; 16]);
        assert_eq!(bytes[24..40], [1; 16]);
        assert_eq!(bytes[40..44], [0, 0x22, 0, 0x11]);
        assert_eq!(bytes[44..48], [0x0a, 0xbc, 0xde, 64]);
        assert_eq!(bytes[48..52], [0x60, 0x81, 0x80, 1]);
        // 4.096 µs shifted by 8 is the first that is longer than a millisecond.
        assert_eq!(bytes[52..58], [0, 3, 0x84, 0x87, 0x88, 0]);
        let primary_both_ways = 0b10_1011u32;
        assert_eq!(path.to_kernel().flags, primary_both_ways);
        assert!(path.is_primary() && path.is_bidirectional() && path.is_reversible());
    }

    #[test]
    fn numbers_that_are_too_wide_leave_their_neighbours_alone() {
        let mut path = PathRecord::from_bytes([0; 64]);
        path.set_flow_label(u32::MAX);
        path.set_service_level(u8::MAX);
        path.set_rate(u8::MAX);
        path.set_packet_lifetime(Duration::MAX);
        assert_eq!(path.flow_label(), 0xf_ffff);
        assert_eq!(path.hop_limit(), 0);
        assert_eq!(path.service_level(), 0xf);
        let bytes = path.to_bytes();
        assert_eq!(bytes[44], 0x0f);
        assert_eq!(bytes[52..54], [0, 0x0f]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_and_are_kept(bytes: [u8; 64]) {
            let path = PathRecord::from_bytes(bytes);
            prop_assert_eq!(path.to_bytes(), bytes);
            prop_assert!(path.packet_lifetime() >= LIFETIME_UNIT);
            prop_assert!(path.mtu().is_none_or(|mtu| (256..=4096).contains(&mtu.bytes())));
            let shown = format!("{path:?}");
            prop_assert!(shown.contains("source_gid"));
        }
    }
}
