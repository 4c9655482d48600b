//! Ending things at any moment of their events' lives: never a hang, and nothing is left.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::datagrams::{furnish, resolve_addr};
use super::groups::GROUPS;
use super::pair::{self, expect};
use crate::cm::{CmId, Event, EventChannel, Membership};
use crate::error::Result;
use crate::sys::twin::Twin;
use crate::verbs::{Cq, Qp};

/// Much longer than anything here takes, however busy the machine is.
const HANG: Duration = Duration::from_secs(60);

/// Fails when `act` does not end.
#[track_caller]
fn must_end(what: &str, act: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let actor = thread::spawn(move || {
        act();
        let _ = done.send(());
    });
    match ended.recv_timeout(HANG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        _ => actor.join().expect(what),
    }
}

/// What is ended: an id in a group, with a queue pair.
struct Scene {
    channel: EventChannel,
    id: CmId,
    elsewhere: EventChannel,
    _queues: (Qp, Cq),
}

fn scene(twin: &Arc<Twin>) -> Scene {
    let (channel, id) = resolve_addr(twin.registry()).unwrap();
    let _queues = furnish(twin, &id).unwrap();
    for group in GROUPS {
        id.join_multicast(group, Membership::Full).unwrap();
    }
    let elsewhere = EventChannel::open_on(channel.registry()).unwrap();
    Scene {
        channel,
        id,
        elsewhere,
        _queues,
    }
}

type Step = fn(&CmId, &EventChannel) -> Result<()>;

const STEPS: [(&str, Step); 4] = [
    ("destroy", |id, _| id.destroy()),
    ("migrate", |id, elsewhere| id.migrate(elsewhere)),
    ("leave", |id, _| id.leave_multicast(GROUPS[0]).map(drop)),
    ("destroy_qp", |id, _| id.destroy_qp().map(drop)),
];

#[test]
fn with_events_that_nobody_has_read() {
    for (name, step) in STEPS {
        must_end(name, move || {
            let twin = Twin::new();
            let scene = scene(&twin);
            step(&scene.id, &scene.elsewhere).unwrap();
            drop(scene);
            twin.assert_clean();
        });
    }
}

#[test]
fn with_events_that_are_read_and_held() {
    for (name, step) in STEPS {
        must_end(name, move || {
            let twin = Twin::new();
            let scene = scene(&twin);
            let held: Vec<Event> = GROUPS
                .map(|_| expect(&scene.channel, "MULTICAST_JOIN").unwrap())
                .into();
            // As a handler does it that has the event only.
            step(held[0].id(), &scene.elsewhere).unwrap();
            drop(scene);
            drop(held);
            twin.assert_clean();
        });
    }
}

#[test]
fn from_another_thread_than_the_one_that_reads() {
    for (name, step) in STEPS {
        must_end(name, move || {
            let twin = Twin::new();
            let scene = scene(&twin);
            let read = thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let mut read = Vec::new();
                    while let Ok(event) = scene.channel.next_event(None) {
                        read.push(event);
                    }
                    read
                });
                step(&scene.id, &scene.elsewhere).unwrap();
                scene.channel.close();
                reader.join().unwrap()
            });
            assert!(read.iter().all(|event| event.id() == &scene.id));
            drop((scene, read));
            twin.assert_clean();
        });
    }
}

#[test]
fn one_step_after_the_other_in_any_order() {
    let mut order: Vec<usize> = (0..STEPS.len()).collect();
    super::teardown::for_each_permutation(&mut order, 0, &mut |order| {
        let order = order.to_vec();
        must_end("a sequence", move || {
            let twin = Twin::new();
            let scene = scene(&twin);
            let held = expect(&scene.channel, "MULTICAST_JOIN").unwrap();
            let mut is_destroyed = false;
            for (name, step) in order.iter().map(|at| STEPS[*at]) {
                let outcome = step(held.id(), &scene.elsewhere);
                // A queue pair that is gone with its id is no error.
                let is_fine = !is_destroyed || name == "destroy_qp";
                assert_eq!(outcome.is_ok(), is_fine, "{name}: {outcome:?}");
                is_destroyed |= name == "destroy";
            }
            drop((scene, held));
            twin.assert_clean();
        });
    });
}

#[test]
fn both_ends_of_a_connection_while_their_events_wait() {
    type End = fn(pair::Pair) -> Vec<Event>;
    let ends: [(&str, End); 3] = [
        ("destroyed unread", |pair| {
            pair.active.id.disconnect().unwrap();
            pair.passive.id.destroy().unwrap();
            pair.active.id.destroy().unwrap();
            Vec::new()
        }),
        ("destroyed by who handles the event", |pair| {
            pair.active.id.disconnect().unwrap();
            let event = expect(&pair.passive.channel, "DISCONNECTED").unwrap();
            event.id().destroy().unwrap();
            vec![event]
        }),
        ("migrated with the event held", |pair| {
            pair.active.id.disconnect().unwrap();
            let event = expect(&pair.passive.channel, "DISCONNECTED").unwrap();
            event.id().migrate(&pair.active.channel).unwrap();
            event.id().disconnect().unwrap();
            vec![event, expect(&pair.active.channel, "DISCONNECTED").unwrap()]
        }),
    ];
    for (name, end) in ends {
        must_end(name, move || {
            let twin = Twin::new();
            let pair = pair::connect(&twin, twin.registry()).unwrap();
            drop(end(pair));
            twin.assert_clean();
        });
    }
}
