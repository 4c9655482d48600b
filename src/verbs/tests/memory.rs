//! Memory regions: access, change, memory of other devices.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{Command, ioctl};

use super::{ALL, ends};
use crate::device::{AtomicCapability, Context, DeviceCaps, OdpOperations};
use crate::error::ErrorKind;
use crate::fastpath::CompletionStatus;
use crate::sys::twin::{Twin, TwinDevice};
use crate::verbs::mr::Range;
use crate::verbs::{Access, Inbox, Mr, MrChange, Pd, RegisteredBuffer};

/// The context of a device that is changed from what rxe is.
fn context_of(change: impl FnOnce(&mut TwinDevice)) -> (Arc<Twin>, Context) {
    let mut device = TwinDevice::rxe(0, [10, 0, 0, 1].into());
    change(&mut device);
    let twin = Twin::with_devices(vec![device]);
    let context = twin.registry().context_of_index(0).unwrap();
    (twin, context)
}

fn rxe() -> (Arc<Twin>, Context) {
    context_of(|_| {})
}

#[test]
fn access_that_the_device_lacks_is_refused_by_name() {
    let (twin, context) = context_of(|device| device.capabilities = TwinDevice::RXE_6_1);
    let pd = context.alloc_pd().unwrap();
    context.attr().unwrap();
    twin.forget_calls();
    for (access, name) in [
        (Access::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
        (Access::FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
        (Access::ON_DEMAND, "ON_DEMAND"),
    ] {
        let error = pd.alloc(64, access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = pd.alloc(64, Access::ZERO_BASED).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let asked = twin.calls();
    assert!(!asked.iter().any(|call| call.is_write(Command::REG_MR)));
    // What no device says it has is the kernel's to refuse.
    let error = pd.alloc(64, Access::HUGETLB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("HUGETLB"), "{error}");
}

#[test]
fn registered_memory_stays_until_nobody_reads_it() {
    let (twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let mut buffer = RegisteredBuffer::new(&pd, 5000).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0) && buffer.len() == 5000);
    buffer.as_mut_slice().unwrap()[4999] = 7;
    let share = buffer.hold();
    assert!(buffer.is_busy() && buffer.is_held_by(&share));
    let error = buffer.as_mut_slice().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(buffer[4999], 7, "it can still be looked at");
    drop(share);
    buffer.as_mut_slice().unwrap()[0] = 8;
    let share = buffer.hold();
    twin.forget_calls();
    drop(buffer);
    assert!(twin.calls().is_empty(), "the registration stays");
    drop(share);
    assert!(!twin.calls().is_empty(), "the registration goes");
    let other = context.alloc_pd().unwrap();
    let buffer = RegisteredBuffer::new(&pd, 1).unwrap();
    assert!(buffer.is_of(&pd) && !buffer.is_of(&other));
}

#[test]
fn ranges_of_registered_memory_end_where_it_does() {
    let (_twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let buffer = RegisteredBuffer::new(&pd, 100).unwrap();
    assert_eq!(buffer.range(..).unwrap(), 0..100);
    assert_eq!(buffer.range(10..=19).unwrap(), 10..20);
    assert_eq!(buffer.range(100..).unwrap(), 100..100);
    assert!(buffer.range(..101).is_err() && buffer.range(..=usize::MAX).is_err());
    // In this order it is a mistake to be told of.
    assert!(buffer.range(std::ops::Range { start: 5, end: 4 }).is_err());
    assert_eq!(buffer.segment(10..30).unwrap().len(), 20);
}

#[test]
fn a_view_keeps_the_memory_and_shrinks() {
    let (_twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let inbox = Inbox::new(&pd, 8192).unwrap();
    assert!(inbox.view(8000, 193).is_err() && inbox.view(usize::MAX, 2).is_err());
    let mut view = inbox.view(8000, 192).unwrap();
    drop(inbox);
    assert_eq!(view.len(), 192);
    let mut bytes = [1; 200];
    assert_eq!(view.copy_to(&mut bytes), 192);
    assert_eq!((bytes[191], bytes[192]), (0, 1));
    view.advance(190);
    let (mut read, write) = std::io::pipe().unwrap();
    assert_eq!(view.write_to(write.as_fd()).unwrap(), 2);
    drop(write);
    let mut piped = Vec::new();
    read.read_to_end(&mut piped).unwrap();
    assert_eq!(piped, [0, 0]);
    view.advance(2);
    assert_eq!((view.len(), view.copy_to(&mut bytes)), (0, 0));
}

#[test]
fn access_that_the_device_has_is_taken() {
    let (_twin, context) = context_of(|device| device.has_paging = true);
    let pd = context.alloc_pd().unwrap();
    let all = ALL | Access::MW_BIND | Access::FLUSH_GLOBAL | Access::ON_DEMAND;
    pd.alloc(64, all | Access::RELAXED_ORDERING).unwrap();
    let error = pd.alloc(64, Access::FLUSH_PERSISTENT).unwrap_err();
    assert!(error.to_string().contains("persistent memory"), "{error}");
}

#[test]
fn wishes_are_kept_from_a_kernel_that_does_not_know_them() {
    let wish = Access::from_bits_retain(1 << 29) | Access::RELAXED_ORDERING;
    let (_old, context) = context_of(|device| device.core_support = 0);
    let pd = context.alloc_pd().unwrap();
    let mut buffer = pd.alloc(64, Access::LOCAL_WRITE | wish).unwrap();
    buffer.set_access(Access::LOCAL_WRITE | wish).unwrap();
    // A demand is none, whatever its number.
    let demand = Access::from_bits_retain(1 << 30);
    assert!(pd.alloc(64, demand).is_err());
}

#[test]
fn a_buffer_gets_other_access() {
    let twin = Twin::new();
    let (mut near, far) = ends(&twin);
    let mut target = far.pd.alloc(64, ALL).unwrap();
    let mut write = |target: &crate::verbs::Buffer| {
        let mut batch = near.qp.send_half().batch();
        let request = batch.write(1, target.remote()).signaled();
        request.inline(b"over").unwrap();
        batch.submit().unwrap();
        near.status()
    };
    assert_eq!(write(&target), CompletionStatus::Success);
    target.set_access(Access::LOCAL_WRITE).unwrap();
    assert_eq!(write(&target), CompletionStatus::RemoteAccess);
}

#[test]
fn a_region_moves_to_another_domain() {
    let (twin, context) = rxe();
    let (old, new) = (context.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    let mut buffer = old.alloc(64, ALL).unwrap();
    let before = buffer.slice(..).unwrap();
    buffer.set_pd(&new).unwrap();
    assert_eq!(buffer.slice(..).unwrap(), before, "rxe keeps the keys");
    // The region holds the new domain and no longer the old one.
    let domains = twin.census().pds;
    drop(old);
    assert_eq!(twin.census().pds, domains - 1);
    assert_eq!(new.dealloc().unwrap_err().errno(), Some(libc::EBUSY));
    drop(buffer);
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_change_that_makes_no_sense_is_refused_before_the_kernel_is_asked() {
    let twin = Twin::with_devices(vec![
        TwinDevice::rxe(0, [10, 0, 0, 1].into()),
        TwinDevice::rxe(1, [10, 0, 0, 2].into()),
    ]);
    let [pd, foreign]: [Pd; 2] = [0, 1].map(|index| {
        let context = twin.registry().context_of_index(index).unwrap();
        context.alloc_pd().unwrap()
    });
    let mut buffer = pd.alloc(64, ALL).unwrap();
    let mut mr = Mr::register(&pd, Range::of(0x1000, 64), Access::empty(), None).unwrap();
    twin.forget_calls();
    let address = std::ptr::without_provenance_mut(0x1000);
    let mut change = |change: MrChange<'_>| mr.change(&change);
    for (text, outcome) in [
        ("another device", buffer.set_pd(&foreign)),
        ("LOCAL_WRITE", buffer.set_access(Access::REMOTE_WRITE)),
        ("nothing", change(MrChange::new())),
        ("one byte", change(MrChange::new().range(address, 0))),
        ("beyond", change(MrChange::new().range(address, usize::MAX))),
    ] {
        let error = outcome.expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
}

#[test]
fn what_the_driver_cannot_change_is_named() {
    let (twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let mut mr = Mr::register(&pd, Range::of(0x1000, 64), Access::empty(), None).unwrap();
    let before = mr.remote();
    let part = std::ptr::without_provenance_mut(0x1000);
    let error = mr.change(&MrChange::new().range(part, 32)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("TRANSLATION"), "{error}");
    assert_eq!((mr.remote(), mr.len()), (before, 64), "it is as it was");
    twin.fail(0, libc::ENOMEM, |call| call.is_write(Command::REREG_MR));
    let error = mr.change(&MrChange::new().access(Access::empty()));
    assert!(error.unwrap_err().to_string().contains("ulimit -l"));
}

#[test]
fn memory_has_the_addresses_that_were_asked_for() {
    let (_twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let register = |iova| {
        let (start, length) = (0x1010, 64);
        let range = Range {
            start,
            length,
            iova,
        };
        Mr::register(&pd, range, Access::REMOTE_READ, None)
    };
    assert_eq!(register(0x7010).unwrap().remote().address, 0x7010);
    register(u64::MAX - 0xfef).unwrap();
    for iova in [0x7011, 0x100f] {
        let error = register(iova).unwrap_err();
        assert!(error.to_string().contains("iova"), "{error}");
    }
    let end = Range {
        start: 0x0ff0,
        length: 17,
        iova: u64::MAX - 15,
    };
    let error = Mr::register(&pd, end, Access::empty(), None).unwrap_err();
    assert!(error.to_string().contains("beyond the end"), "{error}");
}

#[test]
fn memory_of_another_device_is_registered_where_that_is_possible() {
    let file = File::open("/dev/null").unwrap();
    let (_twin, context) = rxe();
    let pd = context.alloc_pd().unwrap();
    let error = pd.register_dmabuf(&file, 0, 64, 0, Access::LOCAL_WRITE);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");

    let (twin, context) = context_of(|device| device.has_dmabuf = true);
    let pd = context.alloc_pd().unwrap();
    let mr = pd.register_dmabuf(&file, 4096, 64, 0x1_0000, Access::LOCAL_WRITE);
    let mr = mr.unwrap();
    assert_eq!((mr.remote().address, mr.len()), (0x1_0000, 64));
    assert_ne!((mr.lkey(), mr.rkey()), (0, 0));
    let error = pd.register_dmabuf(&file, 1, 64, 0, Access::empty());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    drop((mr, pd));
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_device_tells_its_abilities() {
    let (_twin, context) = context_of(|device| {
        device.has_paging = true;
        device.completion_vectors = 7;
    });
    let attr = context.attr().unwrap();
    let caps = attr.caps();
    // The one from the older field, the others from the newer.
    assert!(caps.contains(DeviceCaps::SRQ_RESIZE | DeviceCaps::FLUSH_GLOBAL));
    assert!(!caps.contains(DeviceCaps::XRC));
    let paging = attr.on_demand_paging();
    assert!(paging.is_supported && !paging.is_implicit_supported);
    assert!(paging.rc.contains(OdpOperations::READ));
    assert_eq!(paging.ud, OdpOperations::empty());
    assert_eq!(attr.atomic_capability(), AtomicCapability::Device);
    assert_eq!(AtomicCapability::from_kernel(9), AtomicCapability::Other(9));
    assert_eq!((attr.max_mr(), attr.page_sizes() & 0x1fff), (524_287, 4096));
    assert_eq!(context.completion_vectors(), 7);
}

#[test]
fn an_entry_of_the_gid_table_is_asked_for_by_its_place() {
    let (twin, context) = rxe();
    let table = context.gids().unwrap();
    assert_eq!(context.gid(1, 0).unwrap(), Some(table[0]));
    assert_eq!(context.gid(1, 1023).unwrap(), None);
    for (port, index) in [(2, 0), (0, 0), (1, 1024)] {
        let error = context.gid(port, index).unwrap_err();
        assert!(error.to_string().contains("no port"), "{error}");
    }
    let asks = ioctl::device::QUERY_GID_ENTRY;
    twin.fail(0, libc::EIO, move |call| {
        call.is_method((ioctl::object::DEVICE, asks))
    });
    let error = context.gid(1, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved);
}
