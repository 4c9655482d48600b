//! Devices on the scripted kernel: finding, opening, asking.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rdmacm_kernel_abi::uverbs::{DriverId, ioctl};

use super::{Context, Device, Driver, GidType, Transport, discovery};
use crate::error::{ErrorKind, Result};
use crate::sys::twin::{ADDRESS, Call, GET_CONTEXT, Twin, TwinDevice};

fn list(twin: &Arc<Twin>) -> Vec<Device> {
    discovery::list(twin.registry()).unwrap()
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(Device::name).collect()
}

/// An InfiniBand device, one without verbs, an iWARP device, and rxe.
fn zoo() -> Arc<Twin> {
    let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let mut infiniband = TwinDevice::rxe(0, ip(1));
    (infiniband.name, infiniband.driver) = ("mlx5_0".into(), DriverId::MLX5);
    infiniband.protocol = "ib";
    let mut without_verbs = TwinDevice::rxe(1, ip(2));
    without_verbs.uverbs = None;
    let mut iwarp = TwinDevice::rxe(2, ip(3));
    (iwarp.name, iwarp.driver) = ("siw0".into(), DriverId::SIW);
    (iwarp.node_type, iwarp.protocol) = (4, "iw");
    Twin::with_devices(vec![
        infiniband,
        without_verbs,
        iwarp,
        TwinDevice::rxe(7, ip(4)),
    ])
}

#[test]
fn netlink_lists_the_devices_that_have_verbs() {
    let devices = list(&zoo());
    assert_eq!(names(&devices), ["mlx5_0", "siw0", "rxe7"]);
    let drivers: Vec<Driver> = devices.iter().map(Device::driver).collect();
    assert_eq!(drivers, [Driver::Mlx5, Driver::Siw, Driver::Rxe]);
    let transports: Vec<Transport> = devices.iter().map(Device::transport).collect();
    assert_eq!(
        transports,
        [Transport::InfiniBand, Transport::Iwarp, Transport::Roce]
    );
    let indices: Vec<Option<u32>> = devices.iter().map(Device::index).collect();
    assert_eq!(indices, [Some(0), Some(2), Some(7)]);
    assert_eq!(devices[2].node_guid(), 0x5054_00ff_fe00_0007);
}

#[test]
fn sysfs_lists_the_same_where_netlink_is_refused() {
    let errnos = [
        libc::EPERM,
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
        libc::EINVAL,
        libc::ENOENT,
        libc::ENOTSOCK,
    ];
    // Miri is slow.
    for &errno in &errnos[..if cfg!(miri) { 1 } else { errnos.len() }] {
        let twin = zoo();
        twin.fail_from(0, errno, |call| *call == Call::Netlink);
        let devices = list(&twin);
        assert_eq!(names(&devices), ["mlx5_0", "siw0", "rxe7"]);
        let drivers: Vec<Driver> = devices.iter().map(Device::driver).collect();
        assert_eq!(drivers, [Driver::Mlx5, Driver::Siw, Driver::Rxe]);
        assert!(devices.iter().all(|device| device.index().is_none()));
        assert_eq!(devices[2].node_guid(), 0x5054_00ff_fe00_0007);
        assert_eq!(devices[2].transport(), Transport::Roce);
        devices[2].open().unwrap();
    }
}

#[test]
fn a_device_that_only_sysfs_knows_comes_last() {
    let twin = zoo();
    // The question about the first device, after that which there are.
    twin.fail(1, libc::EOPNOTSUPP, |call| *call == Call::Netlink);
    let devices = list(&twin);
    assert_eq!(names(&devices), ["siw0", "rxe7", "mlx5_0"]);
    assert_eq!(devices[2].index(), None);
    assert_eq!(devices[2].driver(), Driver::Mlx5);
}

/// A device of another network namespace.
fn elsewhere() -> TwinDevice {
    TwinDevice {
        is_elsewhere: true,
        ..TwinDevice::rxe(0, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)))
    }
}

