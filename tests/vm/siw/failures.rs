//! Requests that fail, what both ends read of it, and which asynchronous events come.
//!
//! What a peer does not allow, only the peer's side reports, as an event. Statuses that the driver has
//! a number for but never gives are those of a bad response, of local and of remote access, and the
//! two of retries, which iWARP has none of.

use CompletionStatus::{
    Flushed, General, LocalLength, LocalProtection, LocalQpOperation, RemoteInvalidRequest, Success,
};
use rdmacm::{
    Access, AsyncEvent, AsyncEvents, Buffer, CompletionStatus, Cq, EventChannel, QpAttr, QpToken,
    Result, SrqAttr,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    ANY_ACCESS, PATIENCE, Pair, Plan, QUIET, any_port, assert_holds, expect, listen,
    next_completion, pattern, request,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        each_has_its_status_and_its_event: 120 s,
        what_is_left_when_a_request_fails_comes_back,
        reads_need_no_access,
        a_limit_names_its_queue_once,
    ]
}

/// The numbers of the requests here.
const REQUEST: u64 = 1;
const RECEIVE: u64 = 2;
/// Bytes of a message.
const LENGTH: usize = 128;

/// Two ends, and memory of each that is there and open in every way.
struct Ends {
    pair: Pair,
    near: Buffer,
    far: Buffer,
}

impl Ends {
    fn new() -> Result<Self> {
        let pair = Plan::default().connect()?;
        let (near, far) = (pair.client.buffer(LENGTH)?, pair.server.buffer(LENGTH)?);
        Ok(Self { pair, near, far })
    }

    fn receive(&mut self, buffer: &Buffer) -> Result<()> {
        self.pair.server.post_recv(RECEIVE, buffer)
    }

    fn send(&mut self) -> Result<()> {
        let all = self.near.slice(..)?;
        let post = |batch: &mut rdmacm::Batch<'_>| batch.send(REQUEST).signaled().from(&[all]);
        Ok(self.pair.client.post(post)?)
    }

    fn write(&mut self, to: &Buffer) -> Result<()> {
        let (to, all) = (to.remote(), self.near.slice(..)?);
        let post = |batch: &mut rdmacm::Batch<'_>| batch.write(REQUEST, to).signaled().from(&[all]);
        Ok(self.pair.client.post(post)?)
    }

    fn read(&mut self, from: &Buffer, into: &Buffer) -> Result<()> {
        let (from, into) = (from.remote(), into.slice(..)?);
        let post =
            |batch: &mut rdmacm::Batch<'_>| batch.read(REQUEST, from).signaled().into(&[into]);
        Ok(self.pair.client.post(post)?)
    }

    /// Whether each end hears of the end of the connection.
    fn are_over(&self) -> [bool; 2] {
        let patience = Some(10 * QUIET);
        let ends = [&self.pair.client, &self.pair.server];
        ends.map(|end| end.channel.next_event(patience).is_ok())
    }
}

/// How a request ended; `None` when nothing was heard of it.
type Ending = Option<CompletionStatus>;

/// How the one request of this number ended, by which time the connection is over.
fn ending(cq: &mut Cq, wr_id: u64) -> Result<Ending> {
    let mut entries = [rdmacm::Completion::default(); 2];
    let Ok([completion]) = cq.wait(&mut entries, Some(QUIET)) else {
        return Ok(None);
    };
    assert_eq!(completion.wr_id(), wr_id);
    let ended = completion.result().map(drop);
    Ok(Some(
        ended.map_or_else(|failure| failure.status, |()| Success),
    ))
}

/// The events up to a time of silence.
fn rest_of(events: &AsyncEvents) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| events.next_event(Some(QUIET)).ok()).collect()
}

type EventOf = fn(QpToken) -> AsyncEvent;

/// Something that goes wrong.
struct Case {
    name: &'static str,
    /// Posts a request, and perhaps a receive for it.
    provoke: fn(&mut Ends) -> Result<()>,
    /// How the request ends.
    near: Ending,
    /// How the receive ends.
    far: Ending,
    /// What is said of the queue pairs of the request and of the receive.
    events: [Option<EventOf>; 2],
    /// Whether the connection ends.
    ends: bool,
}

impl Case {
    const PLAIN: Self = Self {
        name: "",
        provoke: |_| Ok(()),
        near: Some(Success),
        far: None,
        events: [None, None],
        ends: true,
    };
}

