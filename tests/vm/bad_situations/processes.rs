//! Children of a process that uses RDMA.

use std::process::{Command, ExitCode};
use std::thread;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rdmacm::{Access, Completion, ErrorKind, EventChannel, PortSpace, Result};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, Pair, Plan, QUIET, assert_holds};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_forked_child_disturbs_nothing,
        an_executed_child_inherits_nothing
    ]
}

/// F100.
fn a_forked_child_disturbs_nothing() -> TestResult {
    for ending in ["drop", "exit"] {
        let output = Command::new("/proc/self/exe")
            .args(["fork", ending])
            .output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ending}: {printed}");
    }
    Ok(Outcome::Pass)
}

/// Forks with a connection, which the child tries to use, and goes on: `vm fork drop|exit`.
pub fn fork_with_a_connection(args: &[String]) -> ExitCode {
    let drops = args.first().is_some_and(|ending| ending == "drop");
    match try_fork(drops) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_fork(drops: bool) -> Result<()> {
    let plan = Plan {
        inline: 16,
        ..Plan::default()
    };
    let mut pair = plan.connect()?;
    let target = pair.server.buffer(1)?.remote();
    exchange(&mut pair)?;
    // Nobody has taken this completion yet.
    pair.client
        .post(|batch| batch.write(9, target).signaled().from(&[]))?;
    thread::sleep(QUIET);
    // SAFETY: this process has one thread.
    match unsafe { fork() }.expect("a child can be made") {
        ForkResult::Child => {
            assert_refused(&mut pair.client);
            assert_fresh_start_works();
            if drops {
                drop(pair);
            }
            std::process::exit(0)
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).expect("the child ends");
            assert_eq!(status, WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(pair.client.sent()?.wr_id(), 9);
    for _ in 0..20 {
        exchange(&mut pair)?;
    }
    // All is still there to be destroyed.
    pair.client.id.destroy()?;
    pair.server.id.destroy()
}

/// Sends a message and checks that nothing else arrives.
fn exchange(pair: &mut Pair) -> Result<()> {
    let Pair { client, server } = pair;
    let inbox = server.buffer(16)?;
    server.post_recv(7, &inbox)?;
    client.post(|batch| batch.send(8).signaled().inline(b"from the parent"))?;
    let sent = client.sent()?;
    assert_eq!((sent.wr_id(), sent.result().map(drop)), (8, Ok(())));
    let received = server.received()?;
    assert_eq!((received.wr_id(), received.result()?.byte_len()), (7, 15));
    assert_holds(&inbox, 0, b"from the parent");
    Ok(())
}

/// Every use of what the parent made is an error that says why.
fn assert_refused(end: &mut End) {
    let mut entry = [Completion::default()];
    assert!(end.send_cq.poll(&mut entry).is_empty(), "{entry:?}");
    let outcomes = [
        ("create_id", end.channel.create_id(PortSpace::Tcp).map(drop)),
        ("disconnect", end.id.disconnect()),
        ("alloc", end.pd.alloc(1, Access::LOCAL_WRITE).map(drop)),
        ("arm", end.send_cq.arm(false)),
        ("wait", end.send_cq.wait(&mut entry, Some(QUIET)).map(drop)),
        (
            "completion_channel",
            end.pd.context().completion_channel().map(drop),
        ),
        ("query_state", end.qp.query_state().map(drop)),
        (
            "send",
            end.post(|batch| batch.send(66).signaled().inline(b"from the child"))
                .map_err(Into::into),
        ),
        ("recv", end.qp.recv_half().post(66, &[]).map_err(Into::into)),
    ];
    for (name, outcome) in outcomes {
        let error = outcome.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}: {error}");
        assert!(error.to_string().contains("fork"), "{name}: {error}");
    }
}

/// The child opens its own.
fn assert_fresh_start_works() {
    let plan = Plan {
        inline: 16,
        ..Plan::default()
    };
    let mut own = plan.connect().expect("the child can connect");
    exchange(&mut own).expect("and send");
}

/// F104: descriptors are closed when another program is executed.
fn an_executed_child_inherits_nothing() -> TestResult {
    let before = descriptors_of_a_child()?;
    let pair = Plan::default().connect()?;
    let context = environment::context();
    let events = context.async_events()?;
    let channel = EventChannel::open()?;
    assert_eq!(descriptors_of_a_child()?, before);
    drop((pair, events, channel));
    Ok(Outcome::Pass)
}

/// What the descriptors of a child that executes another program lead to.
fn descriptors_of_a_child() -> std::io::Result<Vec<String>> {
    let script = "for fd in /proc/self/fd/*; do readlink $fd; done";
    let output = Command::new("sh").args(["-c", script]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let without_numbers = text.lines().map(|line| match line.split_once(":[") {
        Some((kind, _)) => kind.to_owned(),
        None => line.to_owned(),
    });
    Ok(without_numbers.collect())
}
