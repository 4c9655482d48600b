//! How long it takes to notice a silent peer, and to wait for large transfers.

use std::time::{Duration, Instant};

use rdmacm::{Buffer, CmId, CompletionStatus, ConnParam, EventChannel, PortSpace, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    End, PATIENCE, Pair, Plan, any_port, assert_holds, expect, listen, pattern, request,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_silent_peer_is_noticed_in_the_time_that_was_set,
        large_reads_of_two_connections_are_waited_for_in_turn: 120 s,
    ]
}

/// F110: 4.096 µs · 2^timeout for each attempt, and an end after the last.
fn a_silent_peer_is_noticed_in_the_time_that_was_set() -> TestResult {
    for (exponent, retries) in [(8, 1), (14, 1), (14, 6), (18, 1)] {
        let (mut client, _silent) = connected_to_silence(exponent, retries)?;
        let begin = Instant::now();
        client.post(|batch| batch.send(1).signaled().from(&[]))?;
        let failed = client.sent()?;
        let took = begin.elapsed();
        let status = failed.result().expect_err("nobody answers").status;
        assert_eq!(status, CompletionStatus::RetryExceeded);
        // The kernel counts in ticks, and the first may be nearly over.
        const TICK: Duration = Duration::from_millis(10);
        let attempt = Duration::from_nanos(4096 << exponent).saturating_sub(TICK);
        let least = attempt * (u32::from(retries) + 1);
        // How much longer it takes is up to the machine, which may be an emulated one.
        assert!(took >= least, "{exponent} and {retries}: {took:?}");
    }
    Ok(Outcome::Pass)
}

/// A client and its peer's id, which answers nothing, with a timeout and a number of retries of its own.
fn connected_to_silence(exponent: u8, retries: u8) -> Result<(End, CmId)> {
    let plan = Plan {
        asked: ConnParam::new().retry_count(retries),
        ..Plan::default()
    };
    let (accepting, asking) = (EventChannel::open()?, EventChannel::open()?);
    let listener = listen(&accepting, any_port())?;
    let id = asking.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, listener.local_addr().expect("it listens"), PATIENCE)?;
    expect(&asking, "ADDR_RESOLVED")?;
    id.set_ack_timeout(exponent)?;
    id.resolve_route(PATIENCE)?;
    expect(&asking, "ROUTE_RESOLVED")?;
    let client = plan.end(id, asking)?;
    client.id.connect(&plan.asked)?;
    let server = plan.end(request(&accepting)?.into_id(), accepting)?;
    server.id.accept(&plan.answered)?;
    expect(&client.channel, "ESTABLISHED")?;
    server.id.destroy_qp()?;
    // While the id is there, the client is not told.
    Ok((client, server.id))
}

/// F109: each wait hears of its completion. One that did not would last until patience ends.
fn large_reads_of_two_connections_are_waited_for_in_turn() -> TestResult {
    const READS: u64 = 6;
    let mut ends = [Reader::new(READS)?, Reader::new(READS)?];
    for wr_id in 0..READS {
        for reader in &mut ends {
            let done = reader.pair.client.sent()?;
            done.result()?;
            assert_eq!(done.wr_id(), wr_id);
        }
    }
    for reader in &ends {
        for target in &reader.targets {
            assert_holds(target, 0, &pattern(5, LENGTH));
        }
    }
    Ok(Outcome::Pass)
}

const LENGTH: usize = 1 << 18;

/// A connection whose client has large reads under way.
struct Reader {
    pair: Pair,
    targets: Vec<Buffer>,
    _source: Buffer,
}

impl Reader {
    fn new(reads: u64) -> Result<Self> {
        let mut pair = Plan::default().connect()?;
        let source = pair.server.buffer_of(&pattern(5, LENGTH))?;
        let targets = (0..reads)
            .map(|_| pair.client.buffer(LENGTH))
            .collect::<Result<Vec<_>>>()?;
        let segments = targets
            .iter()
            .map(|target| target.slice(..))
            .collect::<Result<Vec<_>>>()?;
        pair.client.post(|batch| {
            for (wr_id, segment) in (0..).zip(&segments) {
                let read = batch.read(wr_id, source.remote()).signaled();
                read.into(&[*segment])?;
            }
            Ok(())
        })?;
        Ok(Self {
            pair,
            targets,
            _source: source,
        })
    }
}
