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
        kind: GidType::RoceV2,
        interface: 0,
    };
    let (chunks, _) = rest.as_chunks::<4>();
    let gids: Vec<GidEntry> = chunks.iter().map(entry).collect();

    let path =
        Route::all_of(&received, grh).and_then(|routes| way_back(&received, &routes, &gids, *port));
    let is_own = |gid: Gid| {
        let mut entries = gids
            .iter()
            .filter(|entry| entry.port == *port && entry.gid == gid);
        entries.any(|entry| entry.index <= 255)
    };
    let ways = [
        (grh[20] == 0x45 && is_own(of_ipv4(36)), of_ipv4(32)),
        (grh[0] >> 4 == 6 && is_own(of_ipv6(24)), of_ipv6(8)),
    ];
    let expected = ways
        .into_iter()
        .find(|(is_one, _)| *is_one && received.has_grh());
    assert_eq!(
        path.as_ref().ok().map(|path| path.gid),
        expected.map(|(_, gid)| gid)
    );
    match path {
        Ok(path) => {
            let is_entry = |entry: &&GidEntry| {
                entry.port == path.port && entry.index == u32::from(path.source_gid_index)
            };
            assert!(gids.iter().any(|entry| is_entry(&entry)) && path.flow_label < 1 << 20);
            assert_eq!((path.service_level, path.lid), (*level, u16::from(*lid)));
        }
        Err(error) => assert!(error.to_string().len() > 10),
    }
}
