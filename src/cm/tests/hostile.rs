//! Answers that no sane kernel gives: an error or an event that is kept, never a panic.

use std::net::SocketAddr;

use std::sync::Arc;

use proptest::prelude::*;
use rdmacm_kernel_abi::ucma::{Command, EventType};
use rdmacm_kernel_abi::uverbs::{self, ioctl};

use super::pair::{self, Pair, TIMEOUT, address, connect, expect};
use crate::cm::{CmId, ConnParam, Event, EventChannel, PortSpace, RejectReason, Status};
use crate::error::ErrorKind;
use crate::sys::twin::{Call, SILENT, Twin, WITHOUT_RDMA};
use crate::verbs::QpAttr;

fn new_id(twin: &Arc<Twin>) -> (EventChannel, CmId) {
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    (channel, id)
}

#[test]
fn unknown_events_are_kept() {
    let twin = Twin::new();
    let (channel, id) = new_id(&twin);
    for number in [20, 77, u32::MAX] {
        twin.inject(id.handle(), EventType(number), |event| event.status = 5);
        let event = channel.try_next_event().unwrap().unwrap();
        assert!(
            matches!(event, Event::Other { kind, .. } if kind == number),
            "{event:?}"
        );
        assert_eq!(event.id(), &id);
        assert_eq!(event.status(), Status::Rejected(RejectReason(5)));
        assert_eq!(event.into_error("test").kind(), ErrorKind::Protocol);
    }
}

