//! A client of ibacm, the service that knows the paths of an InfiniBand subnet.
//!
//! Few machines have it. Where it is missing or does not answer, nobody is told: the kernel finds
//! the path itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use rdmacm_kernel_abi::ucma;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Address, PathRecord};
use crate::device::Registry;
use crate::sys::{Kernel, LocalService, Question};

/// How long it may take to answer. It has a cache; what is not there it asks for in the subnet.
const LIMIT: Duration = Duration::from_secs(1);
/// For how long it is not asked again after it was missing or silent.
const PAUSE: Duration = Duration::from_secs(10);

const VERSION: u8 = 1;
const RESOLVE: u8 = 1;
const MAX_RECORDS: usize = 8;
const MAX_MESSAGE: usize = size_of::<Header>() + MAX_RECORDS * size_of::<Record>();

/// What a record holds.
mod kind {
    pub(super) const IPV4: u16 = 2;
    pub(super) const IPV6: u16 = 3;
    pub(super) const PATH: u16 = 0x10;
}

/// Whose address a record holds, and how to treat the question.
mod flag {
    pub(super) const SOURCE: u32 = 1;
    pub(super) const DESTINATION: u32 = 1 << 1;
    pub(super) const NO_DELAY: u32 = 1 << 30;
}

/// The beginning of a message. Numbers are in host byte order.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    version: u8,
    opcode: u8,
    /// 0 is success.
    status: u8,
    data: [u8; 3],
    /// Bytes of the whole message.
    length: u16,
    /// The service hands it back.
    transaction: u64,
}

/// One address or path. The information is as on the wire, the rest in host byte order.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Record {
    flags: u32,
    kind: u16,
    reserved: u16,
    info: [u8; 64],
}

const _: () = assert!(size_of::<Header>() == 16 && size_of::<Record>() == 72);
const _: () = assert!(size_of::<ucma::PathRecord>() == 64 && MAX_MESSAGE == 592);

/// What the service knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The paths; at least one.
    pub paths: Vec<PathRecord>,
    /// The source address that goes with them, where none was asked for.
    pub source: Option<IpAddr>,
}

/// What to ask.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub source: Option<&'a Address>,
    pub destination: Option<&'a Address>,
    /// Only what the service knows already.
    pub only_known: bool,
}

/// The paths from `source` to `destination`, if ibacm runs and knows one. Waits for it a second at
/// most, and not again within the next ten once it was missing or silent.
pub(super) fn route(
    registry: &Registry,
    source: &Address,
    destination: &Address,
) -> Option<Vec<PathRecord>> {
    let question = Ask {
        source: Some(source),
        destination: Some(destination),
        only_known: false,
    };
    Some(ask(registry, &question)?.paths)
}

/// As [`route`], with all that there is to ask and to be told.
pub(super) fn ask(registry: &Registry, question: &Ask<'_>) -> Option<Answer> {
    let absence = registry.path_service();
    if absence.is_noted() {
        return None;
    }
    let answer = exchange(&**registry.kernel(), &request(question));
    if answer.is_none() {
        absence.note(PAUSE);
    }
    parse(&answer?)
}

pub(super) fn exchange(kernel: &dyn Kernel, request: &[u8]) -> Option<Vec<u8>> {
    let question = Question {
        request,
        max_answer: MAX_MESSAGE,
        is_whole: &is_whole,
        limit: LIMIT,
    };
    // The port file is there when its configuration says so.
    let service = LocalService {
        port_file: Path::new("/run/ibacm.port"),
        socket: Path::new("/run/ibacm.sock"),
    };
    kernel.ask_service(service, &question).ok()
}

fn is_whole(answer: &[u8]) -> bool {
    Header::read_from_prefix(answer)
        .is_ok_and(|(header, _)| answer.len() >= usize::from(header.length))
}

pub(super) fn request(question: &Ask<'_>) -> Vec<u8> {
    let records = records(question);
    let length = size_of::<Header>() + records.as_bytes().len();
    let header = Header {
        version: VERSION,
        opcode: RESOLVE,
        status: 0,
        data: [0; 3],
        length: length as u16,
        transaction: 0,
    };
    [header.as_bytes(), records.as_bytes()].concat()
}

