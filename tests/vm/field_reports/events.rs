//! Event loops of the program's own.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{Completion, Event};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Pair, Plan, QUIET, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        descriptors_stay_ready_until_read,
        a_handler_that_drops_everything
    ]
}

fn is_readable(fd: &impl AsFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).expect("some seconds");
    poll(&mut fds, timeout).expect("polling works") == 1
}

/// F37: taking completions while something else is waited for takes nobody's readiness away.
fn descriptors_stay_ready_until_read() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let mut server = server;
    let inbox = server.buffer(8)?;
    server.post_recv(1, &inbox)?;
    server.post_recv(2, &inbox)?;
    let completions = server.recv_cq.channel().expect("it has one").clone();
    server.recv_cq.arm(false)?;
    assert!(!is_readable(&completions, QUIET));
    assert!(!is_readable(&server.channel, QUIET));

    let outbox = client.buffer(8)?;
    let segment = outbox.slice(..)?;
    client.post(|batch| batch.send(3).signaled().from(&[segment]))?;
    client.sent()?.result()?;
    client.id.disconnect()?;
    assert!(is_readable(&completions, PATIENCE));
    assert!(is_readable(&server.channel, PATIENCE));

    // The completion is taken by somebody who did not wait for it.
    let mut entry = [Completion::default()];
    assert_eq!(server.recv_cq.poll(&mut entry).len(), 1);
    assert!(is_readable(&completions, QUIET));
    assert!(is_readable(&server.channel, QUIET));
    assert_eq!(completions.try_next_event()?, Some(server.recv_cq.token()));
    assert!(!is_readable(&completions, QUIET));

    // What comes after arming makes it ready again.
    server.recv_cq.arm(false)?;
    expect(&server.channel, "DISCONNECTED")?;
    server.id.disconnect()?;
    assert!(is_readable(&completions, PATIENCE));
    assert_eq!(server.received()?.wr_id(), 2);
    Ok(Outcome::Pass)
}

/// F38: what the loop still holds goes on working.
fn a_handler_that_drops_everything() -> TestResult {
    let plan = Plan::default();
    let listening = rdmacm::EventChannel::open()?;
    let listener = listen(&listening, plan.address)?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let server = plan.end(request(&listening)?.into_id(), listening)?;
    server.id.accept(&plan.answered)?;

    let event = client.channel.next_event(Some(PATIENCE))?;
    let handler = |event: &Event, client: End| {
        assert_eq!(event.name(), "ESTABLISHED");
        client.qp.destroy().expect("it can be destroyed");
        drop(client);
    };
    handler(&event, client);
    assert_eq!(event.name(), "ESTABLISHED");
    assert!(event.id().peer_addr().is_some());
    event.id().disconnect()?;
    drop(event);
    expect(&server.channel, "ESTABLISHED")?;
    expect(&server.channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}