const CASES: &[Case] = &[
    Case {
        name: "a send from memory that is gone",
        provoke: |ends| {
            ends.near = ends.pair.client.buffer(LENGTH)?;
            let gone = ends.near.slice(..)?;
            ends.near = ends.pair.client.buffer(1)?;
            let post = |batch: &mut rdmacm::Batch<'_>| batch.send(REQUEST).from(&[gone]);
            Ok(ends.pair.client.post(post)?)
        },
        near: Some(LocalQpOperation),
        events: [Some(AsyncEvent::QpFatal), None],
        ..Case::PLAIN
    },
    Case {
        name: "a message longer than its receive",
        provoke: |ends| {
            ends.far = ends.pair.server.buffer(LENGTH - 1)?;
            let shorter = ends.far.slice(..)?;
            ends.pair.server.qp.recv_half().post(RECEIVE, &[shorter])?;
            ends.send()
        },
        far: Some(LocalLength),
        events: [None, Some(AsyncEvent::QpFatal)],
        ..Case::PLAIN
    },
    Case {
        name: "a receive into memory that is gone",
        provoke: |ends| {
            let gone = ends.pair.server.buffer(LENGTH)?;
            ends.receive(&gone)?;
            drop(gone);
            ends.send()
        },
        far: Some(General),
        events: [None, Some(AsyncEvent::QpAccessError)],
        ..Case::PLAIN
    },
    Case {
        name: "a receive into memory that nobody may write to",
        provoke: |ends| {
            ends.far = ends.pair.server.pd.alloc(LENGTH, Access::REMOTE_READ)?;
            let constant = ends.far.slice(..)?;
            ends.pair.server.qp.recv_half().post(RECEIVE, &[constant])?;
            ends.send()
        },
        far: Some(General),
        events: [None, Some(AsyncEvent::QpAccessError)],
        ..Case::PLAIN
    },
    Case {
        name: "a message without a receive",
        provoke: Ends::send,
        ..Case::PLAIN
    },
    Case {
        name: "a read into memory that is gone",
        provoke: |ends| {
            let (there, gone) = (
                ends.pair.server.buffer(LENGTH)?,
                ends.pair.client.buffer(LENGTH)?,
            );
            let into = gone.slice(..)?;
            drop(gone);
            let from = there.remote();
            ends.far = there;
            let post = |batch: &mut rdmacm::Batch<'_>| batch.read(REQUEST, from).into(&[into]);
            Ok(ends.pair.client.post(post)?)
        },
        near: Some(LocalProtection),
        events: [Some(AsyncEvent::QpAccessError), None],
        ..Case::PLAIN
    },
    Case {
        name: "a read of more than there is",
        provoke: |ends| {
            let short = ends.pair.server.buffer(LENGTH - 1)?;
            let into = ends.pair.client.buffer(LENGTH)?;
            ends.read(&short, &into)?;
            (ends.near, ends.far) = (into, short);
            Ok(())
        },
        near: Some(Flushed),
        events: [None, Some(AsyncEvent::QpRequestError)],
        ..Case::PLAIN
    },
    Case {
        name: "a write to memory that may not be written to",
        provoke: |ends| {
            let private = ends.pair.server.pd.alloc(LENGTH, Access::REMOTE_READ)?;
            ends.write(&private)?;
            ends.far = private;
            Ok(())
        },
        events: [None, Some(AsyncEvent::QpAccessError)],
        ..Case::PLAIN
    },
    Case {
        name: "a message that takes away a key that there is not",
        provoke: |ends| {
            let inbox = ends.pair.server.buffer(LENGTH)?;
            ends.receive(&inbox)?;
            let rkey = inbox.remote().rkey ^ 0x5500;
            ends.far = inbox;
            let all = ends.near.slice(..)?;
            let post = |batch: &mut rdmacm::Batch<'_>| {
                let request = batch.send_invalidate(REQUEST, rkey);
                request.signaled().from(&[all])
            };
            Ok(ends.pair.client.post(post)?)
        },
        far: Some(RemoteInvalidRequest),
        ends: false,
        ..Case::PLAIN
    },
];

