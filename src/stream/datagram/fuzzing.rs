//! Fuzz target: what peers put in front of datagrams.

use std::net::IpAddr;

use super::wire::{LONGEST_HEADER, Purpose, Sender, UdpHeader};

/// Any bytes as a packet over UDP of both kinds of addresses, and as a datagram of a queue pair. What
/// is taken for a header has its fields where the protocol has them, and is written as it was read.
pub fn datagram_headers(input: &[u8]) {
    for is_ipv4 in [true, false] {
        if let Some((header, data)) = UdpHeader::parse(input, is_ipv4) {
            check_udp(input, is_ipv4, &header, data);
        }
    }
    if let Some((sender, length)) = Sender::parse(input) {
        check_sender(input, sender, length);
    }
}

fn check_udp(input: &[u8], is_ipv4: bool, header: &UdpHeader, data: &[u8]) {
    let length = input.len() - data.len();
    assert_eq!(input[length..], *data);
    assert_eq!(input[..4], 0x5555_5555u32.to_be_bytes());
    assert_eq!((input[4], length), if is_ipv4 { (4, 16) } else { (6, 28) });
    let purpose = if header.purpose == Purpose::Data {
        0
    } else {
        7
    };
    assert_eq!((input[5], usize::from(input[6])), (purpose, length));
    assert_eq!(input[9..12], header.qp_num.to_be_bytes()[1..]);
    match header.address {
        IpAddr::V4(address) => assert_eq!(input[12..16], address.octets()),
        IpAddr::V6(address) => assert_eq!(input[12..28], address.octets()),
    }
    let mut written = [0; LONGEST_HEADER];
    assert_eq!(header.write(&mut written), length);
    // Bytes 7 and 8 are reserved.
    assert_eq!(written[..7], input[..7]);
    assert_eq!(written[7..9], [0, 0]);
    assert_eq!(written[9..length], input[9..length]);
}

fn check_sender(input: &[u8], sender: Sender, length: usize) {
    assert_eq!(usize::from(input[1]), length);
    assert_eq!(sender.length(), length);
    let mut written = [0; LONGEST_HEADER];
    assert_eq!(sender.write(&mut written), length);
    let is_ipv4 = sender.0.is_ipv4();
    assert_eq!((input[0], length), if is_ipv4 { (4, 8) } else { (6, 24) });
    assert_eq!(written[..4], input[..4]);
    // Behind the port IPv6 has the flow information, which is not kept.
    let address = if is_ipv4 { 4 } else { 8 };
    assert_eq!(written[address..length], input[address..length]);
}
