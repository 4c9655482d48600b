//! Fuzz target: the headers of datagrams.

use std::net::Ipv4Addr;

use rdmacm_kernel_abi::uverbs::Wc;

use crate::device::{Gid, GidEntry, GidType};
use crate::fastpath::{Completion, GRH_LENGTH};
use crate::verbs::reply::{Route, way_back};

/// The way back to the sender of a datagram, out of the header before it and a table of GIDs.
pub fn reply_path(input: &[u8]) {
    let Some((grh, rest)) = input.split_first_chunk::<GRH_LENGTH>() else {
        return;
    };
    let Some(([flags, port, level, lid], rest)) = rest.split_first_chunk() else {
        return;
    };
    let wc = Wc {
        wc_flags: (*flags).into(),
        sl: *level,
        slid: (*lid).into(),
        ..Default::default()
    };
    let completion = Completion::of_kernel(wc);
    let received = completion.result().expect("the status is 0");

    let of_ipv4 = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|byte| grh[at + byte]);
        Gid(Ipv4Addr::from(octets).to_ipv6_mapped().octets())
    };
    let of_ipv6 = |at: usize| Gid(std::array::from_fn(|byte| grh[at + byte]));
    // Most entries of the table are an address in the header.
    let entry = |bytes: &[u8; 4]| GidEntry {
        gid: match bytes[0] & 3 {
            0 => of_ipv6(24),
            1 => of_ipv4(36),
            2 => of_ipv6(8),
            _ => Gid([bytes[1]; 16]),
        },
        index: u32::from(bytes[1]) << (bytes[0] >> 4),
        port: bytes[2],
        kind: match bytes[0] >> 2 & 3 {
            0 => GidType::RoceV2,
            1 => GidType::RoceV1,
            2 => GidType::InfiniBand,
            _ => GidType::Other(7),
        },
        interface: 0,
    };
    let (chunks, _) = rest.as_chunks::<4>();
    let gids: Vec<GidEntry> = chunks.iter().map(entry).collect();

    let path =
        Route::all_of(&received, grh).and_then(|routes| way_back(&received, &routes, &gids, *port));
    // One with the packets that came, or else the first.
    let own = |gid: Gid, is_udp: bool| {
        let of_gid =
            |entry: &&GidEntry| entry.port == *port && entry.gid == gid && entry.index <= 255;
        let fits = |entry: &&GidEntry| (entry.kind == GidType::RoceV2) == is_udp;
        let mut entries = gids.iter().filter(of_gid);
        let first = entries.clone().next();
        entries.find(fits).or(first).map(|entry| entry.index)
    };
    let ways = [
        (grh[20] == 0x45, of_ipv4(36), of_ipv4(32), grh[29] == 17),
        (grh[0] >> 4 == 6, of_ipv6(24), of_ipv6(8), grh[6] == 17),
    ];
    let expected = ways
        .into_iter()
        .filter(|(is_one, ..)| *is_one && received.has_grh())
        .find_map(|(_, to, from, is_udp)| Some((own(to, is_udp)?, from)));
    match path {
        Ok(path) => {
            let told = (path.source_gid_index.into(), path.gid);
            assert!(Some(told) == expected && path.flow_label < 1 << 20);
            assert_eq!((path.service_level, path.lid), (*level, u16::from(*lid)));
        }
        Err(error) => assert!(expected.is_none() && error.to_string().len() > 10),
    }
}