/// IP addresses are records of their own; GIDs are the ends of a path.
fn records(question: &Ask<'_>) -> Vec<Record> {
    let wish = match question.only_known {
        true => flag::NO_DELAY,
        false => 0,
    };
    let ends = [
        (question.source, flag::SOURCE),
        (question.destination, flag::DESTINATION | wish),
    ];
    let mut records = Vec::new();
    let mut path: Option<ucma::PathRecord> = None;
    for (address, flags) in ends {
        match address {
            Some(Address::Ip(address)) => records.push(ip_record(address.ip(), flags)),
            Some(Address::Ib(address)) => {
                let path = path.get_or_insert_default();
                match flags & flag::SOURCE {
                    0 => path.dgid = address.gid.0,
                    _ => path.sgid = address.gid.0,
                }
            }
            None => {}
        }
    }
    records.extend(path.map(|path| Record {
        flags: 0,
        kind: kind::PATH,
        reserved: 0,
        info: zerocopy::transmute!(path),
    }));
    records
}

fn ip_record(ip: IpAddr, flags: u32) -> Record {
    let mut info = [0; 64];
    let kind = match ip {
        IpAddr::V4(ip) => {
            info[..4].copy_from_slice(&ip.octets());
            kind::IPV4
        }
        IpAddr::V6(ip) => {
            info[..16].copy_from_slice(&ip.octets());
            kind::IPV6
        }
    };
    Record {
        flags,
        kind,
        reserved: 0,
        info,
    }
}

/// What an answer says; `None` unless it has a path.
pub(super) fn parse(answer: &[u8]) -> Option<Answer> {
    let (header, rest) = Header::read_from_prefix(answer).ok()?;
    let is_answer = header.version == VERSION
        && header.opcode & 0xf == RESOLVE
        && header.status == 0
        && usize::from(header.length) == answer.len();
    // A piece of a record at the end is none.
    let count = rest.len() / size_of::<Record>();
    if !is_answer || count > MAX_RECORDS {
        return None;
    }
    let mut parsed = Answer::default();
    for record in rest.chunks_exact(size_of::<Record>()) {
        let record = Record::read_from_bytes(record).ok()?;
        let is_source = record.flags & flag::SOURCE != 0;
        match record.kind {
            kind::PATH => parsed.paths.push(path_of(&record)),
            kind::IPV4 | kind::IPV6 if is_source => {
                parsed.source = parsed.source.or(Some(ip_of(&record)));
            }
            // Names, and what a newer service may say.
            _ => {}
        }
    }
    (!parsed.paths.is_empty()).then_some(parsed)
}

/// A path record with the purpose that the service gives it.
fn path_of(record: &Record) -> PathRecord {
    PathRecord::from_kernel(ucma::PathData {
        flags: record.flags,
        reserved: 0,
        path_rec: zerocopy::transmute!(record.info),
    })
}

