//! Queues that change their depth, and completions one by one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Access, Buffer, DeviceCaps, ErrorKind, Pd, QpAttr, Result, SendHalf, Srq, SrqAttr};

use super::shared_queues::{Line, SIZE};
use super::{next_success, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::PATIENCE;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        completions_come_one_by_one,
        a_resized_queue_keeps_what_it_holds,
        a_queue_is_resized_while_completions_come,
        an_armed_queue_is_resized,
        a_resized_shared_queue_keeps_its_receives,
        a_shared_queue_is_resized_while_messages_come,
        what_the_device_cannot_do_is_refused,
        what_siw_cannot_change_is_refused,
    ]
}

/// A connection with memory that it may write to.
struct Lined {
    line: Line,
    srq: Srq,
    memory: Buffer,
    _pd: Pd,
}

impl Lined {
    fn new(size: &SrqAttr) -> Result<Self> {
        let pd = environment::context().alloc_pd()?;
        let srq = pd.create_srq(size)?;
        Ok(Self {
            line: Line::new(&pd, &srq)?,
            srq,
            memory: pd.alloc(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            _pd: pd,
        })
    }

    /// Has requests complete, and waits until they have.
    fn complete(&mut self, numbers: std::ops::Range<u64>) -> Result<()> {
        let memory = &self.memory;
        write(self.line.near.send_half(), memory, numbers)?;
        // The last write tells when all are done: its bytes are there, and completions come in order.
        thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    fn taken(&mut self) -> Vec<u64> {
        let completions = self.line.near_cq.completions();
        completions.map(|completion| completion.wr_id()).collect()
    }
}

/// Writes nothing, once for each number.
fn write(send: &mut SendHalf, memory: &Buffer, numbers: std::ops::Range<u64>) -> Result<()> {
    let mut batch = send.batch();
    for wr_id in numbers {
        batch.write(wr_id, memory.remote()).signaled().from(&[])?;
    }
    Ok(batch.submit()?)
}

fn completions_come_one_by_one() -> TestResult {
    let mut lined = Lined::new(&SIZE)?;
    lined.complete(0..10)?;
    let mut some = lined.line.near_cq.completions();
    assert_eq!(some.next().map(|completion| completion.wr_id()), Some(0));
    assert_eq!(some.next().map(|completion| completion.wr_id()), Some(1));
    drop(some);
    assert_eq!(next_success(&mut lined.line.near_cq)?.wr_id(), 2);
    assert_eq!(lined.taken(), (3..10).collect::<Vec<_>>());
    assert_eq!(lined.taken(), []);
    Ok(Outcome::Pass)
}

fn a_resized_queue_keeps_what_it_holds() -> TestResult {
    let mut lined = Lined::new(&SIZE)?;
    // Not from the beginning of the ring on.
    lined.complete(0..10)?;
    assert_eq!(lined.taken().len(), 10);
    lined.complete(10..20)?;
    let cq = &mut lined.line.near_cq;
    assert_eq!(cq.completions().next().map(|first| first.wr_id()), Some(10));
    cq.resize(500)?;
    assert_eq!(cq.depth(), 511);
    lined.complete(20..25)?;
    let cq = &mut lined.line.near_cq;
    assert_eq!(cq.completions().next().map(|first| first.wr_id()), Some(11));
    let error = cq.resize(12).expect_err("it holds 13");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    cq.resize(13)?;
    assert_eq!(cq.depth(), 15);
    lined.complete(25..27)?;
    assert_eq!(lined.taken(), (12..27).collect::<Vec<_>>());
    let most = environment::context().attr()?.max_cqe();
    for entries in [0, most + 1] {
        let error = lined
            .line
            .near_cq
            .resize(entries)
            .expect_err("no such size");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    lined.complete(27..28)?;
    assert_eq!(lined.taken(), [27]);
    Ok(Outcome::Pass)
}

/// How many requests may be under way.
const WINDOW: u64 = 12;
const REQUESTS: u64 = 1500;

/// None is lost, none comes twice.
fn a_queue_is_resized_while_completions_come() -> TestResult {
    let lined = Lined::new(&SIZE)?;
    let Lined { line, memory, .. } = lined;
    let mut cq = line.near_cq;
    let (mut send, _recv) = line.near.split();
    let polled = AtomicU64::new(0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            for number in 0..REQUESTS {
                await_until(|| number < polled.load(Ordering::Acquire) + WINDOW);
                write(&mut send, &memory, number..number + 1)?;
            }
            Ok(())
        });
        let (mut expected, mut rounds) = (0, 0);
        let begin = Instant::now();
        while expected < REQUESTS && begin.elapsed() < PATIENCE {
            for completion in cq.completions() {
                completion.result()?;
                assert_eq!(completion.wr_id(), expected);
                expected += 1;
            }
            polled.store(expected, Ordering::Release);
            rounds += 1;
            cq.resize(if rounds % 2 == 0 { 16 } else { 300 })?;
        }
        assert_eq!(expected, REQUESTS);
        sender.join().expect("the sender does not panic")
    })?;
    Ok(Outcome::Pass)
}

