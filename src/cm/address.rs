//! Socket addresses in the kernel's form.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rdmacm_kernel_abi::sockaddr::{SockaddrIn, SockaddrIn6, SockaddrStorage};
use zerocopy::{FromBytes, IntoBytes};

/// An address, and how many bytes of it count.
pub(super) fn encode(address: &SocketAddr) -> (SockaddrStorage, u16) {
    let mut storage = SockaddrStorage::default();
    let size = match address {
        SocketAddr::V4(v4) => {
            let encoded = SockaddrIn {
                family: libc::AF_INET as u16,
                port: v4.port().into(),
                addr: v4.ip().octets(),
                zero: [0; 8],
            };
            put(&mut storage, encoded.as_bytes())
        }
        SocketAddr::V6(v6) => {
            let encoded = SockaddrIn6 {
                family: libc::AF_INET6 as u16,
                port: v6.port().into(),
                flowinfo: v6.flowinfo().into(),
                addr: v6.ip().octets(),
                scope_id: v6.scope_id(),
            };
            put(&mut storage, encoded.as_bytes())
        }
    };
    (storage, size)
}

fn put(storage: &mut SockaddrStorage, encoded: &[u8]) -> u16 {
    storage.as_mut_bytes()[..encoded.len()].copy_from_slice(encoded);
    encoded.len() as u16
}

/// The address in a kernel answer; `None` when it is not set or of a family without ports.
pub(super) fn decode(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let bytes = storage.as_bytes();
    match i32::from(storage.family) {
        libc::AF_INET => {
            let (v4, _) = SockaddrIn::read_from_prefix(bytes).ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(v4.addr), v4.port.get()).into())
        }
        libc::AF_INET6 => {
            let (v6, _) = SockaddrIn6::read_from_prefix(bytes).ok()?;
            let ip = Ipv6Addr::from(v6.addr);
            Some(SocketAddrV6::new(ip, v6.port.get(), v6.flowinfo.get(), v6.scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_the_kernels() {
        let (storage, size) = encode(&"10.1.2.3:7471".parse().unwrap());
        assert_eq!(size, 16);
        assert_eq!(storage.as_bytes()[2..8], [0x1d, 0x2f, 10, 1, 2, 3]);
    }

    #[test]
    fn other_families_are_no_address() {
        let unknown = SockaddrStorage {
            family: 27,
            ..Default::default()
        };
        assert_eq!(decode(&unknown), None);
        assert_eq!(decode(&SockaddrStorage::default()), None);
    }

    proptest! {
        #[test]
        fn survives_the_way_there_and_back(
            ip: u128, v4: u32, port: u16, flow: u32, scope: u32, is_v4: bool
        ) {
            let address = if is_v4 {
                SocketAddr::V4(SocketAddrV4::new(v4.into(), port))
            } else {
                SocketAddr::V6(SocketAddrV6::new(ip.into(), port, flow, scope))
            };
            prop_assert_eq!(decode(&encode(&address).0), Some(address));
        }
    }
}