#[test]
fn known_events_out_of_turn_are_kept() {
    let twin = Twin::new();
    let (channel, id) = new_id(&twin);
    for number in 0..=19 {
        for status in [0, -libc::ETIMEDOUT, 28, i32::MIN, i32::MAX] {
            if number == EventType::CONNECT_REQUEST.0 {
                continue;
            }
            twin.inject(id.handle(), EventType(number), |event| {
                event.status = status.cast_unsigned();
            });
            let is_of_a_group = [EventType::MULTICAST_JOIN.0, EventType::MULTICAST_ERROR.0];
            match channel.try_next_event().unwrap() {
                Some(event) => {
                    let error = event.into_error("test");
                    assert!(error.to_string().len() > 10, "{error}");
                }
                None => assert!(is_of_a_group.contains(&number), "the id is in no group"),
            }
        }
    }
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn private_data_ends_with_its_record() {
    let twin = Twin::new();
    let (channel, id) = new_id(&twin);
    twin.inject(id.handle(), EventType::ESTABLISHED, |event| {
        event.param = [u32::MAX; 76]
    });
    let event = channel.try_next_event().unwrap().unwrap();
    let data = &event.content().unwrap().connection().private_data;
    assert_eq!(*data, [0xff; 255]);
}

/// Changes the answers to QUERY.
fn tamper_query(twin: &Twin, change: impl Fn(&mut [u8]) + Send + 'static) {
    twin.tamper(move |call, _, answer| {
        if call.is_cm(Command::Query) {
            change(answer);
        }
    });
}

/// Offsets in the answer to QUERY.
const GUID: std::ops::Range<usize> = 0..8;
const PORT: usize = 8;
const SOURCE_FAMILY: std::ops::Range<usize> = 16..18;
const INDEX: std::ops::Range<usize> = 272..276;

#[test]
fn an_address_without_a_device_gives_no_device() {
    let twin = Twin::new();
    // The index is 0 then, which is a device's.
    tamper_query(&twin, |answer| answer[GUID].fill(0));
    let (channel, id) = new_id(&twin);
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_RESOLVED").unwrap();
    assert_eq!(id.context().unwrap_err().kind(), ErrorKind::InvalidState);
    assert_eq!(
        id.protection_domain().unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    assert_eq!(
        id.connect(&ConnParam::new()).unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    assert_eq!(twin.census().files, 1, "no device was opened");
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn a_request_without_a_device_is_rejected() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = pair::listen(registry).unwrap();
    let (channel, id) = pair::resolve(registry).unwrap();
    let active = pair::furnish(&twin, channel, id).unwrap();
    active.id.connect(&ConnParam::new()).unwrap();
    tamper_query(&twin, |answer| answer[GUID].fill(0));
    let lost = expect(&listening.channel, "REQUEST_LOST").unwrap();
    assert_eq!(lost.into_error("accept").kind(), ErrorKind::Disconnected);
    expect(&active.channel, "REJECTED").unwrap();
    drop((listening, active));
    twin.assert_clean();
}

#[test]
fn an_address_on_an_unknown_device_is_an_error() {
    let twin = Twin::new();
    tamper_query(&twin, |answer| answer[INDEX].fill(9));
    let (channel, id) = new_id(&twin);
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    let event = expect(&channel, "ADDR_ERROR").unwrap();
    assert!(matches!(event.status(), Status::Errno(_)));
    assert_eq!(
        id.bind_addr(address()).unwrap_err().errno(),
        Some(libc::EINVAL)
    );
    drop((channel, id, event));
    twin.assert_clean();
}

#[test]
fn port_0_is_refused_when_it_is_used() {
    let twin = Twin::new();
    tamper_query(&twin, |answer| answer[PORT] = 0);
    let registry = twin.registry();
    let (channel, id) = pair::resolve(registry).unwrap();
    let error = pair::furnish(&twin, channel, id).map(drop).unwrap_err();
    assert!(
        error.errno().is_some() || error.kind() == ErrorKind::InvalidInput,
        "{error}"
    );
    twin.assert_clean();
}

#[test]
fn an_address_of_an_unknown_family_is_none() {
    let twin = Twin::new();
    tamper_query(&twin, |answer| answer[SOURCE_FAMILY].fill(0xff));
    let (channel, id) = new_id(&twin);
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_RESOLVED").unwrap();
    assert_eq!(id.local_addr(), None);
    assert_eq!(id.peer_addr(), Some(address()));
}

#[test]
fn a_node_of_another_device_fails_the_resolution() {
    let twin = Twin::new();
    twin.change_device(0, |device| device.node_minor = Some(1));
    let (channel, id) = new_id(&twin);
    // Listed with one number, opened with another.
    twin.tamper_netlink(|payload| {
        let at = payload
            .windows(8)
            .position(|window| window == 0xe7c0u64.to_ne_bytes());
        if let Some(at) = at {
            payload[at] ^= 2;
        }
    });
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_ERROR").unwrap();
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn a_proposal_of_nonsense_fails_the_connection() {
    for byte in [0x00, 0xff] {
        let twin = Twin::new();
        twin.tamper(move |call, _, answer| {
            if call.is_cm(Command::InitQpAttr) {
                answer.fill(byte);
            }
        });
        connect(&twin, twin.registry()).map(drop).unwrap_err();
        twin.assert_clean();
    }
}

#[test]
fn unresolvable_addresses_are_explained() {
    let twin = Twin::new();
    let told = |ip: std::net::IpAddr| {
        let (channel, id) = new_id(&twin);
        id.resolve_addr(None, SocketAddr::from((ip, 1)), TIMEOUT)
            .unwrap();
        expect(&channel, "ADDR_ERROR")
            .unwrap()
            .into_error("resolve_addr")
    };
    let silent = told(SILENT);
    assert_eq!(silent.kind(), ErrorKind::TimedOut);
    assert!(silent.to_string().contains(&SILENT.to_string()), "{silent}");
    let without = told(WITHOUT_RDMA);
    assert_eq!(without.kind(), ErrorKind::NoDevice);
    for part in [&WITHOUT_RDMA.to_string(), "rxe0 (10.0.0.1)"] {
        assert!(without.to_string().contains(part), "{without}");
    }
    let (_channel, id) = new_id(&twin);
    let nowhere = id
        .resolve_addr(None, "172.16.0.1:1".parse::<SocketAddr>().unwrap(), TIMEOUT)
        .unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::Unreachable);
    assert!(nowhere.to_string().contains("172.16.0.1"), "{nowhere}");
}

#[test]
fn a_missing_node_and_a_missing_module_are_told_apart() {
    let open = |prepare: fn(&Twin)| {
        let twin = Twin::new();
        prepare(&twin);
        EventChannel::open_on(twin.registry()).unwrap_err()
    };
    let node = open(|twin| twin.hide_cm(false));
    assert_eq!(
        (node.kind(), node.errno()),
        (ErrorKind::NoDevice, Some(libc::ENOENT))
    );
    for part in ["/dev/infiniband/rdma_cm", "container"] {
        assert!(node.to_string().contains(part), "{node}");
    }
    assert!(!node.to_string().contains("modprobe"), "{node}");
    let module = open(|twin| twin.hide_cm(true));
    assert_eq!(module.kind(), ErrorKind::NoDevice);
    assert!(module.to_string().contains("modprobe rdma_ucm"), "{module}");
    let forbidden = open(|twin| twin.fail(0, libc::EACCES, |call| matches!(call, Call::Open(_))));
    assert_eq!(forbidden.kind(), ErrorKind::PermissionDenied);
    assert!(forbidden.to_string().contains("group rdma"), "{forbidden}");
}

#[test]
fn binding_is_explained() {
    let twin = Twin::new();
    let (_channel, id) = new_id(&twin);
    let foreign = id
        .bind_addr(SocketAddr::from(([10, 0, 0, 2], 7471)))
        .unwrap_err();
    for part in ["10.0.0.2", "rxe0 (10.0.0.1)"] {
        assert!(foreign.to_string().contains(part), "{foreign}");
    }
    let listening = pair::listen(twin.registry()).unwrap();
    let taken = id.bind_addr(address()).unwrap_err();
    assert!(taken.to_string().contains("port 7471 is in use"), "{taken}");
    drop(listening);
    id.bind_addr(address()).unwrap();
    assert_eq!(id.local_addr(), Some(address()));
}

#[test]
fn nobody_listening_is_a_rejection_that_says_so() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    let side = pair::furnish(&twin, channel, id).unwrap();
    side.id.connect(&ConnParam::new()).unwrap();
    let error = expect(&side.channel, "REJECTED")
        .unwrap()
        .into_error("connect");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("nobody listens"), "{error}");
    let again = side.id.connect(&ConnParam::new()).unwrap_err();
    assert!(again.to_string().contains("connected before"), "{again}");
}

#[test]
fn limits_are_checked_before_the_kernel_is_asked() {
    let twin = Twin::new();
    let Pair {
        active, passive, ..
    } = connect(&twin, twin.registry()).unwrap();
    twin.forget_calls();
    let param = ConnParam::new;
    let refused = [
        active
            .id
            .connect(&param().private_data(&[0; 57]).unwrap())
            .unwrap_err(),
        active
            .id
            .connect(&param().initiator_depth(129))
            .unwrap_err(),
        active
            .id
            .connect(&param().responder_resources(129))
            .unwrap_err(),
        active.id.connect(&param().retry_count(8)).unwrap_err(),
        active.id.connect(&param().rnr_retry_count(8)).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let not_asked = passive.id.accept(&param()).unwrap_err();
    assert_eq!(not_asked.kind(), ErrorKind::InvalidState);
    assert_eq!(twin.calls(), []);
}

/// Which of a connection's answers to falsify, and how.
fn noise() -> impl Strategy<Value = (usize, Vec<(usize, u8)>)> {
    (
        0usize..140,
        prop::collection::vec((0usize..350, any::<u8>()), 1..12),
    )
}

/// Fewer cases under Miri, which is slow.
fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 256 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// What is falsified may be the handle of an object, which is then out of reach: only that it
    /// ends without a panic, and that nothing outlives its file.
    #[test]
    fn no_answer_confuses_a_connection((which, bytes) in noise()) {
        let twin = Twin::new();
        let mut number = 0;
        twin.tamper(move |call, attr, answer| {
            if is_trusted(call, attr) {
                return;
            }
            if number == which {
                for (at, byte) in &bytes {
                    answer[at % answer.len()] = *byte;
                }
            }
            number += 1;
        });
        let _ = pair::live(&twin, twin.registry());
        let census = twin.census();
        prop_assert_eq!((census.files, census.mappings), (0, 0));
    }
}

/// Whether an answer is one that the library has to believe: the number of a descriptor that is
/// now its own.
fn is_trusted(call: &Call, attr: u16) -> bool {
    call.is_write(uverbs::Command::CREATE_COMP_CHANNEL)
        && attr == ioctl::device::invoke_write::CORE_OUT
}

#[test]
fn objects_of_another_device_are_refused_by_name() {
    use crate::sys::twin::TwinDevice;
    let twin = Twin::with_devices(vec![
        TwinDevice::rxe(0, [10, 0, 0, 1].into()),
        TwinDevice::rxe(1, [10, 0, 0, 2].into()),
    ]);
    let registry = twin.registry();
    let (channel, id) = pair::resolve(registry).unwrap();
    let other = registry.context_of_index(1).unwrap();
    let pd = other.alloc_pd().unwrap();
    let cq = other.completion_queue(4).build().unwrap();
    let error = id
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for part in ["rxe0", "rxe1"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    drop((channel, id, pd, cq, other));
    twin.assert_clean();
}
