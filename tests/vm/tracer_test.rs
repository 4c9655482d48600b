//! The tracer sees what programs do, and can make it fail.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::ioctl::object;
use rdmacm_kernel_abi::{ucma, uverbs};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::tracer::{Event, Trace, Tracer, Tracing};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        follows_children,
        stops_what_does_not_end,
        reports_a_missing_program,
        decodes_the_library,
        decodes_rping: 120 s,
        fails_one_call,
        kills_at_a_call,
    ]
}

fn follows_children() -> TestResult {
    let trace = Tracer::new("sh")
        .args(["-c", "(sh -c 'echo $$; exit 3')"])
        .run()?;
    let mut pids: Vec<i32> = trace.events.iter().map(|event| event.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert!(
        pids.contains(&trace.output.trim().parse()?),
        "{pids:?} {trace}"
    );
    assert_eq!(trace.status.code(), Some(3), "{trace}");
    assert_eq!(
        trace.count(|event| event.syscall == libc::SYS_exit_group),
        pids.len()
    );
    assert!(
        trace
            .events
            .iter()
            .enumerate()
            .all(|(index, event)| event.seq == index as u64)
    );
    Ok(Outcome::Pass)
}

fn stops_what_does_not_end() -> TestResult {
    let sleepers = ["-c", "sleep 30 & sleep 30"];
    let trace = Tracer::new("sh")
        .args(sleepers)
        .timeout(Duration::from_secs(1))
        .run()?;
    assert!(trace.timed_out, "{trace}");
    assert_eq!(trace.status.signal(), Some(libc::SIGKILL));
    Ok(Outcome::Pass)
}

fn reports_a_missing_program() -> TestResult {
    let error = Tracer::new("/nowhere").run().map(|trace| trace.status);
    assert_eq!(
        error.expect_err("no such file").kind(),
        io::ErrorKind::NotFound
    );
    Ok(Outcome::Pass)
}

fn decodes_the_library() -> TestResult {
    let trace = Tracer::own("hold").run()?;
    assert!(trace.status.success(), "{trace}");
    assert_eq!(trace.output, "ready\n");
    let pds = handles(&trace, Event::created, object::PD);
    assert_eq!(pds.len(), 1, "{trace}");
    assert_eq!(
        handles(&trace, Event::destroyed, object::PD),
        pds,
        "{trace}"
    );
    let bound = place(&trace, |event| event.is_cm(ucma::Command::Bind));
    let created = trace.events[..bound]
        .iter()
        .find_map(|event| event.cm()?.created);
    assert_eq!(
        trace.events[bound].cm().and_then(|command| command.id),
        created,
        "{trace}"
    );
    Ok(Outcome::Pass)
}

fn decodes_rping() -> TestResult {
    let server = start_rping_server()?;
    let client = Tracer::new("rping").args(rping("-c")).run()?;
    let server = server.wait()?;
    assert!(client.status.success(), "{client}");
    assert_right_order(&client);
    assert_nothing_is_left(&client);
    assert_accepts_what_was_requested(&server);

    assert!(
        client.count(|event| event.is_verbs(uverbs::Command::POST_SEND)) >= 2,
        "{client}"
    );
    let summary = client.summary();
    assert_eq!(summary.total, client.events.len());
    assert_eq!(summary.device["write rdma_cm"]["CONNECT"], 1, "{summary}");
    Ok(Outcome::Pass)
}

/// The arguments of one exchange of `rping`.
fn rping(role: &str) -> Vec<String> {
    let addr = environment::addr().to_string();
    [role, "-a", &addr, "-C", "1"].map(str::to_owned).to_vec()
}

/// Starts an rping server and waits until it listens.
fn start_rping_server() -> io::Result<Tracing> {
    let mut server = Tracer::new("rping").args(rping("-s")).start()?;
    server.wait_for(|event| event.is_cm(ucma::Command::Listen) && event.succeeded())?;
    Ok(server)
}

/// Checks that a client made and destroyed its id, its queue pair and its queue in this order.
fn assert_right_order(client: &Trace) {
    let resolve = place(client, |event| event.is_cm(ucma::Command::ResolveAddr));
    let id = client.events[resolve].cm().and_then(|command| command.id);
    let created = client.events[..resolve]
        .iter()
        .rev()
        .find_map(|event| event.cm()?.created);
    assert!(
        id.is_some() && created == id,
        "{created:?} {id:?}\n{client}"
    );

    // The library made and destroyed another id of the same number before, as a probe.
    let is_destroyed =
        |event: &Event| event.is_cm(ucma::Command::DestroyId) && event.seq > resolve as u64;
    let order = [
        resolve,
        place(client, |event| event.created(object::CQ).is_some()),
        place(client, |event| event.created(object::QP).is_some()),
        place(client, |event| event.is_cm(ucma::Command::Connect)),
        place(client, |event| event.destroyed(object::QP).is_some()),
        place(client, |event| event.destroyed(object::CQ).is_some()),
        place(client, is_destroyed),
    ];
    assert!(order.is_sorted(), "{order:?}\n{client}");
    assert_eq!(
        client.events[order[6]].cm().and_then(|command| command.id),
        id,
        "{client}"
    );
}

fn assert_nothing_is_left(client: &Trace) {
    for object in [object::PD, object::CQ, object::QP, object::MR] {
        let created = handles(client, Event::created, object);
        assert!(!created.is_empty(), "object {object}\n{client}");
        let destroyed = handles(client, Event::destroyed, object);
        assert_eq!(created, destroyed, "object {object}\n{client}");
    }
}

fn assert_accepts_what_was_requested(server: &Trace) {
    let requested = server.events.iter().find_map(|event| {
        let event = event.cm()?.event.as_ref()?;
        (event.kind == ucma::EventType::CONNECT_REQUEST).then_some(event.id)
    });
    let accept = place(server, |event| event.is_cm(ucma::Command::Accept));
    assert!(requested.is_some(), "{server}");
    assert_eq!(
        server.events[accept].cm().and_then(|command| command.id),
        requested,
        "{server}"
    );
}

fn place(trace: &Trace, condition: impl Fn(&Event) -> bool) -> usize {
    trace
        .position(condition)
        .unwrap_or_else(|| panic!("a call is missing\n{trace}"))
}

/// The sorted handles of the objects of a kind that were created or destroyed.
fn handles(trace: &Trace, of: fn(&Event, u16) -> Option<u32>, object: u16) -> Vec<u32> {
    let mut handles: Vec<u32> = trace
        .events
        .iter()
        .filter_map(|event| of(event, object))
        .collect();
    handles.sort_unstable();
    handles
}

fn fails_one_call() -> TestResult {
    // The first id is the C library's probe for AF_IB, which may fail.
    let trace = Tracer::new("rping")
        .args(rping("-c"))
        .inject(2, libc::ENOMEM, |event| {
            event.is_cm(ucma::Command::CreateId)
        })
        .run()?;
    let injected = trace.injected().expect("a call was made to fail");
    assert_eq!(injected.errno(), Some(libc::ENOMEM));
    assert_eq!(injected.cm().and_then(|command| command.created), None);
    assert!(!trace.status.success() && !trace.timed_out, "{trace}");
    let later = &trace.events[injected.seq as usize + 1..];
    assert!(later.iter().all(|event| event.cm().is_none()), "{trace}");
    Ok(Outcome::Pass)
}

fn kills_at_a_call() -> TestResult {
    let server = start_rping_server()?;
    let client = Tracer::new("rping")
        .args(rping("-c"))
        .kill_at(1, |event| event.is_cm(ucma::Command::Connect))
        .run()?;
    assert_eq!(client.status.signal(), Some(libc::SIGKILL), "{client}");
    let last = client.injected().expect("the call at which it was killed");
    assert_eq!(last.result, None, "{client}");
    server.kill();
    assert_eq!(server.wait()?.status.signal(), Some(libc::SIGKILL));
    Ok(Outcome::Pass)
}
