//! Queues as small as they can be, over many laps: full exactly at their depth, and what becomes of
//! completions that do not fit.

use std::collections::VecDeque;

use rdmacm::{
    Access, AsyncEvent, AsyncEvents, Buffer, Completion, CompletionStatus, Cq, ErrorKind, Pd,
    PostError, Qp, QpAttr, QpState, Result, Srq, SrqAttr,
};

use super::{connect, next_success, own_path};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{PATIENCE, QUIET, assert_holds, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        small_queues_are_full_at_their_depth_on_every_lap: 120 s,
        small_queues_do_what_a_model_of_them_does: 120 s,
        the_smallest_completion_queue,
        a_batch_overflows_in_the_middle,
        a_receive_that_overflows_takes_its_queue_pair_along,
    ]
}

/// Depths to ask for. rxe has one slot more than it uses, and a power of two of them.
const DEPTHS: [u32; 4] = [1, 2, 3, 7];

fn granted(asked: u32) -> u32 {
    (asked + 1).next_power_of_two() - 1
}

/// Bytes of a message: its number.
const MESSAGE: usize = size_of::<u64>();

/// Two connected queue pairs whose queues are as small as their number of requests.
struct Small {
    /// Of the smallest of the queues. On rxe all have the same.
    depth: u32,
    send_depth: u32,
    recv_depth: u32,
    near: Qp,
    near_cq: Cq,
    far: Qp,
    far_cq: Cq,
    srq: Option<Srq>,
    inbox: Buffer,
}

impl Small {
    fn new(asked: u32, is_shared: bool) -> Result<Self> {
        let pd = environment::context().alloc_pd()?;
        let (near_cq, far_cq) = (small_cq(&pd, asked)?, small_cq(&pd, asked)?);
        let size = SrqAttr {
            max_wr: asked,
            max_sge: 1,
        };
        let srq = is_shared.then(|| pd.create_srq(&size)).transpose()?;
        let attr = QpAttr::new(&pd)
            .max_send_wr(asked)
            .max_recv_wr(asked)
            .max_inline_data(MESSAGE as u32);
        let near = pd.create_qp(&attr.clone().send_cq(&near_cq).recv_cq(&near_cq))?;
        let attr = match &srq {
            Some(srq) => attr.srq(srq),
            None => attr,
        };
        let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
        let path = own_path(pd.context())?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        let send_depth = near.capabilities().max_send_wr;
        let recv_depth = match &srq {
            Some(srq) => srq.depth(),
            None => far.capabilities().max_recv_wr,
        };
        let depths = [send_depth, recv_depth, near_cq.depth(), far_cq.depth()];
        if !mlx5::is_under_test() {
            assert_eq!(depths, [granted(asked); 4], "{asked} asked for");
        }
        let depth = depths.into_iter().min().expect("there are four");
        assert!(depth >= asked, "{depths:?} of {asked} asked for");
        Ok(Self {
            depth,
            send_depth,
            recv_depth,
            inbox: pd.alloc(MESSAGE * depth as usize, Access::LOCAL_WRITE)?,
            near,
            near_cq,
            far,
            far_cq,
            srq,
        })
    }

    /// Where the message of this number goes.
    fn place(&self, number: u64) -> usize {
        MESSAGE * (number % u64::from(self.depth)) as usize
    }

    fn receive(&mut self, number: u64) -> Result<(), PostError> {
        let place = self.place(number);
        let segment = self.inbox.slice(place..place + MESSAGE);
        let segment = segment.expect("the message has its place");
        match &mut self.srq {
            Some(srq) => srq.post(number, &[segment]),
            None => self.far.recv_half().post(number, &[segment]),
        }
    }

    /// Posts messages; the last of them must not fit where `overfill` says so.
    fn send(&mut self, numbers: std::ops::Range<u64>, overfill: bool) -> Result<()> {
        let full = Err(PostError::QueueFull {
            depth: self.send_depth,
        });
        let mut batch = self.near.send_half().batch();
        for number in numbers {
            let request = batch.send(number).signaled();
            request.inline(&number.to_ne_bytes())?;
        }
        if overfill {
            assert_eq!(batch.send(0).inline(&[]), full);
        }
        Ok(batch.submit()?)
    }

    fn assert_arrived(&self, number: u64) {
        assert_holds(&self.inbox, self.place(number), &number.to_ne_bytes());
    }
}

