//! Ending waits from another thread.

use std::thread;
use std::time::Duration;

use super::pair;
use crate::cm::{EventChannel, PortSpace};
use crate::error::ErrorKind;
use crate::sys::twin::Twin;

/// Long enough for the other thread to be asleep, mostly; the outcome is the same when it is not.
const A_WHILE: Duration = Duration::from_millis(30);

#[test]
fn closing_a_channel_ends_the_waits_of_all_readers() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    thread::scope(|scope| {
        let readers = [(); 3].map(|()| scope.spawn(|| channel.next_event(None).unwrap_err()));
        thread::sleep(A_WHILE);
        channel.close();
        for reader in readers {
            assert_eq!(reader.join().unwrap().kind(), ErrorKind::Closed);
        }
    });
    let late = channel.try_next_event().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed);
}

#[test]
fn ids_of_a_closed_channel_can_be_destroyed_and_moved() {
    let twin = Twin::new();
    let registry = twin.registry();
    let (closed, open) = (
        EventChannel::open_on(registry).unwrap(),
        EventChannel::open_on(registry).unwrap(),
    );
    let [first, second] = [(); 2].map(|()| closed.create_id(PortSpace::Tcp).unwrap());
    closed.close();
    first.destroy().unwrap();
    second.migrate(&open).unwrap();
    assert!(open.try_next_event().unwrap().is_none());
    drop((first, second, closed, open));
    twin.assert_clean();
}

#[test]
fn an_id_that_owns_its_channel_ends_the_wait_when_it_is_destroyed() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    id.own_channel();
    thread::scope(|scope| {
        let reader = scope.spawn(|| channel.next_event(None).unwrap_err());
        thread::sleep(A_WHILE);
        id.destroy().unwrap();
        assert_eq!(reader.join().unwrap().kind(), ErrorKind::Closed);
    });
}

#[test]
fn an_id_on_a_shared_channel_ends_no_wait() {
    let twin = Twin::new();
    let (channel, id) = pair::resolve(twin.registry()).unwrap();
    id.destroy().unwrap();
    let wait = channel.next_event(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(wait.kind(), ErrorKind::TimedOut);
}