impl Case {
    /// What is not as it should be.
    fn complaint(&self, events: &AsyncEvents) -> Result<Option<String>> {
        let mut ends = Ends::new()?;
        (self.provoke)(&mut ends)?;
        let over = ends.are_over();
        let tokens = [ends.pair.client.qp.token(), ends.pair.server.qp.token()];
        let expected: Vec<AsyncEvent> = self
            .events
            .iter()
            .zip(tokens)
            .filter_map(|(event, token)| event.map(|event| event(token)))
            .collect();
        let near = ending(&mut ends.pair.client.send_cq, REQUEST)?;
        let far = ending(&mut ends.pair.server.recv_cq, RECEIVE)?;
        let (found, expected) = (
            (near, far, rest_of(events), over),
            (self.near, self.far, expected, [self.ends; 2]),
        );
        let name = self.name;
        Ok((found != expected).then(|| format!("{name}: {found:?} instead of {expected:?}")))
    }
}

fn each_has_its_status_and_its_event() -> TestResult {
    let events = environment::context().async_events()?;
    let mut complaints = Vec::new();
    for case in CASES {
        complaints.extend(case.complaint(&events)?);
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    Ok(Outcome::Pass)
}

/// What is posted when a request fails comes back, which the kernel does not see to, and an event says
/// that there is no more.
fn what_is_left_when_a_request_fails_comes_back() -> TestResult {
    let events = environment::context().async_events()?;
    let mut ends = Ends::new()?;
    let inbox = ends.pair.client.buffer(LENGTH)?;
    for wr_id in 100..103 {
        ends.pair.client.post_recv(wr_id, &inbox)?;
    }
    let gone = ends.pair.client.buffer(LENGTH)?.slice(..)?;
    ends.pair.client.post(|batch| {
        for wr_id in 0..8 {
            batch.send(wr_id).from(&[gone])?;
        }
        Ok(())
    })?;
    assert_eq!(ends.are_over(), [true, true]);
    for wr_id in 0..8 {
        let failure = ends.pair.client.sent()?.result().expect_err("none is sent");
        let status = if wr_id == 0 {
            LocalQpOperation
        } else {
            Flushed
        };
        assert_eq!((failure.wr_id, failure.status), (wr_id, status));
    }
    for wr_id in 100..103 {
        let failure = ends
            .pair
            .client
            .received()?
            .result()
            .expect_err("none comes");
        assert_eq!((failure.wr_id, failure.status), (wr_id, Flushed));
    }
    let token = ends.pair.client.qp.token();
    assert_eq!(
        rest_of(&events),
        [
            AsyncEvent::QpFatal(token),
            AsyncEvent::SendQueueDrained(token)
        ]
    );
    Ok(Outcome::Pass)
}

/// As the documentation says. A kernel that does better fails this.
fn reads_need_no_access() -> TestResult {
    let mut ends = Ends::new()?;
    let mut private = ends.pair.server.pd.alloc(LENGTH, Access::LOCAL_WRITE)?;
    private.write(0, &pattern(3, LENGTH))?;
    let into = ends.pair.client.buffer(LENGTH)?;
    ends.read(&private, &into)?;
    ends.pair.client.sent()?.result()?;
    assert_holds(&into, 0, &pattern(3, LENGTH));
    Ok(Outcome::Pass)
}

/// The limit of a shared receive queue.
fn a_limit_names_its_queue_once() -> TestResult {
    let events = environment::context().async_events()?;
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let mut client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
    let id = request(&channel)?.into_id();
    let pd = id.protection_domain()?;
    let mut srq = pd.create_srq(&SrqAttr {
        max_wr: 16,
        max_sge: 1,
    })?;
    let mut cq = crate::verbs::queue(pd.context(), 32)?;
    let attr = QpAttr::new(&pd).srq(&srq).send_cq(&cq).recv_cq(&cq);
    let _qp = id.create_qp(&attr)?;
    id.accept(&Plan::default().answered)?;
    expect(&client.channel, "ESTABLISHED")?;
    expect(&channel, "ESTABLISHED")?;
    let inbox = pd.alloc(8, ANY_ACCESS)?;
    let mut exchange = |wr_id: u64| -> Result<()> {
        client.post(|batch| batch.send(wr_id).signaled().from(&[]))?;
        client.sent()?.result()?;
        next_completion(&mut cq)?.result()?;
        Ok(())
    };
    for round in 0..2 {
        for wr_id in 0..6 {
            srq.post(wr_id, &[inbox.slice(..)?])?;
        }
        srq.arm_limit(3)?;
        assert_eq!(srq.query()?.limit, 3);
        let reached = AsyncEvent::SrqLimitReached(srq.token());
        for wr_id in 0..6 {
            exchange(wr_id)?;
        }
        assert_eq!(events.next_event(Some(PATIENCE))?, reached, "{round}");
        assert_eq!(rest_of(&events), [], "{round}");
    }
    Ok(Outcome::Pass)
}