#[test]
fn devices_of_another_namespace_are_not_listed() {
    let own = TwinDevice::rxe(1, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
    let twin = Twin::with_devices(vec![elsewhere(), own]);
    assert_eq!(names(&list(&twin)), ["rxe1"]);
    let twin = Twin::with_devices(vec![elsewhere()]);
    assert!(list(&twin).is_empty());

    // Where netlink cannot be asked, sysfs is all that there is.
    twin.fail_from(0, libc::EPERM, |call| *call == Call::Netlink);
    let error = list(&twin)[0].open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("network namespace"), "{error}");
}

#[test]
fn a_passing_shortage_is_an_error_and_not_a_shorter_list() {
    for call in 0..4 {
        let twin = zoo();
        twin.fail(call, libc::EMFILE, |call| *call == Call::Netlink);
        let error = discovery::list(twin.registry()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EMFILE), "{error}");
    }
    // The question about namespaces, after that which devices there are.
    let twin = Twin::with_devices(vec![elsewhere()]);
    twin.fail(1, libc::EMFILE, |call| *call == Call::Netlink);
    assert_eq!(
        discovery::list(twin.registry()).unwrap_err().errno(),
        Some(libc::EMFILE)
    );
}

#[test]
fn a_machine_without_devices_has_an_empty_list() {
    let twin = Twin::with_devices(Vec::new());
    assert!(list(&twin).is_empty());
    twin.fail_from(0, libc::EPROTONOSUPPORT, |call| *call == Call::Netlink);
    assert!(list(&twin).is_empty(), "no folder in sysfs either");
}

#[test]
fn it_is_an_error_when_nothing_can_be_asked() {
    let twin = Twin::new();
    twin.fail_from(0, libc::EACCES, |call| {
        matches!(call, Call::Netlink | Call::ListDir(_))
    });
    let error = discovery::list(twin.registry()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("netlink"), "{error}");
}

#[test]
fn a_device_that_goes_away_while_it_is_listed_is_left_out() {
    let twin = zoo();
    // The question about the first of them, after that which there are.
    twin.fail(1, libc::EINVAL, |call| *call == Call::Netlink);
    twin.fail_from(0, libc::ENOENT, |call| {
        *call == Call::ReadFile("/sys/class/infiniband_verbs/uverbs0/ibdev".into())
    });
    assert_eq!(list(&twin).len(), 2);
}

