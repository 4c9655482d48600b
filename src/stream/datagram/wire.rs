//! The headers of datagrams: one in front of those that a queue pair sends, one in front of those
//! that go over UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What marks a packet over UDP as one of this protocol.
const TAG: [u8; 4] = [0x55; 4];

/// In the place of a version there is that of the addresses.
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// Bytes of the sender's header, by the kind of its address.
const SENDER_IPV4: usize = 8;
const SENDER_IPV6: usize = 24;
/// Bytes of the header over UDP.
const UDP_IPV4: usize = 16;
const UDP_IPV6: usize = 28;

/// Where the address is in the header over UDP.
const UDP_ADDRESS: usize = 12;

/// The bits of a queue pair's number.
pub(super) const QP_NUM: u32 = 0xff_ffff;

/// The queue key of all queue pairs of the protocol.
pub(super) const QKEY: u32 = 0x0123_4567;

/// Bytes that a receiver of the C library has room for, header and data together, over either way.
pub(super) const SLOT: usize = 2048;

/// Room for each header.
pub(super) const LONGEST_HEADER: usize = UDP_IPV6;

/// The most data that a datagram has, so that it can go over either way.
pub(super) fn longest_data(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => SLOT - UDP_IPV4,
        IpAddr::V6(_) => SLOT - UDP_IPV6,
    }
}

/// Who sent a datagram: what goes in front of it when a queue pair sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender(pub SocketAddr);

impl Sender {
    /// Writes the header to the beginning of `bytes`, and returns its length.
    pub(super) fn write(self, bytes: &mut [u8; LONGEST_HEADER]) -> usize {
        let port = self.0.port().to_be_bytes();
        bytes[2..4].copy_from_slice(&port);
        match self.0 {
            SocketAddr::V4(address) => {
                [bytes[0], bytes[1]] = [IPV4, SENDER_IPV4 as u8];
                bytes[4..8].copy_from_slice(&address.ip().octets());
                SENDER_IPV4
            }
            SocketAddr::V6(address) => {
                [bytes[0], bytes[1]] = [IPV6, SENDER_IPV6 as u8];
                bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                SENDER_IPV6
            }
        }
    }

    /// Bytes of the header of a sender.
    pub(super) fn length(self) -> usize {
        match self.0 {
            SocketAddr::V4(_) => SENDER_IPV4,
            SocketAddr::V6(_) => SENDER_IPV6,
        }
    }

    /// The header that a received datagram begins with, and its length. `None`: there is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let [version, length, port_high, port_low] = *bytes.first_chunk()?;
        let port = u16::from_be_bytes([port_high, port_low]);
        let length = usize::from(length);
        let rest = bytes.get(4..length)?;
        let address = match (version, length) {
            (IPV4, SENDER_IPV4) => IpAddr::V4(Ipv4Addr::from(*rest.first_chunk::<4>()?)),
            // The flow information is the sender's own affair.
            (IPV6, SENDER_IPV6) => IpAddr::V6(Ipv6Addr::from(*rest.last_chunk::<16>()?)),
            _ => return None,
        };
        Some((Self(SocketAddr::new(address, port)), length))
    }
}

/// What a packet over UDP is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It carries a datagram, and asks for the receiver's queue pair.
    Data,
    /// It tells the sender's queue pair.
    Control,
}

/// What goes in front of a packet over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UdpHeader {
    pub purpose: Purpose,
    /// The sender's queue pair.
    pub qp_num: u32,
    /// The sender's address; receivers believe the packet's.
    pub address: IpAddr,
}

impl UdpHeader {
    const DATA: u8 = 0;
    const CONTROL: u8 = 7;

    /// Writes the header to the beginning of `bytes`, and returns its length.
    pub(super) fn write(&self, bytes: &mut [u8; LONGEST_HEADER]) -> usize {
        let purpose = match self.purpose {
            Purpose::Data => Self::DATA,
            Purpose::Control => Self::CONTROL,
        };
        let (version, length) = match self.address {
            IpAddr::V4(_) => (IPV4, UDP_IPV4),
            IpAddr::V6(_) => (IPV6, UDP_IPV6),
        };
        bytes[..4].copy_from_slice(&TAG);
        bytes[4..8].copy_from_slice(&[version, purpose, length as u8, 0]);
        bytes[8..12].copy_from_slice(&(self.qp_num & QP_NUM).to_be_bytes());
        match self.address {
            IpAddr::V4(address) => bytes[UDP_ADDRESS..length].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[UDP_ADDRESS..length].copy_from_slice(&address.octets()),
        }
        length
    }

