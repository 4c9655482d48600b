//! The game itself, the same for all kinds of queue pairs.
//!
//! What to learn here:
//!
//! * What a queue pair waits for ([`Awaited`]): the peer's message *and* the completion of its own.
//!   Only then it sends again, so that its send queue needs room for one request.
//! * Receives are there before the peer can send, and are posted anew before they run out
//!   ([`Game::post_receives`]).
//! * Two ways to wait for completions ([`Game::completions`]): to sleep until the device reports
//!   one, or to ask again and again, which is faster and uses up a processor.

use std::hint;
use std::time::{Duration, Instant};

use rdmacm::{Completion, Cq, ErrorKind, Segment};

use crate::args::Options;
use crate::meeting::meet;
use crate::memory::Memory;
use crate::port::Port;
use crate::report::{self, Result};
use crate::wire::Address;

/// How often a program that polls does so before it looks at the clock.
const POLLS_BETWEEN_LOOKS: u32 = 10_000;

/// What the programs differ in: their queue pairs.
pub trait Players {
    /// How many addresses the two sides exchange. Those of queue pairs that are not there are
    /// empty.
    const ADDRESSES: usize = 1;

    /// What the C program prints in front of our GID.
    const BEFORE_GID: &'static str = ",";

    /// The numbers of the queue pairs.
    fn numbers(&self) -> Vec<u32>;

    /// Makes each queue pair ready to receive from its peer and to send to it.
    fn connect(&mut self, own: &[Address], peers: &[Address]) -> Result<()>;

    /// Posts a receive.
    fn post_receive(&mut self, wr_id: u64, inbox: Segment) -> Result<()>;

    /// Sends the message with one of the queue pairs.
    fn post_send(&mut self, wr_id: u64, player: usize, memory: &Memory) -> Result<()>;
}

/// What a request is for. Its number is the request's `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Receive = 1,
    Send = 2,
}

impl Work {
    fn of(completion: &Completion) -> Option<Self> {
        [Self::Receive, Self::Send]
            .into_iter()
            .find(|work| *work as u64 == completion.wr_id())
    }
}

/// What a queue pair waits for before it sends.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    message: bool,
    completion: bool,
}

impl Awaited {
    /// At the beginning, when the client has the first move.
    const MOVE_OF_PEER: Self = Self {
        message: true,
        completion: false,
    };

    /// After an own move.
    const BOTH: Self = Self {
        message: true,
        completion: true,
    };

    fn is_there(self) -> bool {
        !self.message && !self.completion
    }
}

/// Plays the whole game: meets the peer, exchanges messages, tells how fast that went.
pub fn play<P: Players>(
    options: &Options,
    port: &Port,
    cq: Cq,
    memory: Memory,
    players: P,
) -> Result<()> {
    let numbers = players.numbers();
    let own: Vec<Address> = numbers.iter().map(|number| port.address(*number)).collect();
    let mut game = Game {
        options,
        cq,
        // A queue pair has at most a receive and a send to tell of.
        entries: vec![Completion::default(); 2 * numbers.len()],
        memory,
        players,
        awaited: vec![Awaited::MOVE_OF_PEER; numbers.len()],
        numbers,
        receives: 0,
        sent: 0,
        received: 0,
    };
    game.post_receives()?;
    game.meet(own)?;
    let is_client = options.server.is_some();
    if is_client && options.validate {
        game.memory.mark()?;
    }
    let begin = Instant::now();
    if is_client {
        game.serve()?;
    }
    game.play()?;
    report::speed(game.memory.size(), options.count, begin.elapsed());
    if !is_client && options.validate {
        report::pages_without_mark(&game.memory.pages_without_mark()?)?;
    }
    Ok(())
}

struct Game<'a, P> {
    options: &'a Options,
    cq: Cq,
    entries: Vec<Completion>,
    memory: Memory,
    players: P,
    /// The numbers of the queue pairs.
    numbers: Vec<u32>,
    /// What each waits for.
    awaited: Vec<Awaited>,
    /// How many receives are posted.
    receives: u32,
    sent: u32,
    received: u32,
}

