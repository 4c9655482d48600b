//! Ids that come and go while threads read the events of their channel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::{
    CmId, ConnParam, Cq, ErrorKind, Event, EventChannel, Pd, PortSpace, Qp, QpAttr, Result,
};

use super::times;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, listen};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        two_readers_and_two_creators: 120 s,
        queue_pairs_destroyed_during_the_handshake: 120 s,
    ]
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Ids that are alive at a time.
const ALIVE: usize = 64;

/// F95: two threads destroy ids, in no order, and make others, while two threads read the events.
/// An event is of an id that is there when it is read.
fn two_readers_and_two_creators() -> TestResult {
    let channel = EventChannel::open()?;
    let alive = Mutex::new(Vec::new());
    let read = AtomicU64::new(0);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| read_until_closed(&channel, &read)));
        let creators = [1, 2].map(|seed| {
            let (channel, alive) = (&channel, &alive);
            scope.spawn(move || create_and_destroy(channel, alive, Numbers(seed)))
        });
        let created = creators.map(|creator| creator.join().expect("no creator panics"));
        channel.close();
        for reader in readers {
            reader.join().expect("no reader panics")?;
        }
        created.into_iter().collect::<Result<Vec<()>>>()
    })?;
    // Those that stayed have been resolved, and many more.
    let read = read.load(Ordering::Relaxed);
    println!("{read} events were read");
    assert!(read > ALIVE as u64, "only {read} events");
    Ok(Outcome::Pass)
}

fn create_and_destroy(
    channel: &EventChannel,
    alive: &Mutex<Vec<CmId>>,
    mut numbers: Numbers,
) -> Result<()> {
    for _ in 0..times(5000) {
        let id = channel.create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, any_port(), PATIENCE)?;
        let victim = {
            let mut alive = alive.lock().expect("no thread panics");
            alive.push(id);
            let is_full = alive.len() > ALIVE;
            let index = numbers.below(alive.len() as u64) as usize;
            is_full.then(|| alive.swap_remove(index))
        };
        if let Some(victim) = victim {
            victim.destroy()?;
        }
    }
    Ok(())
}

fn read_until_closed(channel: &EventChannel, read: &AtomicU64) -> Result<()> {
    loop {
        let event = match channel.next_event(None) {
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
            event => event?,
        };
        assert!(matches!(event, Event::AddressResolved(_)), "{event:?}");
        read.fetch_add(1, Ordering::Relaxed);
        // Its address is known, unless it is destroyed in this moment.
        match event.id().context() {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Destroyed, "{error}"),
        }
    }
}

/// Ids that are connected and destroyed.
const VICTIMS: usize = 500;

/// F20: one thread reads events, which move queue pairs, and accepts. The other one asks for
/// connections and destroys queue pair and id within the next 2 ms, wherever the handshake is.
fn queue_pairs_destroyed_during_the_handshake() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let cq = pd.context().completion_queue(64).build()?;
    let maker = Maker { pd, cq };
    let channel = EventChannel::open()?;
    let resolved = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let established = thread::scope(|scope| {
        let reading = scope.spawn(|| maker.read_until_closed(&channel));
        let destroyed = maker.connect_and_destroy(&channel, &resolved, &listener);
        channel.close();
        let established = reading.join().expect("the reader does not panic");
        destroyed.and(established)
    })?;
    println!("{established} of {VICTIMS} connections were established before they ended");
    Ok(Outcome::Pass)
}

struct Maker {
    pd: Pd,
    cq: Cq,
}

impl Maker {
    fn queue_pair(&self, id: &CmId) -> Result<Qp> {
        let attr = QpAttr::new(&self.pd).send_cq(&self.cq).recv_cq(&self.cq);
        id.create_qp(&attr)
    }

    fn connect_and_destroy(
        &self,
        channel: &EventChannel,
        resolved: &EventChannel,
        listener: &CmId,
    ) -> Result<()> {
        let peer = listener.local_addr().expect("it listens");
        let mut numbers = Numbers(20);
        for number in 0..VICTIMS {
            let id = crate::pair::resolve(resolved, peer)?;
            let qp = self.queue_pair(&id)?;
            // From now on the other thread reads its events.
            id.migrate(channel)?;
            id.connect(&ConnParam::new())?;
            thread::sleep(Duration::from_micros(numbers.below(2000)));
            if number % 2 == 0 {
                qp.destroy()?;
            }
            id.destroy()?;
        }
        Ok(())
    }

    /// Accepts whoever is still there. Returns how many connections were established.
    fn read_until_closed(&self, channel: &EventChannel) -> Result<usize> {
        let mut accepted: Vec<(CmId, Qp)> = Vec::new();
        let mut established = 0;
        loop {
            let event = match channel.next_event(None) {
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(established),
                event => event?,
            };
            match event {
                Event::ConnectRequest(request) => {
                    let qp = self.queue_pair(request.id())?;
                    match request.id().accept(&ConnParam::new()) {
                        Ok(()) => accepted.push((request.into_id(), qp)),
                        // The client has given up.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Rejected, "{error}"),
                    }
                }
                Event::Established(event) => {
                    let is_server = accepted.iter().any(|(id, _)| id == event.id());
                    established += usize::from(is_server);
                }
                // Of the server's end: the client is gone.
                Event::Disconnected(_) | Event::Rejected(_) | Event::Unreachable(_) => {
                    accepted.retain(|(id, _)| id != event.id());
                }
                Event::TimewaitExit(_) => {}
                // Of the client's end: its queue pair went while the answer was handled, or before.
                Event::ConnectError(_) | Event::ConnectResponse(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