    /// The header of a packet that came from an address of one of the two kinds, and the data behind
    /// it. `None`: it is not one of this protocol, or not of that kind.
    pub(super) fn parse(packet: &[u8], is_ipv4: bool) -> Option<(Self, &[u8])> {
        let (tag, rest) = packet.split_first_chunk::<4>()?;
        let ([version, purpose, length, _reserved], rest) = rest.split_first_chunk::<4>()?;
        let (qp_num, _) = rest.split_first_chunk::<4>()?;
        let purpose = match *purpose {
            Self::DATA => Purpose::Data,
            Self::CONTROL => Purpose::Control,
            _ => return None,
        };
        let length = usize::from(*length);
        let address = packet.get(UDP_ADDRESS..length)?;
        let address = match (*version, length) {
            (IPV4, UDP_IPV4) if is_ipv4 => IpAddr::from(*address.first_chunk::<4>()?),
            (IPV6, UDP_IPV6) if !is_ipv4 => IpAddr::from(*address.first_chunk::<16>()?),
            _ => return None,
        };
        if *tag != TAG {
            return None;
        }
        let header = Self {
            purpose,
            qp_num: u32::from_be_bytes(*qp_num) & QP_NUM,
            address,
        };
        Some((header, &packet[length..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the C library on 10.10.0.1, port 7174, with the queue pair 0x112233 has them.
    const C_UDP_DATA: [u8; 16] = [
        0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x11, 0x22, 0x33, 10, 10, 0, 1,
    ];
    const C_SENDER: [u8; 8] = [4, 8, 0x1c, 0x06, 10, 10, 0, 1];
    /// The same on fd00::1.
    const C_UDP_CONTROL: [u8; 28] = [
        0x55, 0x55, 0x55, 0x55, 6, 7, 28, 0, 0, 0x11, 0x22, 0x33, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 1,
    ];
    const C_SENDER_IPV6: [u8; 24] = [
        6, 24, 0x1c, 0x06, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ];

    fn bytes_of(write: impl FnOnce(&mut [u8; LONGEST_HEADER]) -> usize) -> Vec<u8> {
        let mut bytes = [0xaa; LONGEST_HEADER];
        let length = write(&mut bytes);
        assert_eq!(bytes[length..], [0xaa; LONGEST_HEADER][length..]);
        bytes[..length].to_vec()
    }

    #[test]
    fn headers_are_those_of_the_c_library() {
        let data = UdpHeader {
            purpose: Purpose::Data,
            qp_num: 0x11_2233,
            address: "10.10.0.1".parse().unwrap(),
        };
        let control = UdpHeader {
            purpose: Purpose::Control,
            qp_num: 0x11_2233,
            address: "fd00::1".parse().unwrap(),
        };
        let sender = Sender("10.10.0.1:7174".parse().unwrap());
        let sender_ipv6 = Sender("[fd00::1]:7174".parse().unwrap());
        assert_eq!(bytes_of(|bytes| data.write(bytes)), C_UDP_DATA);
        assert_eq!(bytes_of(|bytes| control.write(bytes)), C_UDP_CONTROL);
        assert_eq!(bytes_of(|bytes| sender.write(bytes)), C_SENDER);
        assert_eq!(bytes_of(|bytes| sender_ipv6.write(bytes)), C_SENDER_IPV6);
        let empty: &[u8] = &[];
        assert_eq!(UdpHeader::parse(&C_UDP_DATA, true), Some((data, empty)));
        let parsed = UdpHeader::parse(&C_UDP_CONTROL, false);
        assert_eq!(parsed, Some((control, empty)));
        assert_eq!(Sender::parse(&C_SENDER), Some((sender, 8)));
        assert_eq!(Sender::parse(&C_SENDER_IPV6), Some((sender_ipv6, 24)));
    }

    #[test]
    fn what_is_behind_a_header_is_the_data() {
        let packet = [&C_UDP_DATA[..], b"hello"].concat();
        assert_eq!(UdpHeader::parse(&packet, true).unwrap().1, b"hello");
    }

    #[test]
    fn anything_else_is_no_header() {
        for at in 0..7 {
            let mut packet = C_UDP_DATA;
            packet[at] ^= 0x40;
            assert_eq!(UdpHeader::parse(&packet, true), None, "byte {at}");
        }
        assert_eq!(UdpHeader::parse(&C_UDP_DATA, false), None);
        assert_eq!(UdpHeader::parse(&C_UDP_CONTROL, true), None);
        for length in 0..C_UDP_CONTROL.len() {
            let cut = &C_UDP_CONTROL[..length];
            assert_eq!(UdpHeader::parse(cut, false), None, "{length} bytes");
        }
        for length in 0..C_SENDER_IPV6.len() {
            let cut = &C_SENDER_IPV6[..length];
            assert_eq!(Sender::parse(cut), None, "{length} bytes");
        }
        for at in 0..2 {
            let mut header = C_SENDER;
            header[at] ^= 0x10;
            assert_eq!(Sender::parse(&header), None, "byte {at}");
        }
    }

    #[test]
    fn the_upper_bits_of_a_number_do_not_count() {
        let mut packet = C_UDP_DATA;
        packet[8] = 0xff;
        packet[7] = 0xff;
        assert_eq!(UdpHeader::parse(&packet, true).unwrap().0.qp_num, 0x11_2233);
    }

    #[test]
    fn a_datagram_fits_the_slots_of_the_c_library_over_either_way() {
        assert_eq!(longest_data("10.10.0.1".parse().unwrap()), 2032);
        assert_eq!(longest_data("fd00::1".parse().unwrap()), 2020);
    }
}