fn ip_of(record: &Record) -> IpAddr {
    let info = &record.info;
    match record.kind {
        kind::IPV4 => Ipv4Addr::new(info[0], info[1], info[2], info[3]).into(),
        _ => Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|at| info[at])).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::cm::{IbAddress, PortSpace};
    use crate::device::Gid;
    use crate::sys::twin::Twin;

    fn ip(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    fn gid(last: u8) -> Gid {
        let mut bytes = [0; 16];
        (bytes[0], bytes[1], bytes[15]) = (0xfe, 0x80, last);
        Gid(bytes)
    }

    fn record(kind: u16, flags: u32, start: &[u8]) -> Record {
        let mut info = [0; 64];
        info[..start.len()].copy_from_slice(start);
        Record {
            flags,
            kind,
            reserved: 0,
            info,
        }
    }

    fn path_record(last: u8) -> Record {
        let path = PathRecord::new(gid(1), gid(last));
        record(kind::PATH, path.to_kernel().flags, &path.to_bytes())
    }

    fn message(status: u8, records: &[Record]) -> Vec<u8> {
        let header = Header {
            version: VERSION,
            opcode: RESOLVE,
            status,
            data: [0; 3],
            length: (size_of::<Header>() + records.as_bytes().len()) as u16,
            transaction: 0,
        };
        [header.as_bytes(), records.as_bytes()].concat()
    }

    /// A machine whose ibacm answers `answer`, and how often it was asked.
    fn machine(
        mut answer: impl FnMut(&[u8]) -> io::Result<Vec<u8>> + Send + 'static,
    ) -> (&'static Registry, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let twin = Twin::new();
        twin.serve(move |request| {
            counter.fetch_add(1, Ordering::Relaxed);
            answer(request)
        });
        (twin.registry(), asked)
    }

    #[test]
    fn two_ip_addresses_are_two_records() {
        let message = request(&Ask {
            source: Some(&ip("10.0.0.1:1")),
            destination: Some(&ip("[fe80::7]:2")),
            only_known: true,
        });
        assert_eq!(message.len(), 160);
        assert_eq!(message[..6], [1, 1, 0, 0, 0, 0]);
        assert_eq!(message[6..8], 160u16.to_ne_bytes());
        assert_eq!(message[16..20], 1u32.to_ne_bytes());
        assert_eq!(message[20..22], 2u16.to_ne_bytes());
        assert_eq!(message[24..28], [10, 0, 0, 1]);
        assert_eq!(message[88..92], (1u32 << 30 | 2).to_ne_bytes());
        assert_eq!(message[92..94], 3u16.to_ne_bytes());
        assert_eq!(message[96..112], gid(7).0);
    }

    #[test]
    fn gids_are_the_ends_of_one_path() {
        let ib = |last| IbAddress::for_port(PortSpace::Tcp, 7471, gid(last)).into();
        let message = request(&Ask {
            source: Some(&ib(1)),
            destination: Some(&ib(2)),
            only_known: false,
        });
        assert_eq!(message.len(), 88);
        assert_eq!(message[20..22], 0x10u16.to_ne_bytes());
        assert_eq!(message[32..48], gid(2).0);
        assert_eq!(message[48..64], gid(1).0);
    }

    #[test]
    fn the_paths_are_told_in_order() {
        let (registry, asked) = machine(|_| {
            let alternate = record(kind::PATH, 4, &[]);
            Ok(message(0, &[path_record(2), path_record(3), alternate]))
        });
        let paths = route(registry, &ip("10.0.0.1:0"), &ip("10.0.0.2:7471")).unwrap();
        let ends: Vec<Gid> = paths.iter().map(PathRecord::destination_gid).collect();
        assert_eq!(ends, [gid(2), gid(3), Gid([0; 16])]);
        assert!(paths[0].is_primary() && !paths[2].is_primary());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_source_is_told_and_the_destination_is_no_source() {
        let (registry, _) = machine(|_| {
            let records = [
                record(kind::IPV4, flag::DESTINATION, &[10, 0, 0, 2]),
                record(kind::IPV4, flag::SOURCE, &[10, 0, 0, 1]),
                path_record(2),
            ];
            Ok(message(0, &records))
        });
        let answer = ask(registry, &Ask::default()).unwrap();
        assert_eq!(answer.source, Some([10, 0, 0, 1].into()));
        assert_eq!(answer.paths.len(), 1);
    }

    #[test]
    fn a_service_that_knows_no_path_is_asked_again() {
        let (registry, asked) = machine(|_| Ok(message(3, &[])));
        for count in 1..=3 {
            assert_eq!(ask(registry, &Ask::default()), None);
            assert_eq!(asked.load(Ordering::Relaxed), count);
        }
    }

    #[test]
    fn a_service_that_is_missing_or_silent_is_left_alone() {
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::TimedOut] {
            let (registry, asked) = machine(move |_| Err(kind.into()));
            for _ in 0..3 {
                assert_eq!(ask(registry, &Ask::default()), None);
            }
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn an_answer_of_another_kind_is_none() {
        let good = message(0, &[path_record(2)]);
        assert!(parse(&good).is_some());
        for (at, wrong) in [(0, 2), (1, 2), (2, 1), (6, 87), (7, 1)] {
            let mut bad = good.clone();
            bad[at] = wrong;
            assert_eq!(parse(&bad), None, "byte {at}");
        }
        assert_eq!(parse(&message(0, &[path_record(2); 9])), None);
        assert_eq!(parse(&good[..15]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(answer: Vec<u8>) {
            let _ = is_whole(&answer);
            prop_assert!(parse(&answer).is_none_or(|answer| !answer.paths.is_empty()));
        }

        #[test]
        fn any_records_are_survived(records in prop::collection::vec(any::<(u32, u8, [u8; 32])>(), 0..10)) {
            let records: Vec<Record> = records
                .iter()
                .map(|(flags, kind, info)| record(u16::from(kind % 18), *flags, info))
                .collect();
            let paths = records.iter().filter(|record| record.kind == kind::PATH).count();
            let answer = message(0, &records);
            prop_assert!(is_whole(&answer) && !is_whole(&answer[..answer.len() - 1]));
            let told = parse(&answer).map_or(0, |answer| answer.paths.len());
            prop_assert_eq!(told, if records.len() > MAX_RECORDS { 0 } else { paths });
        }
    }
}
