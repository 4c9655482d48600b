//! The header that tells the IP addresses of a connection to an InfiniBand service.

use std::net::{IpAddr, SocketAddr};

use zerocopy::byteorder::big_endian;
use zerocopy::{Immutable, IntoBytes};

/// What stands before the private data of a request. Between IP addresses the kernel puts it there;
/// between AF_IB addresses the program does, for a peer that listens on an IP address.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
struct CmaHeader {
    /// 0.
    version: u8,
    /// 4 or 6, in the upper half.
    ip_version: u8,
    /// Port of the source.
    port: big_endian::U16,
    source: [u8; 16],
    destination: [u8; 16],
}

const _: () = assert!(size_of::<CmaHeader>() == 36);

/// The header of a connection between two addresses; `None` when they are of two families.
pub(super) fn cma_header(source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
    if source.is_ipv4() != destination.is_ipv4() {
        return None;
    }
    let version = if source.is_ipv4() { 4 } else { 6 };
    let header = CmaHeader {
        version: 0,
        ip_version: version << 4,
        port: source.port().into(),
        source: octets(source.ip()),
        destination: octets(destination.ip()),
    };
    Some(header.as_bytes().to_vec())
}

/// IPv4 addresses are in the last four bytes.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()).to_be_bytes(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_at_the_end_of_their_places() {
        let header = cma_header(
            "10.0.0.1:258".parse().unwrap(),
            "10.0.0.2:7471".parse().unwrap(),
        );
        let header = header.unwrap();
        assert_eq!(header[..4], [0, 0x40, 1, 2]);
        assert_eq!(
            header[4..20],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]
        );
        assert_eq!(header[32..], [10, 0, 0, 2]);
    }

    #[test]
    fn ipv6_addresses_fill_theirs() {
        let header = cma_header("[1::2]:0".parse().unwrap(), "[3::4]:1".parse().unwrap()).unwrap();
        assert_eq!(header[..6], [0, 0x60, 0, 0, 0, 1]);
        assert_eq!((header[19], header[21], header[35]), (2, 3, 4));
    }

    #[test]
    fn one_header_has_no_room_for_two_families() {
        assert_eq!(
            cma_header("[1::2]:0".parse().unwrap(), "10.0.0.2:1".parse().unwrap()),
            None
        );
    }
}
