//! The tables under several threads. Under the thread sanitizer (`ci/check-memory thread`) these
//! are its material.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::datagrams::{furnish, resolve_addr};
use super::groups::GROUPS;
use super::pair::{self, TIMEOUT, address};
use crate::cm::{EventChannel, Membership, PortSpace};
use crate::device::Gid;
use crate::error::ErrorKind;
use crate::sys::twin::Twin;
use crate::verbs::{QpModify, QpState};

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 2 } else { 40 };

#[test]
fn ids_and_groups_come_and_go_while_two_threads_read() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let read = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Ok(event) = channel.next_event(None) {
                    let _ = event.id().leave_multicast(GROUPS[0]);
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let makers = [(); THREADS].map(|()| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let id = channel.create_id(PortSpace::Udp).unwrap();
                    id.resolve_addr(None, address(), TIMEOUT).unwrap();
                    // The device is known once somebody has read the event.
                    while id.context().is_err() {
                        thread::yield_now();
                    }
                    for group in GROUPS {
                        id.join_multicast(group, Membership::Full).unwrap();
                    }
                    if round % 2 == 0 {
                        id.destroy().unwrap();
                    }
                }
            })
        });
        for maker in makers {
            maker.join().unwrap();
        }
        channel.close();
    });
    assert!(read.into_inner() >= THREADS * ROUNDS, "one each at least");
    drop(channel);
    twin.assert_clean();
}

#[test]
fn a_queue_pair_that_is_destroyed_is_named_by_no_command_any_more() {
    for _ in 0..ROUNDS {
        let twin = Twin::new();
        let (channel, id) = resolve_addr(twin.registry()).unwrap();
        let (qp, cq) = furnish(&twin, &id).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // The twin notes a command that names what is gone.
                    while qp.modify(&QpModify::to(QpState::Rts)).is_ok() {}
                });
            }
            scope.spawn(|| {
                while qp.attach_multicast(group(), 0).is_ok() {
                    let _ = qp.detach_multicast(group(), 0);
                }
            });
            scope.spawn(|| assert!(id.destroy_qp().unwrap()));
        });
        let gone = qp.query().unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Destroyed);
        drop((channel, id, qp, cq));
        twin.assert_clean();
    }
}

fn group() -> Gid {
    let std::net::IpAddr::V4(group) = GROUPS[0].ip() else {
        unreachable!("it is an IPv4 group")
    };
    Gid(group.to_ipv6_mapped().octets())
}

#[test]
fn connections_live_side_by_side() {
    // Each on a kernel of its own; the tables are shared by all.
    let twins: Vec<Arc<Twin>> = (0..THREADS).map(|_| Twin::new()).collect();
    thread::scope(|scope| {
        for twin in &twins {
            scope.spawn(|| {
                for _ in 0..ROUNDS / 4 {
                    pair::live(twin, twin.registry()).unwrap();
                }
            });
        }
    });
    for twin in twins {
        twin.assert_clean();
    }
}

#[test]
fn who_destroys_an_id_first_is_the_only_one() {
    for _ in 0..ROUNDS {
        let twin = Twin::new();
        let (channel, id) = pair::resolve(twin.registry()).unwrap();
        let destroyed: usize = thread::scope(|scope| {
            let rivals = [(); THREADS].map(|()| scope.spawn(|| id.destroy().is_ok()));
            rivals
                .into_iter()
                .map(|rival| usize::from(rival.join().unwrap()))
                .sum()
        });
        assert_eq!(destroyed, 1);
        drop((channel, id));
        twin.assert_clean();
    }
}
