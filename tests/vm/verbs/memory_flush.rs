//! Flushing the peer's memory.

use rdmacm::{
    Access, Buffer, CompletionStatus, ErrorKind, FlushPlacement, Opcode, Pd, PostError,
    RemoteAddress, Result,
};

use super::{OneWay, next_success};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{ANY_ACCESS, Pair, Plan, assert_holds, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        what_was_written_is_flushed,
        flushes_over_a_connection_of_the_connection_manager,
        flushes_need_access_to_the_memory_and_of_the_queue_pair,
        persistence_needs_persistent_memory,
        flushes_where_there_are_none,
    ]
}

/// Bytes that are written before they are flushed fit inline.
const INLINE: u32 = 16;

impl OneWay {
    /// How a flush of some bytes, or of the whole region, ends.
    fn flush(&mut self, at: RemoteAddress, length: Option<u32>) -> Result<CompletionStatus> {
        let mut batch = self.near.send_half().batch();
        let flush = batch.flush(2, at, FlushPlacement::Global).signaled();
        match length {
            Some(length) => flush.range(length)?,
            None => flush.region()?,
        }
        batch.submit()?;
        let ended = next_completion(&mut self.cq)?.result().map(drop);
        Ok(ended.map_or_else(|failure| failure.status, |()| CompletionStatus::Success))
    }
}

const FLUSHABLE: Access = Access::REMOTE_WRITE.union(Access::FLUSH_GLOBAL);

fn flushable(pd: &Pd) -> Result<Buffer> {
    pd.alloc(64, ANY_ACCESS | Access::FLUSH_GLOBAL)
}

fn has_flushes(pd: &Pd) -> Result<bool> {
    Ok(pd.context().attr()?.has_flush_global())
}

fn skip() -> TestResult {
    Ok(environment::skip("no flush"))
}

fn what_was_written_is_flushed() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    if !has_flushes(&pd)? {
        return skip();
    }
    let memory = flushable(&pd)?;
    let mut line = OneWay::new(&pd, INLINE, FLUSHABLE)?;
    for (length, text) in [
        (Some(5), b"range"),
        (Some(64), b"whole"),
        (Some(0), b"empty"),
        (None, b"level"),
    ] {
        let at = memory.remote();
        let mut batch = line.near.send_half().batch();
        batch.write(1, at).inline(text)?;
        let flush = batch.flush(2, at, FlushPlacement::Global);
        let flush = flush.signaled().fence();
        match length {
            Some(length) => flush.range(length)?,
            None => flush.region()?,
        }
        batch.submit()?;
        let done = next_success(&mut line.cq)?;
        assert_eq!((done.wr_id(), done.result()?.opcode()), (2, Opcode::Flush));
        assert_holds(&memory, 0, text);
    }
    Ok(Outcome::Pass)
}

/// Its queue pairs let peers flush, where the device can.
fn flushes_over_a_connection_of_the_connection_manager() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    if !has_flushes(&server.pd)? {
        return skip();
    }
    let memory = flushable(&server.pd)?;
    let at = memory.remote();
    client.post(|batch| {
        batch
            .flush(1, at, FlushPlacement::Global)
            .signaled()
            .range(8)
    })?;
    assert_eq!(client.sent()?.result()?.opcode(), Opcode::Flush);
    Ok(Outcome::Pass)
}

fn flushes_need_access_to_the_memory_and_of_the_queue_pair() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    if !has_flushes(&pd)? {
        return skip();
    }
    let (memory, other) = (flushable(&pd)?, pd.alloc(64, ANY_ACCESS)?);
    for (at, length) in [
        (other.remote(), Some(8)),
        (other.remote(), None),
        (memory.remote().at(60), Some(8)),
    ] {
        let mut line = OneWay::new(&pd, INLINE, FLUSHABLE)?;
        let status = line.flush(at, length)?;
        assert_eq!(status, CompletionStatus::RemoteAccess, "{at:?} {length:?}");
    }
    let mut line = OneWay::new(&pd, INLINE, Access::REMOTE_WRITE)?;
    let status = line.flush(memory.remote(), Some(8))?;
    assert_eq!(status, CompletionStatus::RemoteInvalidRequest);
    Ok(Outcome::Pass)
}

/// Ordinary memory is none, and says so when it is registered.
fn persistence_needs_persistent_memory() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let refused = pd
        .alloc(64, ANY_ACCESS | Access::FLUSH_PERSISTENT)
        .map(drop);
    refused.expect_err("the memory is not persistent");
    if !has_flushes(&pd)? {
        return skip();
    }
    let memory = flushable(&pd)?;
    for placement in [
        FlushPlacement::Persistent,
        FlushPlacement::GlobalAndPersistent,
    ] {
        let mut line = OneWay::new(&pd, INLINE, FLUSHABLE | Access::FLUSH_PERSISTENT)?;
        let mut batch = line.near.send_half().batch();
        batch.flush(1, memory.remote(), placement).range(8)?;
        batch.submit()?;
        let failure = next_completion(&mut line.cq)?
            .result()
            .expect_err("refused");
        assert_eq!(
            failure.status,
            CompletionStatus::RemoteAccess,
            "{placement:?}"
        );
    }
    Ok(Outcome::Pass)
}

/// Request and registration are refused, and the queue pair is none the worse for it.
fn flushes_where_there_are_none() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    if has_flushes(&pd)? {
        return Ok(environment::skip("flushes"));
    }
    let refused = flushable(&pd).map(drop).expect_err("there are no flushes");
    println!("{refused}");
    let memory = pd.alloc(8, ANY_ACCESS)?;
    let mut line = OneWay::new(&pd, INLINE, Access::REMOTE_WRITE)?;
    let mut batch = line.near.send_half().batch();
    let refused = batch
        .flush(1, memory.remote(), FlushPlacement::Global)
        .region();
    assert_eq!(refused, Err(PostError::NoFlush));
    let error = rdmacm::Error::from(PostError::NoFlush);
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    batch
        .write(2, memory.remote())
        .signaled()
        .inline(b"goes on")?;
    batch.submit()?;
    assert_eq!(next_success(&mut line.cq)?.wr_id(), 2);
    Ok(Outcome::Pass)
}
