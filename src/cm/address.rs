//! Addresses in the kernel's form.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rdmacm_kernel_abi::sockaddr::{AF_IB, SockaddrIb, SockaddrIn, SockaddrIn6, SockaddrStorage};
use zerocopy::{FromBytes, IntoBytes};

use super::{Address, IbAddress};
use crate::device::Gid;

/// An address, and how many bytes of it count.
pub(super) fn encode(address: &Address) -> (SockaddrStorage, u16) {
    let mut storage = SockaddrStorage::default();
    let size = match address {
        Address::Ip(SocketAddr::V4(v4)) => put(&mut storage, encode_v4(v4).as_bytes()),
        Address::Ip(SocketAddr::V6(v6)) => put(&mut storage, encode_v6(v6).as_bytes()),
        Address::Ib(ib) => put(&mut storage, encode_ib(ib).as_bytes()),
    };
    (storage, size)
}

fn put(storage: &mut SockaddrStorage, encoded: &[u8]) -> u16 {
    storage.as_mut_bytes()[..encoded.len()].copy_from_slice(encoded);
    encoded.len() as u16
}

fn encode_v4(v4: &SocketAddrV4) -> SockaddrIn {
    SockaddrIn {
        family: libc::AF_INET as u16,
        port: v4.port().into(),
        addr: v4.ip().octets(),
        zero: [0; 8],
    }
}

fn encode_v6(v6: &SocketAddrV6) -> SockaddrIn6 {
    SockaddrIn6 {
        family: libc::AF_INET6 as u16,
        port: v6.port().into(),
        flowinfo: v6.flowinfo().into(),
        addr: v6.ip().octets(),
        scope_id: v6.scope_id(),
    }
}

fn encode_ib(ib: &IbAddress) -> SockaddrIb {
    SockaddrIb {
        family: AF_IB,
        pkey: ib.pkey.into(),
        flowinfo: ib.flow_info.into(),
        addr: ib.gid.0,
        sid: ib.service_id.into(),
        sid_mask: ib.service_id_mask.into(),
        scope_id: ib.scope_id,
    }
}

/// The address in a kernel answer; `None` when it is not set or of an unknown family.
pub(super) fn decode(storage: &SockaddrStorage) -> Option<Address> {
    const IPV4: u16 = libc::AF_INET as u16;
    const IPV6: u16 = libc::AF_INET6 as u16;
    let bytes = storage.as_bytes();
    match storage.family {
        IPV4 => {
            let (v4, _) = SockaddrIn::read_from_prefix(bytes).ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(v4.addr), v4.port.get()).into())
        }
        IPV6 => {
            let (v6, _) = SockaddrIn6::read_from_prefix(bytes).ok()?;
            let ip = Ipv6Addr::from(v6.addr);
            Some(SocketAddrV6::new(ip, v6.port.get(), v6.flowinfo.get(), v6.scope_id).into())
        }
        AF_IB => {
            let (ib, _) = SockaddrIb::read_from_prefix(bytes).ok()?;
            Some(decode_ib(&ib).into())
        }
        _ => None,
    }
}

fn decode_ib(ib: &SockaddrIb) -> IbAddress {
    IbAddress {
        pkey: ib.pkey.get(),
        flow_info: ib.flowinfo.get(),
        gid: Gid(ib.addr),
        service_id: ib.sid.get(),
        service_id_mask: ib.sid_mask.get(),
        scope_id: ib.scope_id,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cm::PortSpace;

    fn ip(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn bytes_are_the_kernels() {
        let (storage, size) = encode(&ip("10.1.2.3:7471"));
        assert_eq!(size, 16);
        assert_eq!(storage.as_bytes()[2..8], [0x1d, 0x2f, 10, 1, 2, 3]);
    }

    #[test]
    fn a_service_id_is_big_endian_and_a_scope_is_not() {
        let address = IbAddress {
            scope_id: 3,
            ..IbAddress::for_port(PortSpace::Tcp, 7471, Gid([9; 16]))
        };
        let (storage, size) = encode(&address.into());
        assert_eq!(size, 48);
        let bytes = storage.as_bytes();
        assert_eq!(bytes[..8], [27, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes[8..24], [9; 16]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 1, 6, 0x1d, 0x2f]);
        assert_eq!(bytes[32..40], [0xff; 8]);
        assert_eq!(bytes[40..48], 3u64.to_ne_bytes());
    }

    #[test]
    fn other_families_are_no_address() {
        let unknown = SockaddrStorage {
            family: 28,
            ..Default::default()
        };
        assert_eq!(decode(&unknown), None);
        assert_eq!(decode(&SockaddrStorage::default()), None);
    }

    fn any_v4() -> impl Strategy<Value = Address> {
        let fields = (any::<u32>(), any::<u16>());
        fields.prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port).into())
    }

    fn any_v6() -> impl Strategy<Value = Address> {
        let fields = (any::<u128>(), any::<u16>(), any::<u32>(), any::<u32>());
        fields.prop_map(|(ip, port, flow, scope)| {
            SocketAddrV6::new(ip.into(), port, flow, scope).into()
        })
    }

    fn any_ib() -> impl Strategy<Value = Address> {
        let fields = (any::<(u16, u32, [u8; 16])>(), any::<(u64, u64, u64)>());
        fields.prop_map(|(link, service)| {
            let ((pkey, flow_info, gid), (service_id, service_id_mask, scope_id)) = (link, service);
            let gid = Gid(gid);
            IbAddress {
                pkey,
                flow_info,
                gid,
                service_id,
                service_id_mask,
                scope_id,
            }
            .into()
        })
    }

    proptest! {
        #[test]
        fn survives_the_way_there_and_back(address in prop_oneof![any_v4(), any_v6(), any_ib()]) {
            prop_assert_eq!(decode(&encode(&address).0), Some(address));
        }
    }
}