fn await_until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "nothing goes on");
        thread::yield_now();
    }
}

/// The event of a queue that was armed before comes all the same.
fn an_armed_queue_is_resized() -> TestResult {
    let mut lined = Lined::new(&SIZE)?;
    lined.line.near_cq.arm(false)?;
    lined.line.near_cq.resize(200)?;
    lined.complete(0..1)?;
    let cq = &mut lined.line.near_cq;
    let channel = cq.channel().expect("it has one");
    assert_eq!(channel.next_event(Some(PATIENCE))?, cq.token());
    assert_eq!(lined.taken(), [0]);
    Ok(Outcome::Pass)
}

fn a_resized_shared_queue_keeps_its_receives() -> TestResult {
    let mut lined = Lined::new(&SIZE)?;
    let mut posted = 0..;
    let mut post = |srq: &mut Srq, count| {
        posted
            .by_ref()
            .take(count)
            .try_for_each(|wr_id| srq.post(wr_id, &[]))
    };
    let mut arrived = 0..;
    let mut receive = |line: &mut Line, count| -> Result<()> {
        for wr_id in arrived.by_ref().take(count) {
            line.send(wr_id, &[])?;
            next_success(&mut line.near_cq)?;
            assert_eq!(next_success(&mut line.far_cq)?.wr_id(), wr_id);
        }
        Ok(())
    };
    let Lined { line, srq, .. } = &mut lined;
    post(srq, 20)?;
    receive(line, 15)?;
    post(srq, 20)?;
    srq.resize(100)?;
    assert_eq!((srq.depth(), srq.query()?.max_wr), (127, 127));
    post(srq, 60)?;
    receive(line, 75)?;
    let error = srq.resize(9).expect_err("it holds 10");
    assert!(error.to_string().contains("holds 10 receives"), "{error}");
    srq.resize(10)?;
    post(srq, 5)?;
    srq.arm_limit(12)?;
    let error = srq.resize(11).err();
    // A limit that was reached at once is not armed any more.
    assert!(error.is_none() || srq.query()?.limit == 12, "{error:?}");
    receive(line, 15)?;
    let error = srq.resize(1 << 21).expect_err("no such size");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    post(srq, 3)?;
    receive(line, 3)?;
    Ok(Outcome::Pass)
}

