//! Threads that read events, and threads that destroy what the events are about.

use std::error::Error;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use rdmacm::{
    CmId, ConnParam, Cq, ErrorKind, Event, EventChannel, Pd, PortSpace, Qp, QpAttr, Result,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, QUIET, any_port, listen};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_reader_and_a_destroyer: 300 s,
        a_channel_closed_under_its_reader,
    ]
}

/// Connections that are made at a time, and how often.
const AT_A_TIME: usize = 25;
const ROUNDS: usize = 20;

/// F20, F94: one thread reads and goes on, the other destroys at any moment after ESTABLISHED.
fn a_reader_and_a_destroyer() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let cq = pd
        .context()
        .completion_queue(4 * AT_A_TIME as u32)
        .build()?;
    for round in 0..ROUNDS {
        let channel = EventChannel::open()?;
        let listener = listen(&channel, any_port())?;
        let peer = listener.local_addr().expect("it listens");
        let (established, to_destroy) = mpsc::channel();
        let reader = Reader {
            pd: &pd,
            cq: &cq,
            established,
        };
        let clients = (0..AT_A_TIME)
            .map(|_| channel.create_id(PortSpace::Tcp))
            .collect::<Result<Vec<_>>>()?;
        for id in &clients {
            id.resolve_addr(None, peer, PATIENCE)?;
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| reader.read(&channel));
            let destroyed = destroy_all(&to_destroy, round);
            channel.close();
            reading.join().expect("no thread panics")?;
            destroyed
        })?;
    }
    Ok(Outcome::Pass)
}

struct Reader<'a> {
    pd: &'a Pd,
    cq: &'a Cq,
    established: Sender<(CmId, Qp)>,
}

impl Reader<'_> {
    /// Reads until the channel is closed.
    fn read(&self, channel: &EventChannel) -> Result<()> {
        let mut ids: Vec<(CmId, Option<Qp>)> = Vec::new();
        loop {
            let event = match channel.next_event(None) {
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
                event => event?,
            };
            match event {
                Event::AddressResolved(event) => event.id().resolve_route(PATIENCE)?,
                Event::RouteResolved(event) => {
                    let qp = self.queue_pair(event.id())?;
                    event.id().connect(&ConnParam::new())?;
                    ids.push((event.id().clone(), Some(qp)));
                }
                Event::ConnectRequest(request) => {
                    let qp = self.queue_pair(request.id())?;
                    request.id().accept(&ConnParam::new())?;
                    ids.push((request.into_id(), Some(qp)));
                }
                Event::Established(event) => {
                    let found = ids.iter_mut().find(|(id, _)| id == event.id());
                    let (id, qp) = found.expect("it was asked for or accepted");
                    let qp = qp.take().expect("it is established once");
                    let _ = self.established.send((id.clone(), qp));
                }
                // The other end is gone already.
                Event::Disconnected(_) | Event::TimewaitExit(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn queue_pair(&self, id: &CmId) -> Result<Qp> {
        id.create_qp(&QpAttr::new(self.pd).send_cq(self.cq).recv_cq(self.cq))
    }
}

/// Destroys ids as they come, each a little later than the one before, until both ends of all
/// connections are gone.
fn destroy_all(ids: &Receiver<(CmId, Qp)>, round: usize) -> Result<(), Box<dyn Error>> {
    for number in 0..2 * AT_A_TIME {
        let next = ids.recv_timeout(PATIENCE);
        let (id, qp) = next.map_err(|_| format!("only {number} ends were established"))?;
        let delay = (number * 7 + round * 3) % 20;
        thread::sleep(Duration::from_micros(100 * delay as u64));
        qp.destroy()?;
        id.destroy()?;
    }
    Ok(())
}

/// F26.
fn a_channel_closed_under_its_reader() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    thread::scope(|scope| {
        let reading = scope.spawn(|| channel.next_event(None));
        thread::sleep(QUIET);
        channel.close();
        let error = reading.join().expect("no thread panics");
        assert_eq!(error.expect_err("no event comes").kind(), ErrorKind::Closed);
    });
    listener.destroy()?;
    Ok(Outcome::Pass)
}