/// A completion queue of its own channel that holds the completions of that many requests.
fn small_cq(pd: &Pd, entries: u32) -> Result<Cq> {
    super::queue(pd.context(), entries)
}

/// Batches of every length up to the depth, so that each begins and ends at every slot.
fn small_queues_are_full_at_their_depth_on_every_lap() -> TestResult {
    for (asked, is_shared) in DEPTHS.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut small = Small::new(asked, is_shared)?;
        let depth = u64::from(small.depth);
        let mut next = 0;
        for lap in 0..40 {
            let batch = next..next + 1 + lap % depth;
            next = batch.end;
            let count = batch.end - batch.start;
            let is_full = |depth: u32| count == depth.into();
            for number in batch.clone() {
                small.receive(number)?;
            }
            let depth = small.recv_depth;
            if is_full(depth) {
                assert_eq!(small.receive(0), Err(PostError::QueueFull { depth }));
            }
            small.send(batch.clone(), is_full(small.send_depth))?;
            for number in batch {
                assert_eq!(next_success(&mut small.near_cq)?.wr_id(), number);
                assert_eq!(next_success(&mut small.far_cq)?.wr_id(), number);
                small.assert_arrived(number);
            }
        }
    }
    Ok(Outcome::Pass)
}

/// What the queues should hold.
#[derive(Default)]
struct Model {
    /// Receives without a message, messages on their way or arrived, and requests without a
    /// completion.
    receives: VecDeque<u64>,
    messages: VecDeque<u64>,
    requests: VecDeque<u64>,
    posted: u64,
    sent: u64,
}

/// Posts and polls in an order that chance gives: nothing is refused that fits, and all comes in
/// order.
fn small_queues_do_what_a_model_of_them_does() -> TestResult {
    for (asked, is_shared) in DEPTHS.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut small = Small::new(asked, is_shared)?;
        let (mut model, mut chance) = (Model::default(), Chance(asked.into()));
        for _ in 0..250 {
            match chance.below(4) {
                0 => post_receives(&mut small, &mut model, chance.below(4))?,
                1 => send_some(&mut small, &mut model, chance.below(4))?,
                2 => take(&mut small.near_cq, &mut model.requests, chance.below(4))?,
                _ => take(&mut small.far_cq, &mut model.messages, chance.below(4))?,
            }
        }
        let (requests, messages) = (model.requests.len(), model.messages.len());
        take(&mut small.near_cq, &mut model.requests, requests as u64)?;
        take(&mut small.far_cq, &mut model.messages, messages as u64)?;
        for cq in [&mut small.near_cq, &mut small.far_cq] {
            assert!(cq.poll(&mut [Completion::default()]).is_empty());
        }
    }
    Ok(Outcome::Pass)
}

/// Numbers without a pattern, the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A receive's slot is free when its message has come, and its completion needs room as well.
fn post_receives(small: &mut Small, model: &mut Model, count: u64) -> Result<()> {
    for _ in 0..count {
        if model.receives.len() + model.messages.len() < small.depth as usize {
            small.receive(model.posted)?;
            model.receives.push_back(model.posted);
            model.posted += 1;
        }
    }
    Ok(())
}

fn send_some(small: &mut Small, model: &mut Model, count: u64) -> Result<()> {
    let room = small.depth as usize - model.requests.len();
    let count = count.min(room as u64).min(model.receives.len() as u64);
    let numbers = model.sent..model.sent + count;
    model.sent = numbers.end;
    small.send(numbers.clone(), false)?;
    for number in numbers {
        assert_eq!(model.receives.pop_front(), Some(number));
        model.messages.push_back(number);
        model.requests.push_back(number);
    }
    Ok(())
}

/// Takes some of the completions that are due, which come in order.
fn take(cq: &mut Cq, due: &mut VecDeque<u64>, count: u64) -> Result<()> {
    for _ in 0..count.min(due.len() as u64) {
        assert_eq!(Some(next_success(cq)?.wr_id()), due.pop_front());
    }
    Ok(())
}