#[test]
fn without_netlink_an_index_leads_to_the_only_device() {
    let refuse = |twin: &Twin| {
        twin.fail_from(0, libc::EPERM, |call| *call == Call::Netlink);
    };
    let one = Twin::new();
    refuse(&one);
    assert_eq!(
        one.registry().context_of_index(0).unwrap().device().name(),
        "rxe0"
    );
    let many = zoo();
    refuse(&many);
    let error = many.registry().context_of_index(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
}

#[test]
fn an_index_that_no_device_has_is_no_device() {
    let error = Twin::new().registry().context_of_index(5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.to_string().contains("index 5"), "{error}");
}

#[test]
fn cut_netlink_messages_lose_devices_and_nothing_else() {
    for length in (0..160).step_by(if cfg!(miri) { 23 } else { 1 }) {
        let twin = zoo();
        twin.tamper_netlink(move |payload| payload.truncate(length));
        assert!(list(&twin).len() <= 4);
    }
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

    #[test]
    fn no_netlink_message_confuses_the_list(
        noise in prop::collection::vec((0usize..160, any::<u8>()), 1..30),
        whole in prop::option::of(prop::collection::vec(any::<u8>(), 0..80)),
    ) {
        let twin = zoo();
        twin.tamper_netlink(move |payload| {
            if let Some(whole) = &whole {
                payload.clone_from(whole);
            }
            for (at, byte) in &noise {
                if let Some(place) = payload.get_mut(*at) {
                    *place = *byte;
                }
            }
        });
        // Whatever it makes of it: it ends, and what is listed can be tried.
        for device in discovery::list(twin.registry()).unwrap_or_default() {
            let _ = device.open();
        }
    }
}

#[test]
fn a_missing_node_is_named_with_its_remedy() {
    let twin = Twin::new();
    twin.change_device(0, |device| device.has_node = false);
    let error = list(&twin)[0].open().unwrap_err();
    assert_eq!(
        (error.kind(), error.errno()),
        (ErrorKind::NoDevice, Some(libc::ENOENT))
    );
    for part in ["rxe0", "/dev/infiniband/uverbs0", "container", "udev"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_forbidden_node_is_named_with_its_remedy() {
    let twin = Twin::new();
    twin.fail(0, libc::EACCES, |call| matches!(call, Call::Open(_)));
    let error = list(&twin)[0].open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    for part in ["/dev/infiniband/uverbs0", "group rdma"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_node_of_another_device_is_refused() {
    for minor in [Some(77), None] {
        let twin = Twin::new();
        let devices = list(&twin);
        twin.change_device(0, |device| device.node_minor = minor);
        let error = devices[0].open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevice);
        assert!(
            error.to_string().contains("list the devices again"),
            "{error}"
        );
        twin.assert_clean();
    }
}

#[test]
fn a_wrong_guess_of_the_driver_is_refused_by_the_kernel() {
    let twin = Twin::new();
    twin.change_device(0, |device| device.driver = DriverId::MLX5);
    twin.fail_from(0, libc::EPERM, |call| *call == Call::Netlink);
    let error = list(&twin)[0].open().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
    twin.assert_clean();
}

fn contexts_made(twin: &Twin) -> usize {
    twin.calls()
        .into_iter()
        .filter(|call| call.is_method(GET_CONTEXT))
        .count()
}

#[test]
fn two_opens_give_one_context() {
    let twin = Twin::new();
    let registry = twin.registry();
    let device = discovery::list(registry).unwrap().remove(0);
    let (first, second) = (device.open().unwrap(), device.open().unwrap());
    let third = registry.context_of_index(0).unwrap();
    assert!(first.same_as(&second) && first.same_as(&third));
    assert_eq!(contexts_made(&twin), 1);
    drop((first, second, third));
    twin.assert_clean();
    device.open().unwrap();
    assert_eq!(contexts_made(&twin), 2, "after the last handle is gone");
    twin.assert_clean();
}

#[test]
fn many_threads_at_first_use_get_one_context() {
    const THREADS: usize = if cfg!(miri) { 4 } else { 32 };
    let twin = Twin::new();
    let registry = twin.registry();
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let start = start.clone();
            thread::spawn(move || {
                start.wait();
                // Both ways that lead to a context.
                match number % 2 {
                    0 => registry.context_of_index(0).unwrap(),
                    _ => discovery::list(registry).unwrap()[0].open().unwrap(),
                }
            })
        })
        .collect();
    let contexts: Vec<Context> = threads.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(contexts.iter().all(|context| context.same_as(&contexts[0])));
    assert_eq!(contexts_made(&twin), 1);
    drop(contexts);
    twin.assert_clean();
}

#[test]
fn a_device_that_replaced_another_gets_a_context_of_its_own() {
    let twin = Twin::new();
    let registry = twin.registry();
    let old = registry.context_of_index(0).unwrap();
    twin.remove_device(0);
    // Made again on the same interface, a device has all of the old one but its index.
    let new = TwinDevice {
        index: 1,
        ..TwinDevice::rxe(0, ADDRESS)
    };
    twin.add_device(new);
    let device = discovery::list(registry).unwrap().remove(0);
    assert_eq!((device.name(), device.index()), ("rxe0", Some(1)));
    let context = device.open().unwrap();
    assert!(!context.same_as(&old));
    assert!(context.same_as(&registry.context_of_index(1).unwrap()));
    let gone = old.port(1).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::DeviceRemoved);
    context.port(1).unwrap();
    drop((old, context));
    twin.assert_clean();
}

/// Where there is no netlink, nothing but the old context itself tells that its device is gone.
#[test]
fn a_device_that_replaced_another_is_told_from_it_without_an_index() {
    let twin = Twin::new();
    twin.fail_from(0, libc::EPERM, |call| *call == Call::Netlink);
    let registry = twin.registry();
    let open = || discovery::list(registry).unwrap().remove(0).open().unwrap();
    let old = open();
    assert_eq!(old.device().index(), None);
    assert!(old.same_as(&open()));
    twin.remove_device(0);
    twin.add_device(TwinDevice {
        index: 1,
        ..TwinDevice::rxe(0, ADDRESS)
    });
    let new = open();
    assert!(!new.same_as(&old));
    assert!(new.same_as(&open()));
    new.port(1).unwrap();
    assert_eq!(old.port(1).unwrap_err().kind(), ErrorKind::DeviceRemoved);
    drop((old, new));
    twin.assert_clean();
}

fn context(twin: &Arc<Twin>) -> Context {
    twin.registry().context_of_index(0).unwrap()
}

#[test]
fn the_gid_table_of_all_ports() {
    let twin = Twin::new();
    let gids = context(&twin).gids().unwrap();
    assert_eq!(gids.len(), 1);
    assert_eq!(
        (gids[0].gid.to_ip(), gids[0].kind),
        (ADDRESS, GidType::RoceV2)
    );
    assert_eq!((gids[0].port, gids[0].index, gids[0].interface), (1, 0, 3));
}

#[test]
fn gid_tables_longer_than_one_command_can_answer() {
    // The attribute that holds the answer has 16 bits for its length: 2047 entries.
    for (ports, gid_table_length) in [(2, 1024), (1, 4096), (255, 0xffff_ffff)] {
        let twin = Twin::new();
        twin.change_device(0, |device| {
            (device.ports, device.gid_table_length) = (ports, gid_table_length);
        });
        assert_eq!(context(&twin).gids().unwrap().len(), 1);
        twin.assert_clean();
    }
}

#[test]
fn more_gids_than_there_is_room_for_are_cut() {
    let twin = Twin::new();
    twin.change_device(0, |device| device.gid_table_length = 2);
    twin.tamper(|call, attr, answer| {
        let method = (ioctl::object::DEVICE, ioctl::device::QUERY_GID_TABLE);
        if call.is_method(method) && attr == ioctl::device::query_gid_table::RESP_NUM_ENTRIES {
            answer.fill(0xff);
        }
    });
    assert_eq!(context(&twin).gids().unwrap().len(), 2);
}

#[test]
fn ports_that_are_not_there_are_named() {
    let twin = Twin::new();
    let context = context(&twin);
    assert_eq!(context.port(1).unwrap().gid_table_length, 1024);
    for port in [0, 2, 255] {
        let error = context.port(port).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("rxe0 has no port {port}")),
            "{error}"
        );
    }
}

