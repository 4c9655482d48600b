//! Fuzz targets: what the connection manager and the path service say.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdmacm_kernel_abi::ucma::{ConnParam as RawConnParam, EventResp, UdParam};
use zerocopy::{FromBytes, IntoBytes};

use super::id::CmId;
use super::peer_data::{self, ConnectionData};
use super::private_data::Message;
use super::{ConnParam, Event, EventChannel, Membership, PortSpace, Step, ibacm};
use crate::device::Transport;
use crate::device::fuzzing::machine;
use crate::error::Error;
use crate::sys::hostile::{Discovery, Hostile};
use crate::verbs::{QpAttr, QpState};

/// Where an id goes to.
fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7471))
}

/// Events of ids in any stage of their life, between calls that the input chooses. An event is
/// about an id of ours, and what it carries is what the record has.
pub fn cm_events(input: &[u8]) {
    let kernel = machine(input, Discovery::Rxe);
    let Ok(channel) = EventChannel::open() else {
        return;
    };
    let mut ids: Vec<CmId> = Vec::new();
    for port_space in [PortSpace::Tcp, PortSpace::Udp] {
        ids.extend(channel.create_id(port_space));
    }
    for step in kernel.steps(24) {
        let Some(id) = ids.get(usize::from(step >> 7)).cloned() else {
            break;
        };
        // Whatever the kernel says, a call ends, and an error has a text.
        if let Err(error) = take_step(step & 0x1f, &id, &channel, &mut ids, &kernel) {
            assert!(error.to_string().len() > 10, "{error}");
        }
    }
    drop((ids, channel));
    assert_eq!(kernel.mappings(), 0);
}

fn take_step(
    step: u8,
    id: &CmId,
    channel: &EventChannel,
    ids: &mut Vec<CmId>,
    kernel: &Hostile,
) -> Result<(), Error> {
    let group = SocketAddr::from(([239, 1, 2, 3], 0));
    match step {
        0 => id.resolve_addr(None, peer(), Duration::from_secs(1)),
        1 => id.bind_addr(peer()),
        2 => id.resolve_route(Duration::from_secs(1)),
        3 => id.listen(1),
        4 => id.connect(&ConnParam::new().private_data(b"hello")?),
        5 => id.accept(&ConnParam::new()),
        6 => id.reject(b"no"),
        7 => id.disconnect(),
        8 => id.establish(),
        9 => id.join_multicast(group, Membership::Full),
        10 => id.leave_multicast(group).map(drop),
        11 => id.destroy_qp().map(drop),
        12 => id.destroy(),
        13 => id.init_qp_attr(QpState::Rtr).map(drop),
        14 => id.migrate(channel),
        15 => id.local_ib_addr().and(id.peer_ib_addr()).map(drop),
        16 => {
            let paths = id.paths()?;
            assert!(paths.len() <= 7, "as much as there was room for");
            Ok(())
        }
        17 => {
            let context = id.context()?;
            let pd = context.default_pd()?;
            let cq = context.completion_queue(4).build()?;
            id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
                .map(drop)
        }
        18 => channel
            .services(id.handle())
            .map(drop)
            .map_err(|error| Error::from_os("services", &error)),
        _ => {
            let Some(event) = channel.try_next_event()? else {
                return Ok(());
            };
            let record = EventResp::read_from_bytes(&kernel.last_record()).expect("a whole one");
            check(&event, &record);
            if let Event::ConnectRequest(request) = &event {
                // The program answers it, or lets it go.
                ids.truncate(1);
                ids.push(request.id().clone());
            }
            Err(event.into_error("next_event"))
        }
    }
}

/// What an event tells is in its record.
fn check(event: &Event, record: &EventResp) {
    let bytes = record.param.as_bytes();
    let connection = match event {
        Event::ConnectRequest(request) => request.connection(),
        other => other.content().expect("all but requests").connection(),
    };
    let data = &connection.private_data;
    let places = [
        offset_of!(RawConnParam, private_data),
        offset_of!(UdParam, private_data),
    ];
    let is_there = |at: &usize| bytes[*at..].starts_with(data);
    assert!(data.len() <= 255 && places.iter().any(is_there));
    if let Event::Other { kind, .. } = event {
        assert_eq!(*kind, record.event);
    }
}

