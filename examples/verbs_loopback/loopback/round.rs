//! One round: everything is posted, completes as it was planned, and the memory is as it is to be.

use std::collections::{HashMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Access, Completion, GRH_LENGTH, Opcode, Success};

use super::Result;
use super::phase::Phase;
use super::request::{Message, Receive, Request, Round, users};
use super::side::{post, post_receives};

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Marks the numbers of receives.
const RECEIVE: u64 = 1 << 63;

/// What is outstanding.
#[derive(Default)]
pub struct Books {
    /// The last number that was given to a request or a receive.
    number: u64,
    /// The requests of each side whose completions are to come, in order.
    pub requests: [VecDeque<Expected>; 2],
    /// Receives that were posted.
    pub receives: HashMap<u64, Receive>,
    /// The same, in order, of the queue that each side has of its own.
    pub order: [VecDeque<u64>; 2],
    /// Messages that are on their way to each side.
    pub under_way: [usize; 2],
}

/// A completion that is to come.
pub struct Expected {
    pub wr_id: u64,
    pub opcode: Opcode,
    pub length: usize,
}

impl Books {
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn is_clear(&self) -> bool {
        self.requests.iter().all(VecDeque::is_empty) && self.under_way == [0, 0]
    }
}

impl Phase<'_> {
    /// Runs a round of at most so many operations. Returns how many there were.
    pub fn round(&mut self, most: usize) -> Result<usize> {
        let round = self.planner.round(most);
        self.carry_out(round)
    }

    /// Posts a round, waits until all of it is over, and compares.
    pub fn carry_out(&mut self, mut round: Round) -> Result<usize> {
        let (requests, receives) = (round.requests.clone(), round.receives.clone());
        for (side, at, bytes) in &round.fills {
            self.sides[*side].buffer.write(*at, bytes)?;
        }
        for side in 0..2 {
            let receives = std::mem::take(&mut round.receives[side]);
            self.post_receives(side, receives)?;
        }
        let mut left = std::mem::take(&mut round.requests).map(VecDeque::from);
        let count = left.iter().map(VecDeque::len).sum();
        while left.iter().any(|requests| !requests.is_empty()) {
            let side = self.planner.random.below(2);
            let length = (1 + self.planner.random.below(8)).min(left[side].len());
            let batch: Vec<Request> = left[side].drain(..length).collect();
            self.post_batch(side, batch)?;
            if self.chance.once_in(3) {
                self.poll_all(&mut round)?;
            }
        }
        self.finish(&mut round)?;
        self.compare(&requests, &receives)?;
        Ok(count)
    }

    pub fn post_receives(&mut self, side: usize, receives: Vec<Receive>) -> Result<()> {
        let numbered: Vec<(u64, Receive)> = receives
            .into_iter()
            .map(|receive| (self.books.next_number() | RECEIVE, receive))
            .collect();
        post_receives(&mut self.sides[side], self.srq.as_mut(), &numbered)?;
        for (wr_id, receive) in numbered {
            self.books.receives.insert(wr_id, receive);
            if self.srq.is_none() {
                self.books.order[side].push_back(wr_id);
            }
        }
        Ok(())
    }

    fn post_batch(&mut self, side: usize, batch: Vec<Request>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let numbered: Vec<(u64, Request)> = batch
            .into_iter()
            .map(|request| (self.books.next_number(), request))
            .collect();
        let window_access = self.access - Access::MW_BIND;
        post(&mut self.sides, side, &numbered, window_access)?;
        for (wr_id, request) in numbered {
            let (kind, opcode) = request.kind();
            self.report.count(self.service, kind, request.length);
            self.books.under_way[1 - side] += usize::from(request.is_message());
            if request.flags.contains(rdmacm::SendFlags::SIGNALED) {
                self.books.requests[side].push_back(Expected {
                    wr_id,
                    opcode,
                    length: request.length,
                });
            }
        }
        Ok(())
    }

    /// Waits until everything has completed.
    fn finish(&mut self, round: &mut Round) -> Result<()> {
        let mut last = Instant::now();
        while !self.books.is_clear() {
            if self.events {
                let queue = self.queue_to_wait_at();
                let taken = self.wait_at(queue)?;
                self.take_all(&taken, round)?;
            } else if self.poll_all(round)? {
                last = Instant::now();
            } else if last.elapsed() < PATIENCE {
                thread::yield_now();
            } else {
                return Err(self.stuck().into());
            }
        }
        if self.poll_all(round)? {
            return Err("there are completions of nothing".into());
        }
        Ok(())
    }

    /// A queue to which a completion is to come.
    fn queue_to_wait_at(&self) -> usize {
        for (side, end) in self.sides.iter().enumerate() {
            if !self.books.requests[side].is_empty() {
                return end.queues[0];
            }
            if self.books.under_way[side] > 0 {
                return end.queues[1];
            }
        }
        0
    }

    /// Sleeps until a queue has completions.
    pub fn wait_at(&mut self, queue: usize) -> Result<Vec<Completion>> {
        let mut entries = [Completion::default(); 16];
        let length = 1 + self.chance.below(entries.len());
        let waited = self.cqs[queue].wait(&mut entries[..length], Some(PATIENCE));
        match waited {
            Ok(taken) => Ok(taken.to_vec()),
            Err(error) => Err(format!("{error}; {}", self.stuck()).into()),
        }
    }

    pub fn stuck(&self) -> String {
        let requests = [0, 1].map(|side| self.books.requests[side].len());
        format!(
            "nothing completes; outstanding are {requests:?} signaled requests of the two sides, and \
             {:?} messages to them",
            self.books.under_way
        )
    }

    /// Takes some completions of each queue. False when there were none.
    pub fn poll_all(&mut self, round: &mut Round) -> Result<bool> {
        let mut any = false;
        for queue in 0..self.cqs.len() {
            let taken = self.poll(queue);
            any |= !taken.is_empty();
            self.take_all(&taken, round)?;
        }
        Ok(any)
    }

    pub fn poll(&mut self, queue: usize) -> Vec<Completion> {
        let mut entries = [Completion::default(); 16];
        let length = 1 + self.chance.below(entries.len());
        self.cqs[queue].poll(&mut entries[..length]).to_vec()
    }

    fn take_all(&mut self, taken: &[Completion], round: &mut Round) -> Result<()> {
        for completion in taken {
            let side = self.side_of(completion)?;
            let success = completion
                .result()
                .map_err(|failure| format!("side {side}: {failure}"))?;
            match completion.wr_id() & RECEIVE {
                0 => self.take_request(side, completion.wr_id(), &success),
                _ => self.take_message(side, completion.wr_id(), &success, round),
            }?;
            self.report.completions += 1;
            self.report.checks += 1;
        }
        Ok(())
    }

    /// Whose queue pair a completion is of.
    pub fn side_of(&self, completion: &Completion) -> Result<usize> {
        let number = completion.qp_num();
        let found = self
            .sides
            .iter()
            .position(|side| side.qp.number() == number);
        found.ok_or_else(|| {
            format!("a completion of the queue pair {number:#x}, which is none").into()
        })
    }

    fn take_request(&mut self, side: usize, wr_id: u64, success: &Success<'_>) -> Result<()> {
        let requests = &mut self.books.requests[side];
        let expected = match self.planner.abilities.completes_in_order {
            true => requests.pop_front(),
            false => {
                let at = requests.iter().position(|request| request.wr_id == wr_id);
                at.and_then(|at| requests.remove(at))
            }
        };
        let expected = expected.ok_or_else(|| {
            format!("side {side}: request {wr_id} completed, which nobody waits for")
        })?;
        if (wr_id, success.opcode()) != (expected.wr_id, expected.opcode) {
            return Err(format!(
                "side {side}: request {wr_id} completed as {:?}; the next was to be {} as {:?}",
                success.opcode(),
                expected.wr_id,
                expected.opcode
            )
            .into());
        }
        let tells_length = expected.opcode == Opcode::Read;
        if tells_length && success.byte_len() as usize != expected.length {
            return Err(format!(
                "side {side}: read {wr_id} is of {} bytes and completed with {}",
                expected.length,
                success.byte_len()
            )
            .into());
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        side: usize,
        wr_id: u64,
        success: &Success<'_>,
        round: &mut Round,
    ) -> Result<()> {
        let message = match self.books.under_way[side] {
            0 => None,
            _ => round.messages[side].pop_front(),
        };
        let message = message.ok_or_else(|| format!("side {side}: a message that nobody sent"))?;
        self.books.under_way[side] -= 1;
        if self.srq.is_none() && self.books.order[side].pop_front() != Some(wr_id) {
            return Err(format!("side {side}: a receive was taken out of turn").into());
        }
        let receive = self.books.receives.remove(&wr_id);
        let receive =
            receive.ok_or_else(|| format!("side {side}: a receive that was not posted"))?;
        self.check_message(side, &message, success)?;
        if let Some(window) = message.closed {
            let window = &mut self.sides[side].windows[window];
            let key = window.rkey();
            window.set_rkey(key)?;
        }
        self.place(&receive, &message)
    }

    fn check_message(&self, side: usize, message: &Message, success: &Success<'_>) -> Result<()> {
        let closed = message
            .closed
            .map(|window| self.sides[side].windows[window].rkey());
        let expected = (message.opcode, message.immediate, closed);
        let actual = (success.opcode(), success.immediate(), success.invalidated());
        if actual != expected || success.byte_len() as usize != message.length {
            return Err(format!(
                "side {side}: a message came as {actual:?} of {} bytes; it was to be {expected:?} of {}",
                success.byte_len(),
                message.length
            )
            .into());
        }
        let is_datagram = self.sides[side].handle.is_some();
        if is_datagram && success.source_qp() != self.sides[1 - side].qp.number() {
            return Err(format!("side {side}: a datagram from {:#x}", success.source_qp()).into());
        }
        Ok(())
    }

    /// Notes where a message is now.
    fn place(&mut self, receive: &Receive, message: &Message) -> Result<()> {
        let memory = &mut self.planner.memory;
        let mut places = &receive.places[..];
        if self.planner.abilities.header > 0 {
            // What is in front of a datagram is the device's.
            let header = receive.places[0].start;
            let there = self.sides[receive.side]
                .buffer
                .read_vec(header, GRH_LENGTH)?;
            memory.write(receive.side, header, &there);
            places = &places[1..];
        }
        memory.scatter(receive.side, places, &message.bytes);
        Ok(())
    }

    /// Compares the memory of both sides with what it is to be. Names what used the first wrong byte,
    /// of the requests and receives since the comparison before.
    pub fn compare(
        &mut self,
        requests: &[Vec<Request>; 2],
        receives: &[Vec<Receive>; 2],
    ) -> Result<()> {
        for (side, end) in self.sides.iter().enumerate() {
            let actual = end.buffer.read_vec(0, end.buffer.len())?;
            if let Err((at, text)) = self.planner.memory.compare(side, &actual) {
                let users = users(requests, receives, side, at).join("; ");
                return Err(format!("{text}; used by: {users}").into());
            }
            self.report.checks += 1;
        }
        Ok(())
    }
}