#[test]
fn the_device_is_asked_for_its_limits_once() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.forget_calls();
    assert_eq!(context.attr().unwrap().max_cqe(), 32_767);
    assert_eq!(context.attr().unwrap().ports(), 1);
    assert_eq!(twin.calls().len(), 1);
}

#[test]
fn p_keys_come_from_sysfs() {
    let twin = Twin::new();
    let context = context(&twin);
    assert_eq!(context.pkeys(1).unwrap(), [0xffff]);
    let missing = context.pkeys(2).unwrap_err();
    assert!(missing.to_string().contains("ports/2/pkeys"), "{missing}");
    let folder = PathBuf::from("/sys/class/infiniband/rxe0/ports/1/pkeys");
    twin.fail(0, libc::EIO, move |call| {
        *call == Call::ReadFile(folder.join("0"))
    });
    context.pkeys(1).unwrap_err();
}

#[test]
fn asynchronous_events_have_a_descriptor_of_their_own() {
    let twin = Twin::new();
    let context = context(&twin);
    let events = context.async_events().unwrap();
    assert_eq!(twin.census().files, 2);
    assert_eq!(events.try_next_event().unwrap(), None);
    let error = events
        .next_event(Some(Duration::from_millis(1)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(context);
    assert_eq!(twin.census().files, 2, "the events hold the device");
    drop(events);
    twin.assert_clean();
}

#[test]
fn a_refused_context_closes_the_device() {
    let twin = Twin::new();
    twin.fail(0, libc::ENOMEM, |call| call.is_method(GET_CONTEXT));
    let opened: Result<Context> = list(&twin)[0].open();
    assert_eq!(opened.unwrap_err().errno(), Some(libc::ENOMEM));
    twin.assert_clean();
}
