//! Requests that are made to fail, and queue pairs that are reset.

use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{CompletionStatus, QpModify, QpState, QpType, RemoteAddress};

use super::Result;
use super::phase::Phase;
use super::request::Receive;

/// How long the last completion may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Completions that are to come, by their numbers, and how they are to end.
type Outstanding = Vec<(usize, u64, Fate)>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    RefusedByPeer,
    Flushed,
}

impl Phase<'_> {
    /// Ends the queue pairs, by a key that the peer does not know or just so, and begins anew. Those
    /// of the connection manager go on.
    pub fn mishap(&mut self) -> Result<()> {
        if self.meeting.is_some() {
            return Ok(());
        }
        let is_reliable = self.sides[0].qp.qp_type() == QpType::Rc;
        let mut outstanding = Outstanding::new();
        if self.srq.is_none() {
            self.post_receives_for_nothing(&mut outstanding)?;
        }
        if is_reliable && !self.planner.random.once_in(3) {
            let side = self.planner.random.below(2);
            self.write_with_wrong_key(side, &mut outstanding)?;
            let refused = |(_, _, fate): &(usize, u64, Fate)| *fate == Fate::RefusedByPeer;
            self.drain(&mut outstanding, |left| !left.iter().any(refused))?;
        }
        for side in &self.sides {
            side.qp.modify(&QpModify::to(QpState::Error))?;
        }
        self.drain(&mut outstanding, Vec::is_empty)?;
        self.compare(&Default::default(), &Default::default())?;
        for side in &self.sides {
            side.qp.modify(&QpModify::to(QpState::Reset))?;
        }
        self.make_windows()?;
        self.bring_up()
    }

    /// Posts receives that no message comes for.
    fn post_receives_for_nothing(&mut self, outstanding: &mut Outstanding) -> Result<()> {
        for side in 0..2 {
            let count = self
                .planner
                .random
                .below(self.planner.abilities.depth.min(6));
            let place = 0..self.planner.abilities.header + 8;
            let places = vec![place];
            self.post_receives(side, vec![Receive { side, places }; count])?;
            let posted = std::mem::take(&mut self.books.order[side]);
            for wr_id in posted {
                self.books.receives.remove(&wr_id);
                outstanding.push((side, wr_id, Fate::Flushed));
            }
        }
        Ok(())
    }

    /// Posts a write that the peer refuses, and some behind it that are not carried out.
    fn write_with_wrong_key(&mut self, side: usize, outstanding: &mut Outstanding) -> Result<()> {
        let right = self.sides[1 - side].buffer.remote();
        let wrong = RemoteAddress {
            rkey: right.rkey ^ 0x55,
            ..right
        };
        let count = 1 + self
            .planner
            .random
            .below(self.planner.abilities.depth.min(4));
        let numbers: Vec<u64> = (0..count).map(|_| self.books.next_number()).collect();
        let own = &mut self.sides[side];
        let source = own.buffer.slice(..64)?;
        let mut batch = own.qp.send_half().batch();
        for (index, wr_id) in numbers.iter().enumerate() {
            let (to, fate) = match index {
                0 => (wrong, Fate::RefusedByPeer),
                _ => (right, Fate::Flushed),
            };
            batch.write(*wr_id, to).signaled().from(&[source])?;
            outstanding.push((side, *wr_id, fate));
        }
        Ok(batch.submit()?)
    }

    /// Takes completions until `is_enough`; all must be of failures that are outstanding.
    fn drain(
        &mut self,
        outstanding: &mut Outstanding,
        is_enough: impl Fn(&Outstanding) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        while !is_enough(outstanding) {
            for queue in 0..self.cqs.len() {
                for completion in self.poll(queue) {
                    let side = self.side_of(&completion)?;
                    self.strike(side, &completion, outstanding)?;
                }
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("these are not flushed: {outstanding:?}").into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn strike(
        &mut self,
        side: usize,
        completion: &rdmacm::Completion,
        outstanding: &mut Outstanding,
    ) -> Result<()> {
        let wr_id = completion.wr_id();
        let at = outstanding
            .iter()
            .position(|(whose, number, _)| (*whose, *number) == (side, wr_id));
        let Some(at) = at else {
            return Err(
                format!("side {side}: {wr_id:#x} completed, which was not outstanding").into(),
            );
        };
        let (_, _, fate) = outstanding.remove(at);
        let expected = match fate {
            Fate::RefusedByPeer => CompletionStatus::RemoteAccess,
            Fate::Flushed => CompletionStatus::Flushed,
        };
        match completion.result() {
            Err(failure) if failure.status == expected => {}
            Err(failure) => {
                return Err(format!("side {side}: {failure}; it was to be: {expected}").into());
            }
            Ok(_) => {
                return Err(format!(
                    "side {side}: {wr_id:#x} was carried out; it was to be: {expected}"
                )
                .into());
            }
        }
        self.report.provoked += 1;
        self.report.completions += 1;
        self.report.checks += 1;
        Ok(())
    }
}