/// Of one entry, whose two slots are used in turn.
fn the_smallest_completion_queue() -> TestResult {
    let mut small = Small::new(1, false)?;
    assert_eq!(small.near_cq.depth(), 1);
    for number in 0..101 {
        small.receive(number)?;
        small.send(number..number + 1, false)?;
        for cq in [&mut small.near_cq, &mut small.far_cq] {
            assert_eq!(next_success(cq)?.wr_id(), number);
            assert!(cq.poll(&mut [Completion::default()]).is_empty());
        }
    }
    let none = environment::context().completion_queue(0).build();
    assert_eq!(none.map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    Ok(Outcome::Pass)
}

/// Waits until the device has told of so many lost completions, and no more.
fn await_losses(events: &AsyncEvents, cq: &Cq, count: usize) -> Result<()> {
    for _ in 0..count {
        let lost = AsyncEvent::CqError(cq.token());
        assert_eq!(events.next_event(Some(PATIENCE))?, lost);
    }
    let more = events.next_event(Some(QUIET));
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    Ok(())
}

/// Two completions are in a queue of three when a batch of five comes: its first one fits, the one
/// that nobody asked for takes no room, and the others are lost. The queue pair goes on.
fn a_batch_overflows_in_the_middle() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    let (mut cq, far_cq) = (small_cq(&pd, 3)?, small_cq(&pd, 1)?);
    let attr = QpAttr::new(&pd);
    let mut near = pd.create_qp(&attr.clone().send_cq(&cq).recv_cq(&cq))?;
    let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
    let path = own_path(&context)?;
    connect(&near, &far, path)?;
    connect(&far, &near, path)?;
    let target = pd.alloc(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    for _ in 0..3 {
        let mut batch = near.send_half().batch();
        for wr_id in [0, 1] {
            batch.write(wr_id, target.remote()).signaled().from(&[])?;
        }
        batch.submit()?;
        await_losses(&events, &cq, 0)?;
        let mut batch = near.send_half().batch();
        for wr_id in [2, 3, 4, 5] {
            batch.write(wr_id, target.remote()).signaled().from(&[])?;
            if wr_id == 2 {
                batch.write(99, target.remote()).from(&[])?;
            }
        }
        batch.submit()?;
        await_losses(&events, &cq, 3)?;
        for wr_id in 0..3 {
            assert_eq!(next_success(&mut cq)?.wr_id(), wr_id);
        }
        assert!(cq.poll(&mut [Completion::default()]).is_empty());
        assert_eq!(near.query_state()?, QpState::Rts);
    }
    Ok(Outcome::Pass)
}

/// The receiver of a message whose completion is lost does not acknowledge it, and fails.
fn a_receive_that_overflows_takes_its_queue_pair_along() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    for is_shared in [false, true] {
        let (mut near_cq, mut far_cq) = (small_cq(&pd, 8)?, small_cq(&pd, 1)?);
        let mut srq = is_shared
            .then(|| pd.create_srq(&SrqAttr::default()))
            .transpose()?;
        let attr = QpAttr::new(&pd);
        let mut near = pd.create_qp(&attr.clone().send_cq(&near_cq).recv_cq(&near_cq))?;
        let attr = match &srq {
            Some(srq) => attr.srq(srq),
            None => attr,
        };
        let mut far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
        let path = own_path(&context)?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        for wr_id in 0..2 {
            match &mut srq {
                Some(srq) => srq.post(wr_id, &[])?,
                None => far.recv_half().post(wr_id, &[])?,
            }
        }
        let mut batch = near.send_half().batch();
        for wr_id in 0..2 {
            batch.send(wr_id).signaled().from(&[])?;
        }
        batch.submit()?;
        next_success(&mut near_cq)?;
        let lost = next_completion(&mut near_cq)?;
        let failure = lost.result().expect_err("it is not acknowledged");
        assert_eq!(failure.status, CompletionStatus::RetryExceeded);
        assert_eq!(next_success(&mut far_cq)?.wr_id(), 0);
        assert_eq!(far.query_state()?, QpState::Error);
        let lost = AsyncEvent::CqError(far_cq.token());
        assert_eq!(events.next_event(Some(PATIENCE))?, lost);
        // Some kernels say of a queue pair on a shared queue that it has failed, some say it twice.
        let last = AsyncEvent::LastWqeReached(far.token());
        while let Ok(more) = events.next_event(Some(QUIET)) {
            assert!(is_shared && more == last, "{more:?}");
        }
    }
    Ok(Outcome::Pass)
}
