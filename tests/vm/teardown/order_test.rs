//! The checker of the order reports what is wrong, and nothing else.

use super::order::{Checked, Kind, Object, Step, check};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        accepts_the_right_order,
        reports_an_id_before_its_queue_pair,
        reports_even_an_attempt,
        reports_what_is_left,
        reports_what_goes_with_the_device,
        leaves_the_shared_protection_domain,
        reports_a_second_destroy,
        reports_a_queue_pair_of_unknown_owner,
        tells_owners_apart,
    ]
}

const THREAD: i32 = 1;

fn qp(handle: u32) -> Object {
    object(Kind::QueuePair, handle)
}

fn object(kind: Kind, handle: u32) -> Object {
    Object {
        kind,
        device: 5,
        handle,
    }
}

fn new_id(id: u32) -> Step {
    Step::NewId { thread: THREAD, id }
}

fn new_qp(handle: u32) -> Step {
    Step::NewQp {
        thread: THREAD,
        qp: qp(handle),
    }
}

fn destroy_id(id: u32) -> Step {
    Step::DestroyId { id, done: true }
}

fn destroy_qp(handle: u32) -> Step {
    Step::DestroyQp {
        qp: qp(handle),
        done: true,
    }
}

/// Checks that the steps have just these faults.
fn expect_faults(steps: &[Step], faults: &[&str]) -> TestResult {
    let found = check(steps.iter().copied()).expect_err("there are faults");
    assert_eq!(found, faults, "{steps:?}");
    Ok(Outcome::Pass)
}

fn accepts_the_right_order() -> TestResult {
    // A listener, two connections after each other with the same numbers, one refused destroy.
    let connection = [new_id(2), new_qp(7), destroy_qp(7), destroy_id(2)];
    let refused = Step::DestroyQp {
        qp: qp(7),
        done: false,
    };
    let mut steps = vec![new_id(1), Step::Listen { id: 1 }];
    steps.extend(connection);
    steps.extend([new_id(2), new_qp(7), refused, destroy_qp(7), destroy_id(2)]);
    steps.push(destroy_id(1));
    assert_eq!(check(steps), Ok(Checked { ids: 3, qps: 2 }));
    Ok(Outcome::Pass)
}

fn reports_an_id_before_its_queue_pair() -> TestResult {
    let steps = [new_id(1), new_qp(7), destroy_id(1), destroy_qp(7)];
    let fault = "id 1 is to be destroyed before its queue pair 7 of device 5";
    expect_faults(&steps, &[fault])
}

fn reports_even_an_attempt() -> TestResult {
    let refused = Step::DestroyId { id: 1, done: false };
    let steps = [new_id(1), new_qp(7), refused, destroy_qp(7), destroy_id(1)];
    let fault = "id 1 is to be destroyed before its queue pair 7 of device 5";
    expect_faults(&steps, &[fault])
}

fn reports_what_is_left() -> TestResult {
    let steps = [new_id(1), new_qp(7)];
    let faults = ["queue pair 7 of device 5 was left", "id 1 was left"];
    expect_faults(&steps, &faults)
}

fn reports_what_goes_with_the_device() -> TestResult {
    let domain = |handle| Step::New(object(Kind::ProtectionDomain, handle));
    let close = Step::Close { device: 5 };
    let steps = [
        domain(1),
        domain(2),
        Step::New(object(Kind::MemoryRegion, 3)),
        Step::New(object(Kind::CompletionQueue, 4)),
        Step::Destroyed(object(Kind::CompletionQueue, 4)),
        close,
    ];
    let faults = [
        "protection domain 2 of device 5 was left",
        "memory region 3 of device 5 was left",
    ];
    expect_faults(&steps, &faults)
}

fn leaves_the_shared_protection_domain() -> TestResult {
    let domain = Step::New(object(Kind::ProtectionDomain, 1));
    let close = Step::Close { device: 5 };
    assert_eq!(check([domain, close, domain]), Ok(Checked::default()));
    Ok(Outcome::Pass)
}

fn reports_a_second_destroy() -> TestResult {
    let attempt = Step::DestroyQp {
        qp: qp(7),
        done: false,
    };
    let steps = [
        new_id(1),
        new_qp(7),
        destroy_qp(7),
        attempt,
        destroy_id(1),
        destroy_id(1),
    ];
    let faults = [
        "queue pair 7 of device 5 is to be destroyed, but does not exist",
        "id 1 is to be destroyed, but does not exist",
    ];
    expect_faults(&steps, &faults)
}

fn reports_a_queue_pair_of_unknown_owner() -> TestResult {
    let listener = [
        new_id(1),
        Step::Listen { id: 1 },
        new_qp(7),
        destroy_qp(7),
        destroy_id(1),
    ];
    let faults = [
        "queue pair 7 of device 5 was made for no id",
        "queue pair 7 of device 5 is to be destroyed, but does not exist",
    ];
    expect_faults(&listener, &faults)
}

fn tells_owners_apart() -> TestResult {
    // The wrong id of two goes first.
    let steps = [
        new_id(1),
        new_qp(7),
        new_id(2),
        new_qp(8),
        destroy_qp(8),
        destroy_id(1),
        destroy_qp(7),
        destroy_id(2),
    ];
    let fault = "id 1 is to be destroyed before its queue pair 7 of device 5";
    expect_faults(&steps, &[fault])
}