fn a_shared_queue_is_resized_while_messages_come() -> TestResult {
    const MESSAGES: u64 = 400;
    let mut lined = Lined::new(&SIZE)?;
    let Lined { line, srq, .. } = &mut lined;
    let posted = AtomicU64::new(0);
    let (near, near_cq, far_cq) = (&mut line.near, &mut line.near_cq, &mut line.far_cq);
    thread::scope(|scope| {
        let posted = &posted;
        let sender = scope.spawn(move || -> Result<()> {
            for number in 0..MESSAGES {
                await_until(|| number < posted.load(Ordering::Acquire));
                let mut batch = near.send_half().batch();
                batch.send(number).signaled().inline(b"")?;
                batch.submit()?;
                next_success(near_cq)?;
            }
            Ok(())
        });
        let (mut number, mut expected) = (0, 0);
        let begin = Instant::now();
        while expected < MESSAGES && begin.elapsed() < PATIENCE {
            while number < MESSAGES && number < expected + 10 {
                srq.post(number, &[])?;
                number += 1;
            }
            posted.store(number, Ordering::Release);
            srq.resize(if expected % 2 == 0 { 16 } else { 200 })?;
            for completion in far_cq.completions() {
                completion.result()?;
                assert_eq!(completion.wr_id(), expected);
                expected += 1;
            }
        }
        assert_eq!(expected, MESSAGES);
        sender.join().expect("the sender does not panic")
    })?;
    Ok(Outcome::Pass)
}

fn what_the_device_cannot_do_is_refused() -> TestResult {
    let context = environment::context();
    let attr = context.attr()?;
    let cq = queue(&context, 4)?;
    let moderated = cq.moderate(4, Duration::from_micros(10));
    let is_there = attr.max_moderation().0 >= 4;
    assert_eq!(moderated.is_ok(), is_there, "{moderated:?}");
    let mut srq = context.alloc_pd()?.create_srq(&SIZE)?;
    let resized = srq.resize(32);
    let is_there = attr.caps().contains(DeviceCaps::SRQ_RESIZE);
    assert_eq!(resized.is_ok(), is_there, "{resized:?}");
    for error in [moderated.err(), resized.err()].into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    }
    let vectors = context.completion_vectors();
    context.completion_queue(4).vector(vectors - 1).build()?;
    let error = context.completion_queue(4).vector(vectors).build();
    let error = error.expect_err("there is no such vector");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(Outcome::Pass)
}

/// On a guest with siw: its queues and regions stay as they were made, and go on working.
fn what_siw_cannot_change_is_refused() -> TestResult {
    if !environment::device().starts_with("siw") {
        return Ok(Outcome::Skip("the device is not siw".into()));
    }
    let context = environment::context();
    let pd = context.alloc_pd()?;
    let mut cq = queue(&context, 4)?;
    let mut srq = pd.create_srq(&SIZE)?;
    let mut buffer = pd.alloc(64, Access::LOCAL_WRITE)?;
    let refusals = [
        ("resize_cq", cq.resize(8)),
        ("modify_cq", cq.moderate(4, Duration::from_micros(10))),
        ("modify_srq", srq.resize(32)),
        (
            "rereg_mr",
            buffer.set_access(Access::REMOTE_READ | Access::LOCAL_WRITE),
        ),
        ("reg_mr", pd.alloc(64, Access::FLUSH_GLOBAL).map(drop)),
        ("reg_mr", pd.alloc(64, Access::ON_DEMAND).map(drop)),
        ("reg_dmabuf_mr", {
            let file = std::fs::File::open("/dev/null")?;
            pd.register_dmabuf(&file, 0, 64, 0, Access::LOCAL_WRITE)
                .map(drop)
        }),
    ];
    for (operation, outcome) in refusals {
        let error = outcome.expect_err(operation);
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
        assert_eq!(error.operation(), operation);
    }
    let attr = QpAttr::new(&pd);
    pd.create_qp(&attr.clone().send_cq(&cq).max_recv_wr(0))?;
    let receives_only = attr.recv_cq(&cq).max_send_wr(0);
    let error = pd
        .create_qp(&receives_only)
        .expect_err("siw wants a send queue");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(cq.completions().count(), 0);
    srq.post(1, &[buffer.slice(..)?])?;
    Ok(Outcome::Pass)
}
