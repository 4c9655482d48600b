//! Several threads at once on the parts of one queue pair and on one event channel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use rdmacm::{CmId, ErrorKind, Event, EventChannel, PortSpace, RecvHalf, Result, SendHalf};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    End, PATIENCE, Pair, Plan, QUIET, any_port, assert_holds, listen, next_completion,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![a_thread_for_each_half, two_readers_of_one_channel]
}

/// Messages that go each way, as many as receives can be outstanding.
const MESSAGES: u64 = 255;

/// Four threads: each end sends in one and receives in another.
fn a_thread_for_each_half() -> TestResult {
    let plan = Plan {
        send_depth: MESSAGES as u32,
        recv_depth: MESSAGES as u32,
        inline: 8,
        ..Plan::default()
    };
    let Pair { client, server } = plan.connect()?;
    let both_ready = Barrier::new(2);
    thread::scope(|scope| {
        let talks = [client, server].map(|end| scope.spawn(|| talk(end, &both_ready)));
        // The ends are kept until both have finished: the last acknowledgement is the device's.
        let ends = talks.map(|talk| talk.join().expect("no thread panics"));
        ends.into_iter().collect::<Result<Vec<_>>>()
    })?;
    Ok(Outcome::Pass)
}

fn talk(end: End, both_ready: &Barrier) -> Result<(CmId, SendHalf, RecvHalf)> {
    let inbox = end.buffer(8 * MESSAGES as usize)?;
    let place = |number: u64| 8 * number as usize;
    let End {
        id,
        qp,
        mut send_cq,
        mut recv_cq,
        ..
    } = end;
    let (mut send, mut recv) = qp.split();
    for number in 0..MESSAGES {
        let segment = inbox.slice(place(number)..place(number) + 8)?;
        recv.post(number, &[segment])?;
    }
    both_ready.wait();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for number in 0..MESSAGES {
                let mut batch = send.batch();
                batch
                    .send(number)
                    .signaled()
                    .inline(&number.to_ne_bytes())?;
                batch.submit()?;
                let sent = next_completion(&mut send_cq)?;
                assert_eq!((sent.wr_id(), sent.result().map(drop)), (number, Ok(())));
            }
            Ok::<(), rdmacm::Error>(())
        });
        for number in 0..MESSAGES {
            let received = next_completion(&mut recv_cq)?;
            assert_eq!(
                (received.wr_id(), received.result()?.byte_len()),
                (number, 8)
            );
            assert_holds(&inbox, place(number), &number.to_ne_bytes());
        }
        sending.join().expect("no thread panics")
    })?;
    Ok((id, send, recv))
}

/// F95: two threads read one channel while ids come and go on it. Each event is read once, by
/// either thread, and finds its own id.
fn two_readers_of_one_channel() -> TestResult {
    let others = EventChannel::open()?;
    let listener = listen(&others, any_port())?;
    let peer = listener.local_addr().expect("a listener has an address");
    let channel = EventChannel::open()?;
    for _ in 0..4 {
        let ids = (0..64)
            .map(|_| channel.create_id(PortSpace::Tcp))
            .collect::<Result<Vec<_>>>()?;
        let log = Log::new(&ids);
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| scope.spawn(|| log.read_events(&channel)));
            for (index, id) in ids.iter().enumerate() {
                id.resolve_addr(None, peer, PATIENCE)?;
                if Destroyed::of(index) == Destroyed::AtOnce {
                    id.destroy()?;
                }
            }
            log.all_begun.store(true, Ordering::Release);
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().expect("no thread panics"))
        })?;
        log.check();
    }
    Ok(Outcome::Pass)
}

/// What is done to an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destroyed {
    /// Destroyed by the thread that began the resolution, while others may read its event.
    AtOnce,
    /// Destroyed by the reader of its first event.
    WhenResolved,
    /// Destroyed by the reader of its second event.
    WhenRouted,
}

impl Destroyed {
    fn of(index: usize) -> Self {
        [Self::AtOnce, Self::WhenResolved, Self::WhenRouted][index % 3]
    }

    /// Does what follows an event.
    fn go_on(self, event: &Event) -> Result<()> {
        match (self, event) {
            (Self::WhenRouted, Event::AddressResolved(_)) => event.id().resolve_route(PATIENCE),
            (Self::AtOnce, _) => Ok(()),
            _ => event.id().destroy(),
        }
    }
}

/// The events that were read, by the index of their id.
struct Log<'i> {
    ids: &'i [CmId],
    events: Mutex<BTreeMap<usize, Vec<&'static str>>>,
    all_begun: AtomicBool,
}

impl<'i> Log<'i> {
    fn new(ids: &'i [CmId]) -> Self {
        Self {
            ids,
            events: Mutex::default(),
            all_begun: AtomicBool::new(false),
        }
    }

    /// Reads until nothing comes any more.
    fn read_events(&self, channel: &EventChannel) -> Result<()> {
        loop {
            let last_chance = self.all_begun.load(Ordering::Acquire);
            match channel.next_event(Some(3 * QUIET)) {
                Ok(event) => self.take(&event)?,
                Err(error) if error.kind() != ErrorKind::TimedOut => return Err(error),
                Err(_) if last_chance => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn take(&self, event: &Event) -> Result<()> {
        let index = self.ids.iter().position(|id| id == event.id());
        let index = index.unwrap_or_else(|| panic!("an event of another id: {event:?}"));
        let mut events = self.events.lock().expect("no thread panics");
        events.entry(index).or_default().push(event.name());
        drop(events);
        Destroyed::of(index).go_on(event)
    }

    fn check(self) {
        let mut events = self.events.into_inner().expect("no thread panics");
        for index in 0..self.ids.len() {
            let destroyed = Destroyed::of(index);
            let read = events.remove(&index).unwrap_or_default();
            let due: &[&str] = match destroyed {
                // The event may have been read before the id was destroyed.
                Destroyed::AtOnce if read.is_empty() => &[],
                Destroyed::AtOnce | Destroyed::WhenResolved => &["ADDR_RESOLVED"],
                Destroyed::WhenRouted => &["ADDR_RESOLVED", "ROUTE_RESOLVED"],
            };
            assert_eq!(read, due, "id {index}, {destroyed:?}");
        }
    }
}
