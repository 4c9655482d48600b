//! Requests that carry out something at the peer besides moving bytes.

use std::thread;

use rdmacm::{
    Access, AtomicBuilder, Batch, Buffer, CompletionStatus, Opcode, Pd, PostError, RemoteAddress,
    Result, Segment,
};

use super::OneWay;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{ANY_ACCESS, Pair, Plan, assert_holds, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        atomics_answer_with_what_was_there_before,
        atomics_over_a_connection_of_the_connection_manager,
        many_atomics_of_two_queue_pairs_are_counted_exactly,
        atomics_beyond_the_memory_are_refused_by_the_peer,
        atomics_without_the_access_are_refused_by_the_peer,
        atomic_writes_put_eight_bytes_in_place,
        atomic_writes_where_there_are_none,
    ]
}

/// Two queue pairs, and the near side's memory for what atomics answer.
struct Line {
    ends: OneWay,
    answers: Buffer,
}

impl Line {
    /// `access` is what the far queue pair lets its peer do.
    fn new(pd: &Pd, access: Access) -> Result<Self> {
        Ok(Self {
            ends: OneWay::new(pd, 0, access)?,
            answers: pd.alloc(4096, Access::LOCAL_WRITE)?,
        })
    }

    /// Posts one atomic whose answer goes to the start of the near side's memory.
    fn post(
        &mut self,
        build: impl for<'b, 'q> FnOnce(&'b mut Batch<'q>) -> AtomicBuilder<'b, 'q>,
    ) -> Result<()> {
        let place = self.answers.slice(..8)?;
        let mut batch = self.ends.near.send_half().batch();
        build(&mut batch).signaled().into(place)?;
        Ok(batch.submit()?)
    }

    /// Carries out one atomic and returns its answer.
    fn atomic(
        &mut self,
        opcode: Opcode,
        build: impl for<'b, 'q> FnOnce(&'b mut Batch<'q>) -> AtomicBuilder<'b, 'q>,
    ) -> Result<u64> {
        self.post(build)?;
        let completion = next_completion(&mut self.ends.cq)?;
        let done = completion.result()?;
        assert_eq!((done.opcode(), done.byte_len()), (opcode, 8));
        number_at(&self.answers, 0)
    }
}

fn number_at(buffer: &Buffer, offset: usize) -> Result<u64> {
    let mut bytes = [0; 8];
    buffer.read(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Numbers whose halves and bytes differ, and those at which something begins.
const NUMBERS: [u64; 5] = [0, 1, 0x0102_0304_0506_0708, 1 << 63, u64::MAX];

fn atomics_answer_with_what_was_there_before() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut line = Line::new(&pd, Access::REMOTE_ATOMIC)?;
    let mut memory = pd.alloc(64, ANY_ACCESS)?;
    for offset in [8, 56] {
        memory.write(0, &[0xee; 64])?;
        let at = memory.remote().at(offset as u64);
        for before in NUMBERS {
            for operand in NUMBERS {
                memory.write(offset, &before.to_ne_bytes())?;
                let answer = line.atomic(Opcode::FetchAdd, |b| b.fetch_add(1, at, operand))?;
                let sum = before.wrapping_add(operand);
                assert_eq!((answer, number_at(&memory, offset)?), (before, sum));

                let swap = !operand;
                let answer = line.atomic(Opcode::CompareSwap, |b| {
                    b.compare_swap(2, at, operand, swap)
                })?;
                let now = if sum == operand { swap } else { sum };
                assert_eq!((answer, number_at(&memory, offset)?), (sum, now));
            }
        }
        assert_holds(&memory, offset - 8, &[0xee; 8]);
    }
    assert_holds(&memory, 0, &[0xee; 56]);
    Ok(Outcome::Pass)
}

/// The connection manager's queue pairs allow atomics, and its depths count for them.
fn atomics_over_a_connection_of_the_connection_manager() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let (own, other) = (client.buffer(64)?, server.buffer(64)?);
    let (place, at) = (own.slice(8..16)?, other.remote().at(16));
    client.post(|batch| batch.fetch_add(1, at, 40).signaled().into(place))?;
    assert_eq!(client.sent()?.result()?.opcode(), Opcode::FetchAdd);
    let (place, at) = (other.slice(..8)?, own.remote());
    server.post(|batch| batch.compare_swap(2, at, 0, 41).signaled().into(place))?;
    assert_eq!(server.sent()?.result()?.opcode(), Opcode::CompareSwap);
    assert_eq!((number_at(&other, 16)?, number_at(&own, 0)?), (40, 41));
    Ok(Outcome::Pass)
}

/// Two queue pairs add to one number at the same time, more requests than may be under way. Each
/// answer is another number, and none is missing.
fn many_atomics_of_two_queue_pairs_are_counted_exactly() -> TestResult {
    const EACH: usize = 300;
    let pd = environment::context().alloc_pd()?;
    let memory = pd.alloc(8, ANY_ACCESS)?;
    let at = memory.remote();
    let mut lines = [
        Line::new(&pd, Access::REMOTE_ATOMIC)?,
        Line::new(&pd, Access::REMOTE_ATOMIC)?,
    ];
    let answers: Vec<Result<Vec<u64>>> = thread::scope(|scope| {
        let adding: Vec<_> = lines
            .iter_mut()
            .map(|line| scope.spawn(move || line.add_many(at, EACH)))
            .collect();
        let joined = adding.into_iter().map(|thread| thread.join());
        joined
            .map(|done| done.expect("it does not panic"))
            .collect()
    });
    let answers: Result<Vec<_>> = answers.into_iter().collect();
    let mut answers = answers?.concat();
    answers.sort_unstable();
    let expected: Vec<u64> = (0..2 * EACH as u64).collect();
    assert_eq!(answers, expected);
    assert_eq!(number_at(&memory, 0)?, 2 * EACH as u64);
    Ok(Outcome::Pass)
}