/// What a peer says, in the two forms that the kernel tells it in; and private data on their way
/// out.
pub fn peer_data(input: &[u8]) {
    let mut record = EventResp::default();
    let length = input.len().min(size_of_val(&record));
    record.as_mut_bytes()[..length].copy_from_slice(&input[..length]);
    let bytes = record.param.as_bytes();

    let (connection, datagram) = peer_data::of_event(&record, false);
    let raw = RawConnParam::read_from_prefix(bytes)
        .expect("the record is longer")
        .0;
    check_private_data(&connection, &raw.private_data, raw.private_data_len);
    assert_eq!((connection.qp_num, datagram), (raw.qp_num, None));
    assert_eq!(connection.responder_resources, raw.responder_resources);
    assert_eq!(connection.initiator_depth, raw.initiator_depth);

    let (connection, datagram) = peer_data::of_event(&record, true);
    let raw = UdParam::read_from_prefix(bytes)
        .expect("the record is longer")
        .0;
    check_private_data(&connection, &raw.private_data, raw.private_data_len);
    assert_eq!(connection.qp_num, raw.qp_num);
    if let Some(peer) = datagram {
        assert_eq!((peer.qp_num, peer.qkey), (raw.qp_num, raw.qkey));
        let is_told = raw.ah_attr.is_global != 0;
        assert_eq!(
            peer.path.gid.0,
            if is_told {
                raw.ah_attr.grh.dgid
            } else {
                [0; 16]
            }
        );
    }

    check_outgoing(input);
}

fn check_private_data(told: &ConnectionData, all: &[u8], length: u8) {
    assert_eq!(told.private_data, all[..usize::from(length)]);
    let trimmed = told.trimmed();
    assert_ne!(trimmed.last(), Some(&0));
    let padding = &told.private_data[trimmed.len()..];
    assert!(told.private_data.starts_with(trimmed) && padding.iter().all(|byte| *byte == 0));
}

/// A message takes exactly what it can carry.
fn check_outgoing(input: &[u8]) {
    let Some((choice, data)) = input.split_first() else {
        return;
    };
    let message = Message {
        step: [Step::Connect, Step::Accept, Step::Reject][usize::from(choice % 3)],
        is_datagram: choice & 0x10 != 0,
        is_ib_address: choice & 0x20 != 0,
        transport: [
            None,
            Some(Transport::Roce),
            Some(Transport::InfiniBand),
            Some(Transport::Iwarp),
        ][usize::from(choice >> 6)],
    };
    let capacity = message.capacity();
    assert!((56..=255).contains(&capacity));
    let is_taken = message.check("connect", data).is_ok();
    assert_eq!(is_taken, data.len() <= capacity);
    let param = ConnParam::new().private_data(data);
    assert_eq!(param.is_ok(), data.len() <= 255);
}

/// Answers of the path service. What is told of paths and addresses is in the answer.
pub fn path_service(input: &[u8]) {
    let kernel = machine(input, Discovery::Rxe);
    let request = ibacm::request(&ibacm::Ask::default());
    let told = ibacm::exchange(&*kernel, &request);
    // In pieces, and as it is.
    for answer in told.as_deref().into_iter().chain([input]) {
        let contains = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
        let Some(found) = ibacm::parse(answer) else {
            continue;
        };
        assert!((1..=8).contains(&found.paths.len()));
        for path in &found.paths {
            assert!(contains(&path.to_bytes()), "{path:?}");
        }
        match found.source {
            Some(IpAddr::V4(ip)) => assert!(contains(&ip.octets())),
            Some(IpAddr::V6(ip)) => assert!(contains(&ip.octets())),
            None => {}
        }
    }
}
