//! Multicast groups of a queue pair.

use std::net::Ipv4Addr;

use rdmacm::{ErrorKind, Gid, QpAttr};

use super::{datagram_qp, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, Usage, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        groups_are_joined_and_left,
        a_queue_pair_goes_while_it_is_attached,
        the_kernel_refuses_what_the_library_refuses,
    ]
}

fn group(last: u8) -> Gid {
    Gid(Ipv4Addr::new(239, 1, 1, last).to_ipv6_mapped().octets())
}

fn groups_are_joined_and_left() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let (qp, _cq) = datagram_qp(&pd)?;
    for last in 1..4 {
        qp.attach_multicast(group(last), 0)?;
        qp.attach_multicast(group(last), 0)?;
    }
    assert!(qp.detach_multicast(group(2), 0)?);
    assert!(!qp.detach_multicast(group(2), 0)?);
    assert!(!qp.detach_multicast(group(9), 0)?);
    qp.attach_multicast(group(2), 0)?;
    for last in 1..4 {
        assert!(qp.detach_multicast(group(last), 0)?);
    }
    assert!(qp.destroy()?);
    Ok(Outcome::Pass)
}

/// The kernel would refuse the destroy.
fn a_queue_pair_goes_while_it_is_attached() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let before = Usage::now()?;
    for round in 0..20 {
        let (qp, cq) = datagram_qp(&pd)?;
        qp.attach_multicast(group(1), 0)?;
        qp.attach_multicast(group(2), 0)?;
        if round % 2 == 0 {
            assert!(qp.destroy()?);
            let refused = qp.attach_multicast(group(3), 0);
            assert_eq!(
                refused.map_err(|error| error.kind()),
                Err(ErrorKind::Destroyed)
            );
        }
        drop((cq, qp));
    }
    before.wait_until_restored(crate::harness::CLEANUP_TIME)?;
    pd.dealloc()?;
    Ok(Outcome::Pass)
}

fn the_kernel_refuses_what_the_library_refuses() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let (qp, cq) = datagram_qp(&pd)?;
    let nobody = Gid(Ipv4Addr::new(10, 1, 1, 1).to_ipv6_mapped().octets());
    let connected = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
    for refused in [
        qp.attach_multicast(nobody, 0),
        connected.attach_multicast(group(1), 0),
    ] {
        let error = refused.expect_err("not a group, or not for datagrams");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    drop(queue(pd.context(), 4)?);
    Ok(Outcome::Pass)
}
