//! Asynchronous events, and whom they are about.

use std::io;
use std::net::IpAddr;
use std::process::Command;

use rdmacm::{
    Access, AsyncEvent, AsyncEvents, Buffer, CompletionStatus, Cq, ErrorKind, GidEntry, Pd,
    PortState, Qp, QpAttr, QpModify, QpState, Result, Srq,
};

use super::shared_queues::{Line, SIZE};
use super::{connect, next_success, own_path, queue};
use crate::bad_situations::second_device::SecondDevice;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{PATIENCE, QUIET, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_limit_names_its_queue_once,
        an_overflow_names_its_queue,
        the_last_receive_names_its_queue_pair,
        a_forbidden_access_names_its_queue_pair,
        a_port_goes_down_and_comes_back,
        an_address_comes_and_goes,
        a_later_stream_has_the_events_of_later_queues,
    ]
}

fn assert_quiet(events: &AsyncEvents) {
    let more = events.next_event(Some(QUIET));
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
}

/// Sends without bytes until a limit is reached.
fn reach_limit(line: &mut Line, srq: &mut Srq) -> Result<()> {
    for wr_id in 0..4 {
        srq.post(wr_id, &[])?;
    }
    srq.arm_limit(3)?;
    assert_eq!(srq.query()?.limit, 3);
    for wr_id in 0..3 {
        line.send(wr_id, &[])?;
        next_success(&mut line.near_cq)?;
        next_success(&mut line.far_cq)?;
    }
    Ok(())
}

fn a_limit_names_its_queue_once() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    let mut queues = [pd.create_srq(&SIZE)?, pd.create_srq(&SIZE)?];
    assert_ne!(queues[0].token(), queues[1].token());
    for srq in queues.iter_mut().rev() {
        let mut line = Line::new(&pd, srq)?;
        reach_limit(&mut line, srq)?;
        let reached = AsyncEvent::SrqLimitReached(srq.token());
        assert_eq!(events.next_event(Some(PATIENCE))?, reached);
        assert_quiet(&events);
    }
    Ok(Outcome::Pass)
}

/// Two connected queue pairs; the first reports to a queue of this size.
fn pair(pd: &Pd, entries: u32) -> Result<(Qp, Cq, Qp)> {
    let (near_cq, far_cq) = (queue(pd.context(), entries)?, queue(pd.context(), 64)?);
    let attr = QpAttr::new(pd);
    let near = pd.create_qp(&attr.clone().send_cq(&near_cq).recv_cq(&near_cq))?;
    let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
    let path = own_path(pd.context())?;
    connect(&near, &far, path)?;
    connect(&far, &near, path)?;
    Ok((near, near_cq, far))
}

/// Writes nothing, as often as it takes to overflow the completion queue by `lost` completions.
fn overflow(near: &mut Qp, near_cq: &Cq, memory: &Buffer, lost: u64) -> Result<()> {
    let mut batch = near.send_half().batch();
    for wr_id in 0..u64::from(near_cq.depth()) + lost {
        batch.write(wr_id, memory.remote()).signaled().from(&[])?;
    }
    Ok(batch.submit()?)
}

/// One event for each completion that is lost. The queue pair goes on, and so does the queue.
fn an_overflow_names_its_queue() -> TestResult {
    const LOST: u64 = 2;
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    let (mut near, mut near_cq, _far) = pair(&pd, 1)?;
    let memory = pd.alloc(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    for _ in 0..2 {
        overflow(&mut near, &near_cq, &memory, LOST)?;
        for _ in 0..LOST {
            let overflow = AsyncEvent::CqError(near_cq.token());
            assert_eq!(events.next_event(Some(PATIENCE))?, overflow);
        }
        assert_quiet(&events);
        for wr_id in 0..u64::from(near_cq.depth()) {
            assert_eq!(next_success(&mut near_cq)?.wr_id(), wr_id);
        }
    }
    Ok(Outcome::Pass)
}

/// rxe of 6.12 reports it, that of 6.1 does not.
fn the_last_receive_names_its_queue_pair() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    let srq = pd.create_srq(&SIZE)?;
    let lines = [Line::new(&pd, &srq)?, Line::new(&pd, &srq)?];
    for line in lines.iter().rev() {
        line.far.modify(&QpModify::to(QpState::Error))?;
        if !mlx5::is_under_test() && environment::kernel() < (6, 12) {
            assert_quiet(&events);
            return Ok(Outcome::Skip(
                "rxe of this kernel does not report the last receive".into(),
            ));
        }
        let last = AsyncEvent::LastWqeReached(line.far.token());
        assert_eq!(events.next_event(Some(PATIENCE))?, last);
        assert_quiet(&events);
    }
    Ok(Outcome::Pass)
}