impl<P: Players> Game<'_, P> {
    /// Posts as many receives as there may be.
    fn post_receives(&mut self) -> Result<()> {
        let inbox = self.memory.inbox()?;
        while self.receives < self.options.depth {
            self.players.post_receive(Work::Receive as u64, inbox)?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Exchanges addresses with the peer, and connects.
    fn meet(&mut self, own: Vec<Address>) -> Result<()> {
        for address in &own {
            report::local(address, P::BEFORE_GID);
        }
        let mut told = own.clone();
        told.resize(P::ADDRESSES.max(own.len()), Address::NONE);
        let peers = meet(self.options, &told, |peers| {
            self.players.connect(&own, of_players(peers, own.len())?)
        })?;
        for address in of_players(&peers, own.len())? {
            report::remote(address);
        }
        Ok(())
    }

    /// The first move of each queue pair.
    fn serve(&mut self) -> Result<()> {
        (0..self.numbers.len()).try_for_each(|player| self.send(player))
    }

    fn play(&mut self) -> Result<()> {
        while self.sent < self.options.count || self.received < self.options.count {
            for index in 0..self.completions()? {
                self.take(self.entries[index])?;
            }
        }
        Ok(())
    }

    /// Waits for completions; returns how many there are.
    fn completions(&mut self) -> Result<usize> {
        let patience = self.options.patience();
        if !self.options.sleep {
            return poll(&mut self.cq, &mut self.entries, patience);
        }
        match self.cq.wait(&mut self.entries, patience) {
            Ok(taken) => Ok(taken.len()),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(SILENT.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let unknown = || format!("a completion that nobody asked for: {completion:?}");
        let work = Work::of(&completion).ok_or_else(unknown)?;
        if let Err(failure) = completion.result() {
            return Err(format!("{work:?} failed: {}", failure.status).into());
        }
        let number = completion.qp_num();
        let player = self.numbers.iter().position(|known| *known == number);
        let player = player.ok_or_else(unknown)?;
        match work {
            Work::Send => {
                self.sent += 1;
                self.awaited[player].completion = false;
            }
            Work::Receive => {
                self.received += 1;
                self.awaited[player].message = false;
                self.receives -= 1;
                // One for each queue pair is still there, and no peer is ahead by more.
                if self.receives as usize <= self.numbers.len() {
                    self.post_receives()?;
                }
            }
        }
        if self.awaited[player].is_there() && self.sent < self.options.count {
            self.send(player)?;
        }
        Ok(())
    }

    fn send(&mut self, player: usize) -> Result<()> {
        self.players
            .post_send(Work::Send as u64, player, &self.memory)?;
        self.awaited[player] = Awaited::BOTH;
        Ok(())
    }
}

const SILENT: &str = "the peer is silent; giving up";

/// Polls until there are completions. Now and then it looks at the clock.
fn poll(cq: &mut Cq, entries: &mut [Completion], patience: Option<Duration>) -> Result<usize> {
    let mut begin = None;
    loop {
        for _ in 0..POLLS_BETWEEN_LOOKS {
            let taken = cq.poll(entries).len();
            if taken > 0 {
                return Ok(taken);
            }
            hint::spin_loop();
        }
        let waited = begin.get_or_insert_with(Instant::now).elapsed();
        if patience.is_some_and(|patience| waited >= patience) {
            return Err(SILENT.into());
        }
    }
}

/// The addresses of the peer's queue pairs, which have to be as many as ours.
fn of_players(peers: &[Address], count: usize) -> Result<&[Address]> {
    let there = peers.iter().take_while(|peer| peer.qp_num != 0).count();
    match there == count {
        true => Ok(&peers[..count]),
        false => Err(format!("the peer has {there} queue pairs, and we have {count}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_must_have_as_many_queue_pairs() {
        let there = Address {
            qp_num: 17,
            ..Address::NONE
        };
        let peers = [there, there, Address::NONE, Address::NONE];
        assert_eq!(of_players(&peers, 2).unwrap(), [there; 2]);
        for count in [1, 3] {
            let error = of_players(&peers, count).unwrap_err().to_string();
            assert!(error.contains("has 2 queue pairs"), "{error}");
        }
        assert!(of_players(&[], 1).is_err());
    }
}
