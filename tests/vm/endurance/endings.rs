//! Ids and channels that end while their events are unread, read and kept, or being waited for.
//!
//! Nothing here may wait: the watchdog of the tests notices.

use std::any::Any;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::{CmId, ErrorKind, Event, EventChannel, Membership, PortSpace, Result, SyncId};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Plan, QUIET, any_port, expect, listen};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        while_the_event_is_unread,
        while_the_event_is_held,
        while_the_event_is_handled,
        while_another_thread_waits,
    ]
}

/// An id that an event waits for.
struct Subject {
    id: CmId,
    channel: EventChannel,
    event: &'static str,
    /// What the id must not lose.
    _rest: Box<dyn Any + Sync>,
}

/// Makes a subject.
type Make = fn() -> Result<Subject>;

const SUBJECTS: [(&str, Make); 4] = [
    ("resolved", resolved),
    ("listening", listening),
    ("connected", connected),
    ("in a group", in_a_group),
];

fn resolved() -> Result<Subject> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, any_port(), PATIENCE)?;
    Ok(Subject {
        id,
        channel,
        event: "ADDR_RESOLVED",
        _rest: Box::new(()),
    })
}

/// A request has come.
fn listening() -> Result<Subject> {
    let channel = EventChannel::open()?;
    let id = listen(&channel, any_port())?;
    let client = Plan::default().ask(id.local_addr().expect("it listens"))?;
    Ok(Subject {
        id,
        channel,
        event: "CONNECT_REQUEST",
        _rest: Box::new(client),
    })
}

/// The peer has ended the connection.
fn connected() -> Result<Subject> {
    let pair = Plan::default().connect()?;
    pair.client.id.disconnect()?;
    Ok(Subject {
        id: pair.server.id.clone(),
        channel: pair.server.channel.clone(),
        event: "DISCONNECTED",
        _rest: Box::new(pair),
    })
}

fn in_a_group() -> Result<Subject> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.bind_addr(any_port())?;
    id.join_multicast(group(), Membership::Full)?;
    Ok(Subject {
        id,
        channel,
        event: "MULTICAST_JOIN",
        _rest: Box::new(()),
    })
}

fn group() -> SocketAddr {
    ([239, 1, 2, 3], 0).into()
}

/// What ends an id, or takes it away from its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Destroy,
    Migrate,
    MigrateTwice,
    ToSync,
    Leave,
    Close,
}

impl Ending {
    const ALL: [Self; 6] = [
        Self::Destroy,
        Self::Migrate,
        Self::MigrateTwice,
        Self::ToSync,
        Self::Leave,
        Self::Close,
    ];

    /// Carries it out. Returns the channel where the id's events come from then on, if that is
    /// another one.
    fn carry_out(self, id: &CmId, channel: &EventChannel) -> Result<Option<EventChannel>> {
        match self {
            Self::Destroy => id.destroy()?,
            Self::Migrate => {
                let other = EventChannel::open()?;
                id.migrate(&other)?;
                return Ok(Some(other));
            }
            Self::MigrateTwice => {
                id.migrate(&EventChannel::open()?)?;
                id.migrate(channel)?;
            }
            Self::ToSync => SyncId::from_id(id.clone())?.destroy()?,
            Self::Leave => drop(id.leave_multicast(group())?),
            Self::Close => channel.close(),
        }
        Ok(None)
    }
}

/// Does something with each subject and each ending.
fn each(check: fn(&Subject, Ending) -> Result<()>) -> TestResult {
    for (name, make) in SUBJECTS {
        for ending in Ending::ALL {
            let subject = make().map_err(|error| format!("{name}: {error}"))?;
            check(&subject, ending).map_err(|error| format!("{name}, {ending:?}: {error}"))?;
        }
    }
    Ok(Outcome::Pass)
}

/// The event comes along to the other channel, and goes with the id.
fn while_the_event_is_unread() -> TestResult {
    each(|subject, ending| {
        // It is there, and nobody has fetched it.
        thread::sleep(QUIET / 4);
        let other = ending.carry_out(&subject.id, &subject.channel)?;
        match ending {
            Ending::Migrate | Ending::MigrateTwice => {
                expect(other.as_ref().unwrap_or(&subject.channel), subject.event)?;
            }
            Ending::Close => {
                let error = subject.channel.next_event(None).expect_err("it is closed");
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
            Ending::Leave if subject.event != "MULTICAST_JOIN" => {
                expect(&subject.channel, subject.event)?;
            }
            Ending::Destroy | Ending::ToSync | Ending::Leave => {
                let event = subject.channel.try_next_event()?;
                assert!(event.is_none(), "{event:?}");
            }
        }
        Ok(())
    })
}

/// An event that is kept outlives its id, and all its calls fail then.
fn while_the_event_is_held() -> TestResult {
    each(|subject, ending| {
        let event = expect(&subject.channel, subject.event)?;
        ending.carry_out(&subject.id, &subject.channel)?;
        let is_gone = matches!(ending, Ending::Destroy | Ending::ToSync);
        match event.id().destroy() {
            Ok(()) => assert!(!is_gone, "{ending:?} left {event:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Destroyed);
                assert!(is_gone, "{ending:?} destroyed {event:?}");
            }
        }
        Ok(())
    })
}

/// In a thread whose work it is to handle events, through the event itself.
fn while_the_event_is_handled() -> TestResult {
    each(|subject, ending| {
        let handle = |event: &Event| ending.carry_out(event.id(), &subject.channel).map(drop);
        let channel = &subject.channel;
        thread::scope(|scope| {
            let handler = scope.spawn(|| handle(&channel.next_event(Some(PATIENCE))?));
            handler.join().expect("the handler does not panic")
        })
    })
}

/// The reader waits for what comes next, for ever and for a while, and goes on with other ids.
fn while_another_thread_waits() -> TestResult {
    each(|subject, ending| {
        for timeout in [None, Some(PATIENCE)] {
            if timeout.is_none() {
                drop(expect(&subject.channel, subject.event)?);
            }
            let other = subject.channel.create_id(PortSpace::Tcp);
            thread::scope(|scope| {
                let reading = scope.spawn(|| read_addr_resolved(&subject.channel, timeout));
                thread::sleep(QUIET / 4);
                let ended = ending.carry_out(&subject.id, &subject.channel);
                if let Ok(other) = &other {
                    other.resolve_addr(None, any_port(), PATIENCE)?;
                }
                let read = reading.join().expect("the reader does not panic");
                match (ending, read) {
                    (Ending::Close, Err(error)) => assert_eq!(error.kind(), ErrorKind::Closed),
                    (Ending::Close, Ok(())) => panic!("an event on a closed channel"),
                    (_, read) => read?,
                }
                match ended {
                    // The second time.
                    Err(error) if timeout.is_some() => {
                        assert_eq!(error.kind(), ErrorKind::Destroyed);
                        Ok(())
                    }
                    ended => ended.map(drop),
                }
            })?;
        }
        Ok(())
    })
}

/// Reads until an address is resolved, which only the other id's is.
fn read_addr_resolved(channel: &EventChannel, timeout: Option<Duration>) -> Result<()> {
    loop {
        match channel.next_event(timeout)? {
            Event::AddressResolved(_) => return Ok(()),
            Event::TimewaitExit(_) | Event::Disconnected(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