/// mlx5 and rxe of 7.x report it, older ones do not.
fn a_forbidden_access_names_its_queue_pair() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let pd = context.alloc_pd()?;
    let (mut near, mut near_cq, far) = pair(&pd, 4)?;
    let private = pd.alloc(8, Access::LOCAL_WRITE)?;
    let mut batch = near.send_half().batch();
    batch
        .write(1, private.remote())
        .signaled()
        .from(&[private.slice(..)?])?;
    batch.submit()?;
    let refused = next_completion(&mut near_cq)?;
    let status = refused.result().expect_err("it is forbidden").status;
    assert_eq!(status, CompletionStatus::RemoteAccess);
    if !mlx5::is_under_test() && environment::kernel() < (7, 0) {
        assert_quiet(&events);
        return Ok(Outcome::Skip(
            "rxe of this kernel does not report forbidden accesses".into(),
        ));
    }
    let forbidden = AsyncEvent::QpAccessError(far.token());
    assert_eq!(events.next_event(Some(PATIENCE))?, forbidden);
    Ok(Outcome::Pass)
}

/// With an interface that nothing else needs.
fn a_port_goes_down_and_comes_back() -> TestResult {
    let second = SecondDevice::add()?;
    let context = second.open()?;
    // Whoever listens hears of a port.
    let streams = [context.async_events()?, context.async_events()?];
    for (state, expected) in [
        ("down", AsyncEvent::PortError { port: 1 }),
        ("up", AsyncEvent::PortActive { port: 1 }),
    ] {
        set_link(SecondDevice::INTERFACE, state)?;
        for events in &streams {
            assert_eq!(next_of_port(events)?, expected);
        }
        let is_active = context.port(1)?.state == PortState::Active;
        assert_eq!(is_active, state == "up");
    }
    drop((streams, context));
    Ok(Outcome::Pass)
}

/// The next event that is not about the GIDs, which change along with the link.
fn next_of_port(events: &AsyncEvents) -> Result<AsyncEvent> {
    loop {
        match events.next_event(Some(PATIENCE))? {
            AsyncEvent::GidChange { .. } => {}
            other => return Ok(other),
        }
    }
}

/// Takes an interface down or up.
pub fn set_link(interface: &str, state: &str) -> io::Result<()> {
    ip(&["link", "set", interface, state])
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let status = Command::new("ip").args(arguments).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments:?}: {status}"))),
    }
}

/// A GID for each address, in a place that it keeps.
fn an_address_comes_and_goes() -> TestResult {
    const PLACE: &str = "10.20.0.77/24";
    let address: IpAddr = [10, 20, 0, 77].into();
    let second = SecondDevice::add()?;
    let context = second.open()?;
    let events = context.async_events()?;
    let find = || -> Result<Option<GidEntry>> {
        let table = context.gids()?;
        Ok(table.into_iter().find(|entry| entry.gid.to_ip() == address))
    };
    assert_eq!(find()?, None);
    ip(&["addr", "add", PLACE, "dev", SecondDevice::INTERFACE])?;
    await_gid_change(&events, || Ok(find()?.is_some()))?;
    let entry = find()?.expect("it was there just now");
    assert_eq!(context.gid(entry.port, entry.index)?, Some(entry));
    ip(&["addr", "del", PLACE, "dev", SecondDevice::INTERFACE])?;
    await_gid_change(&events, || Ok(find()?.is_none()))?;
    assert_eq!(context.gid(entry.port, entry.index)?, None);
    drop((events, context));
    Ok(Outcome::Pass)
}

/// Reads events about the GIDs until something is so.
fn await_gid_change(events: &AsyncEvents, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    loop {
        let event = events.next_event(Some(PATIENCE))?;
        assert_eq!(event, AsyncEvent::GidChange { port: 1 });
        if is_so()? {
            return Ok(());
        }
    }
}

/// The kernel by itself would go on with the first stream, also when that is closed.
fn a_later_stream_has_the_events_of_later_queues() -> TestResult {
    let context = environment::context();
    let pd = context.alloc_pd()?;
    drop(context.async_events()?);
    let second = context.async_events()?;
    let third = match context.async_events() {
        Err(error) if mlx5::is_under_test() && error.kind() == ErrorKind::InvalidState => {
            return Ok(Outcome::Skip("an old kernel has one stream".into()));
        }
        stream => stream?,
    };
    let mut srq = pd.create_srq(&SIZE)?;
    let mut line = Line::new(&pd, &srq)?;
    reach_limit(&mut line, &mut srq)?;
    let expected = AsyncEvent::SrqLimitReached(srq.token());
    assert_eq!(second.next_event(Some(PATIENCE))?, expected);
    assert_quiet(&third);
    Ok(Outcome::Pass)
}
