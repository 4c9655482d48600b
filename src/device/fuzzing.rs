//! Fuzz targets: what the kernel says of its devices.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{AsyncEventDesc, AsyncEventType, CompEventDesc, ioctl};
use zerocopy::FromBytes;

use super::{AsyncEvent, Context, Driver, Registry, devices, served_addresses};
use crate::sys::hostile::{Discovery, Hostile};

thread_local! {
    static KERNEL: Arc<Hostile> = {
        let kernel = Hostile::new();
        Registry::of_stand_in(kernel.clone()).stand_in();
        kernel
    };
}

/// Puts a kernel that answers from the input in the place of the running one, for the current
/// thread.
pub(crate) fn machine(input: &[u8], discovery: Discovery) -> Arc<Hostile> {
    let kernel = KERNEL.with(Arc::clone);
    kernel.answer_from(input, discovery);
    kernel
}

/// The one device of a kernel whose list is fixed, unless the input refuses to open it.
pub(crate) fn open_device() -> Option<Context> {
    devices().ok()?.first()?.open().ok()
}

fn contains(input: &[u8], part: &[u8]) -> bool {
    part.is_empty() || input.windows(part.len()).any(|window| window == part)
}

/// The list of devices, out of netlink messages and the files of sysfs, and opening what is listed.
/// Nothing is listed that the kernel did not say.
pub fn device_list(input: &[u8]) {
    machine(input, Discovery::Input);
    for device in devices().unwrap_or_default() {
        assert!(contains(input, device.name().as_bytes()), "{device:?}");
        match device.index() {
            Some(index) => assert!(contains(input, &index.to_ne_bytes()), "{device:?}"),
            None => assert!(device.node.starts_with("uverbs"), "{device:?}"),
        }
        let opened = device.open();
        assert!(opened.is_err() || matches!(device.driver(), Driver::Rxe | Driver::Siw));
    }
    let _ = served_addresses(Registry::of_this_machine());
}

/// What a device says of itself, its ports, and its tables, to either form of the commands.
pub fn device_queries(input: &[u8]) {
    query_device(&machine(input, Discovery::Rxe));
    query_device(&older_machine(input));
}

/// The same kernel without the ioctl.
fn older_machine(input: &[u8]) -> Arc<Hostile> {
    let kernel = machine(input, Discovery::Rxe);
    kernel.refuse_ioctls();
    kernel
}

fn query_device(kernel: &Hostile) {
    let Some(context) = open_device() else { return };
    kernel.discover_from(Discovery::Input);
    if let Ok(attr) = context.attr() {
        assert!(!format!("{attr:?}").is_empty());
    }
    for number in [0, 1, 255] {
        let Ok(port) = context.port(number) else {
            continue;
        };
        for mtu in [port.max_mtu, port.active_mtu] {
            assert!(
                matches!(mtu.bytes(), 0 | 256 | 512 | 1024 | 2048 | 4096),
                "{port:?}"
            );
        }
    }
    let gids = context.gids().unwrap_or_default();
    // The room that a command has for its answer.
    assert!(gids.len() * size_of::<ioctl::GidEntry>() <= usize::from(u16::MAX));
    for entry in gids {
        assert!(!format!("{entry:?} {}", entry.gid.to_ip()).is_empty());
    }
    assert!(
        context.pkeys(1).unwrap_or_default().len() < 8,
        "more than the folder has"
    );
    drop(context);
    assert_eq!(kernel.mappings(), 0);
}

/// Records of asynchronous events, and of events of completion channels. Each is kept whole: its
/// number and what it is about.
pub fn device_events(input: &[u8]) {
    read_events(&machine(input, Discovery::Rxe));
    read_events(&older_machine(input));
}

fn read_events(kernel: &Hostile) {
    let Some(context) = open_device() else { return };
    let (Ok(events), Ok(channel)) = (context.async_events(), context.completion_channel()) else {
        return;
    };
    for step in kernel.steps(64) {
        if step & 1 == 0 {
            if let Ok(Some(event)) = events.try_next_event() {
                let record = AsyncEventDesc::read_from_bytes(&kernel.last_record()).unwrap();
                let expected = (record.event_type, record.element);
                let told = number_and_element(event);
                // A whole device has no number.
                assert!(
                    told == expected || (event, told.0) == (AsyncEvent::DeviceFatal, expected.0),
                    "{event:?}"
                );
            }
        } else if let Ok(Some(token)) = channel.try_next_event() {
            let record = CompEventDesc::read_from_bytes(&kernel.last_record()).unwrap();
            assert_eq!(token.to_kernel(), record.cq_handle);
        }
    }
}

/// An event as the kernel numbers it.
fn number_and_element(event: AsyncEvent) -> (u32, u64) {
    use AsyncEvent as E;
    use AsyncEventType as T;
    let (number, element) = match event {
        E::CqError(cq) => (T::CQ_ERR, cq.to_kernel()),
        E::QpFatal(qp) => (T::QP_FATAL, qp.to_kernel()),
        E::QpRequestError(qp) => (T::QP_REQ_ERR, qp.to_kernel()),
        E::QpAccessError(qp) => (T::QP_ACCESS_ERR, qp.to_kernel()),
        E::CommunicationEstablished(qp) => (T::COMM_EST, qp.to_kernel()),
        E::SendQueueDrained(qp) => (T::SQ_DRAINED, qp.to_kernel()),
        E::PathMigrated(qp) => (T::PATH_MIG, qp.to_kernel()),
        E::PathMigrationError(qp) => (T::PATH_MIG_ERR, qp.to_kernel()),
        E::LastWqeReached(qp) => (T::QP_LAST_WQE_REACHED, qp.to_kernel()),
        E::SrqError(srq) => (T::SRQ_ERR, srq.to_kernel()),
        E::SrqLimitReached(srq) => (T::SRQ_LIMIT_REACHED, srq.to_kernel()),
        E::PortActive { port } => (T::PORT_ACTIVE, port.into()),
        E::PortError { port } => (T::PORT_ERR, port.into()),
        E::LidChange { port } => (T::LID_CHANGE, port.into()),
        E::PkeyChange { port } => (T::PKEY_CHANGE, port.into()),
        E::SmChange { port } => (T::SM_CHANGE, port.into()),
        E::ClientReregister { port } => (T::CLIENT_REREGISTER, port.into()),
        E::GidChange { port } => (T::GID_CHANGE, port.into()),
        E::SpeedChange { port } => (T::DEVICE_SPEED_CHANGE, port.into()),
        E::DeviceFatal => (T::DEVICE_FATAL, 0),
        E::Other { kind, element } => (T(kind), element),
    };
    (number.0, element)
}
