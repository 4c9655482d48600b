//! The other host moves or falls silent while it is connected.

use std::thread;
use std::time::{Duration, Instant};

use rdmacm::Status;

use super::ends;
use super::host::{Host, Loss, WrongNeighbour};
use super::link::Link;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_neighbour_with_a_new_link_address: 120 s,
        a_disconnect_that_nobody_answers: 240 s,
    ]
}

/// F22: an established id hears that its peer is unreachable; the connection goes on.
fn a_neighbour_with_a_new_link_address() -> TestResult {
    let mut link = Link::open("a new link address")?;
    let mut end = ends::connect(&mut link, any_port, |listener| listener)?;
    ends::exchange(&mut link, &mut end)?;
    if Host::own() == Host::B {
        let wrong = WrongNeighbour::set()?;
        let event = expect(&end.channel, "UNREACHABLE")?;
        assert_eq!(event.status(), Status::Errno(libc::ETIMEDOUT));
        assert_eq!(event.id(), &end.id);
        drop(wrong);
    }
    ends::exchange(&mut link, &mut end)?;
    if Host::own() == Host::B {
        end.id.disconnect()?;
    }
    // The kernel may report the change once more.
    loop {
        let event = end.channel.next_event(Some(PATIENCE))?;
        match event.name() {
            "UNREACHABLE" => {}
            other => break assert_eq!(other, "DISCONNECTED"),
        }
    }
    if Host::own() == Host::A {
        end.id.disconnect()?;
    }
    link.meet("disconnected")?;
    Ok(Outcome::Pass)
}

/// F23: the event comes late, and its status says why.
fn a_disconnect_that_nobody_answers() -> TestResult {
    let mut link = Link::open("a silent peer")?;
    let end = ends::connect(&mut link, any_port, |listener| listener)?;
    match Host::own() {
        Host::A => {
            link.tell("silent from now on")?;
            // The line has to leave first.
            thread::sleep(Duration::from_secs(1));
            let _silence = Loss::of_everything()?;
            expect(&end.channel, "DISCONNECTED")?;
            link.hear()?;
        }
        Host::B => {
            link.hear()?;
            thread::sleep(Duration::from_secs(3));
            end.id.disconnect()?;
            let begin = Instant::now();
            let event = end.channel.next_event(Some(Duration::from_secs(180)))?;
            assert_eq!(event.name(), "DISCONNECTED");
            assert_eq!(event.status(), Status::Errno(libc::ETIMEDOUT));
            let waited = begin.elapsed();
            assert!(waited > Duration::from_secs(30), "{waited:?}");
            link.tell("over")?;
        }
    }
    Ok(Outcome::Pass)
}
