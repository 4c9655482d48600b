//! That the twin notices what it is there to notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use super::{Call, Census, Twin};
use crate::cm::{EventChannel, PortSpace};
use crate::device::Context;
use crate::sys::{Kernel, Memory};
use crate::verbs::{Access, QpAttr};

fn context(twin: &Arc<Twin>) -> Context {
    twin.registry().context_of_index(0).unwrap()
}

/// The text with which a check fails.
fn complaint(twin: &Twin) -> String {
    let checked = catch_unwind(AssertUnwindSafe(|| twin.assert_clean()));
    let payload = checked.expect_err("the twin noticed");
    payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_descriptor_is_open_until_the_program_closes_it() {
    let twin = Twin::new();
    let fd = twin.open(Path::new("/dev/infiniband/rdma_cm")).unwrap();
    assert_eq!(twin.census().files, 1);
    assert!(complaint(&twin).contains("files: 1"));
    drop(fd);
    twin.assert_clean();
}

#[test]
fn forgotten_objects_are_noticed() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let buffer = pd.alloc(64, Access::empty()).unwrap();
    let qp = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap();
    let all = Census {
        files: 1,
        mappings: 4,
        pds: 1,
        mrs: 1,
        cqs: 1,
        qps: 1,
        ..Census::default()
    };
    assert_eq!(twin.census(), all);
    drop((qp, buffer, cq));
    assert_eq!(
        twin.census(),
        Census {
            files: 1,
            pds: 1,
            ..Census::default()
        }
    );
    drop((pd, context));
    twin.assert_clean();
}

#[test]
fn what_the_kernel_has_to_take_back_is_noticed() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.fail_from(0, libc::ENOMEM, Call::is_destroy);
    drop(context.completion_queue(4).build().unwrap());
    drop(context);
    assert!(complaint(&twin).contains("left for the kernel to take back"));
    twin.assert_nothing_left();
}

#[test]
fn memory_that_is_unmapped_while_registered_is_noticed() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let kernel: Arc<dyn Kernel> = twin.clone();
    let memory = Memory::new(&kernel, 64).unwrap();
    let start = memory.address().as_ptr();
    // SAFETY: nothing is posted that would use the region.
    let region = unsafe { pd.register_raw(start, 64, Access::empty()) }.unwrap();
    drop(memory);
    drop((region, pd));
    assert!(complaint(&twin).contains("unmapped while it is registered"));
}

#[test]
fn an_id_that_is_destroyed_before_its_queue_pair_is_noticed() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let pd = context(&twin).alloc_pd().unwrap();
    let cq = pd.context().completion_queue(4).build().unwrap();
    let qp = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap();
    // Handles count from 0 upward.
    twin.note_owner(0, qp.number());
    id.destroy().unwrap();
    drop((qp, cq, pd, id, channel));
    assert!(complaint(&twin).contains("an id was destroyed before its queue pair"));
}

#[test]
fn a_handle_that_names_nothing_is_noticed() {
    let twin = Twin::new();
    let context = context(&twin);
    let cq = context.completion_queue(4).build().unwrap();
    // The twin takes the queue back, and the library is told that it is still there.
    twin.world().objects.all.clear();
    cq.destroy().unwrap_err();
    drop(context);
    assert!(complaint(&twin).contains("names an object that is not there"));
}

#[test]
fn refusals_come_when_they_are_asked_for() {
    let twin = Twin::new();
    let path = Path::new("/sys/class/infiniband/rxe0/node_type");
    twin.fail(1, libc::EIO, |call| matches!(call, Call::ReadFile(_)));
    let outcomes: Vec<_> = (0..3).map(|_| twin.read_file(path).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(twin.refused(), [Call::ReadFile(path.into())]);
    twin.fail_from(1, libc::EIO, |call| matches!(call, Call::ReadFile(_)));
    let outcomes: Vec<_> = (0..3).map(|_| twin.read_file(path).is_ok()).collect();
    assert_eq!(outcomes, [true, false, false]);
    twin.behave();
    assert!(twin.read_file(path).is_ok());
}

#[test]
fn refusals_for_one_thread_leave_others_alone() {
    let twin = Twin::new();
    let path = Path::new("/sys/class/infiniband/rxe0/node_type");
    twin.fail_here(0, libc::EIO, |_| true);
    let other = std::thread::spawn({
        let twin = twin.clone();
        move || twin.read_file(path).is_ok()
    });
    assert!(other.join().unwrap());
    assert!(twin.read_file(path).is_err());
}

#[test]
fn ring_memory_can_be_mapped_once() {
    let twin = Twin::new();
    let context = context(&twin);
    let cq = context.completion_queue(4).build().unwrap();
    assert!(
        context.map(4096, 4096).is_err(),
        "the completion queue's offer is taken up"
    );
    drop(cq);
    drop(context);
    twin.assert_clean();
}