impl Line {
    /// Adds 1 so many times, a batch at a time.
    fn add_many(&mut self, at: RemoteAddress, count: usize) -> Result<Vec<u64>> {
        const AT_A_TIME: usize = 10;
        let mut answers = Vec::new();
        for _ in 0..count / AT_A_TIME {
            let places =
                (0..AT_A_TIME).map(|number| self.answers.slice(8 * number..8 * number + 8));
            let places: Vec<Segment> = places.collect::<Result<_>>()?;
            let mut batch = self.ends.near.send_half().batch();
            for (number, place) in (0..).zip(places) {
                batch.fetch_add(number, at, 1).signaled().into(place)?;
            }
            batch.submit()?;
            for number in 0..AT_A_TIME {
                let completion = next_completion(&mut self.ends.cq)?;
                completion.result()?;
                assert_eq!(completion.wr_id(), number as u64, "in order");
                answers.push(number_at(&self.answers, 8 * number)?);
            }
        }
        Ok(answers)
    }
}

fn atomics_beyond_the_memory_are_refused_by_the_peer() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let memory = pd.alloc(64, ANY_ACCESS)?;
    let at = memory.remote();
    let foreign = RemoteAddress {
        rkey: at.rkey ^ 0x100,
        ..at
    };
    for at in [at.at(1 << 20), at.at(8u64.wrapping_neg()), foreign] {
        assert_refused(&pd, Access::REMOTE_ATOMIC, at)?;
        assert_holds(&memory, 0, &[0; 64]);
    }
    Ok(Outcome::Pass)
}

fn atomics_without_the_access_are_refused_by_the_peer() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let memory = pd.alloc(64, ANY_ACCESS - Access::REMOTE_ATOMIC)?;
    assert_refused(&pd, Access::REMOTE_ATOMIC, memory.remote())?;
    assert_holds(&memory, 0, &[0; 64]);
    Ok(Outcome::Pass)
}

/// Neither atomic is carried out there.
fn assert_refused(pd: &Pd, access: Access, at: RemoteAddress) -> Result<()> {
    for is_swap in [false, true] {
        let mut line = Line::new(pd, access)?;
        line.post(|batch| match is_swap {
            true => batch.compare_swap(7, at, 0, 1),
            false => batch.fetch_add(7, at, 1),
        })?;
        let failure = next_completion(&mut line.ends.cq)?
            .result()
            .expect_err("refused");
        assert_eq!(failure.status, CompletionStatus::RemoteAccess, "{at:?}");
    }
    Ok(())
}

fn atomic_writes_put_eight_bytes_in_place() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    if !pd.context().attr()?.has_atomic_write() {
        return Ok(environment::skip("no atomic write"));
    }
    let mut line = Line::new(&pd, Access::REMOTE_WRITE)?;
    let mut memory = pd.alloc(64, ANY_ACCESS)?;
    for offset in [0, 8, 56] {
        memory.write(0, &[0xee; 64])?;
        let to = memory.remote().at(offset as u64);
        for value in NUMBERS.map(u64::to_ne_bytes) {
            let mut batch = line.ends.near.send_half().batch();
            batch.atomic_write(3, to).signaled().bytes(value)?;
            batch.submit()?;
            let completion = next_completion(&mut line.ends.cq)?;
            let done = completion.result()?;
            assert_eq!((done.opcode(), done.byte_len()), (Opcode::AtomicWrite, 8));
            assert_holds(&memory, offset, &value);
        }
        assert_holds(&memory, 0, &[0xee; 64][..offset]);
        assert_holds(&memory, offset + 8, &[0xee; 64][offset + 8..]);
    }
    for to in [memory.remote().at(1 << 20), memory.remote().at(64)] {
        let mut line = Line::new(&pd, Access::REMOTE_WRITE)?;
        let mut batch = line.ends.near.send_half().batch();
        batch.atomic_write(4, to).bytes([0; 8])?;
        batch.submit()?;
        let failure = next_completion(&mut line.ends.cq)?
            .result()
            .expect_err("refused");
        assert_eq!(failure.status, CompletionStatus::RemoteAccess, "{to:?}");
    }
    Ok(Outcome::Pass)
}

/// The request is refused, and the queue pair is none the worse for it.
fn atomic_writes_where_there_are_none() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    if pd.context().attr()?.has_atomic_write() {
        return Ok(environment::skip("atomic writes"));
    }
    let mut line = Line::new(&pd, Access::REMOTE_ATOMIC)?;
    let memory = pd.alloc(8, ANY_ACCESS)?;
    let mut batch = line.ends.near.send_half().batch();
    let refused = batch.atomic_write(1, memory.remote()).bytes([1; 8]);
    assert_eq!(refused, Err(PostError::NoAtomicWrite));
    batch.submit()?;
    let at = memory.remote();
    assert_eq!(
        line.atomic(Opcode::FetchAdd, |batch| batch.fetch_add(2, at, 3))?,
        0
    );
    Ok(Outcome::Pass)
}
