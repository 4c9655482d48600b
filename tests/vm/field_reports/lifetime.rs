//! What is left behind, and what is destroyed at the wrong time.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    ErrorKind, EventChannel, Listener, PortSpace, QpAttr, QpCapabilities, RejectReason, Result,
    Settings, Status,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, Usage, tests};
use crate::pair::{ANY_ACCESS, PATIENCE, Plan, QUIET, any_port, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_request_whose_queue_pair_cannot_be_made,
        two_hundred_rejections_leave_nothing: 180 s,
        one_queue_for_sends_and_receives,
        ten_thousand_refusals_leave_nothing: 300 s,
        connections_of_one_listener_are_alike,
        a_thousand_queue_pairs: 180 s,
        a_device_is_removed_under_its_users,
    ]
}

/// F06: the id goes without one, and its peer hears of it.
fn a_request_whose_queue_pair_cannot_be_made() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
    let id = request(&channel)?.into_id();
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(4).build()?;
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let refused = id.create_qp(&attr.max_send_wr(u32::MAX));
    assert!(refused.is_err(), "{refused:?}");
    drop(id);
    let rejected = expect(&client.channel, "REJECTED")?;
    let reason = Status::Rejected(RejectReason::CONSUMER_DEFINED);
    assert_eq!(rejected.status(), reason);
    Ok(Outcome::Pass)
}

/// F07.
fn two_hundred_rejections_leave_nothing() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let address = listener.local_addr().expect("it listens");
    let be_rejected = || -> Result<()> {
        let client = Plan::default().ask(address)?;
        request(&channel)?.id().reject(b"full")?;
        let rejected = expect(&client.channel, "REJECTED")?;
        let content = rejected.content().expect("it is no request");
        let said = &content.connection().private_data;
        assert!(said.starts_with(b"full"), "{said:?}");
        Ok(())
    };
    // The first one makes the device's shared protection domain.
    be_rejected()?;
    let before = Usage::now()?;
    for _ in 0..200 {
        be_rejected()?;
    }
    before.wait_until_restored(PATIENCE)?;
    Ok(Outcome::Pass)
}

/// F11: whichever goes first.
fn one_queue_for_sends_and_receives() -> TestResult {
    for queue_first in [true, false] {
        let id = resolved()?;
        let pd = id.protection_domain()?;
        let cq = pd.context().completion_queue(4).build()?;
        let qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        match queue_first {
            true => {
                drop(cq);
                id.destroy()?;
            }
            false => {
                id.destroy()?;
                cq.destroy()?;
            }
        }
        drop(qp);
    }
    Ok(Outcome::Pass)
}

fn resolved() -> Result<rdmacm::CmId> {
    crate::pair::resolve(&EventChannel::open()?, any_port())
}

/// F19: neither descriptors, which the harness counts, nor memory.
fn ten_thousand_refusals_leave_nothing() -> TestResult {
    let channel = EventChannel::open()?;
    let pd = environment::context().alloc_pd()?;
    let refusals = || -> Result<()> {
        let id = channel.create_id(PortSpace::Tcp)?;
        let refused = id.listen(0).and_then(|()| id.disconnect());
        refused.expect_err("nothing is connected");
        id.bind_addr((Ipv4Addr::new(192, 0, 2, 1), 0))
            .expect_err("no such address here");
        id.resolve_route(PATIENCE).expect_err("no address");
        // SAFETY: nothing is mapped there, so nothing is registered.
        let registered = unsafe { pd.register_raw(4096 as *mut u8, 4096, ANY_ACCESS) };
        registered.expect_err("nothing is mapped there");
        Ok(())
    };
    for _ in 0..500 {
        refusals()?;
    }
    let before = resident_pages();
    for _ in 0..2_000 {
        refusals()?;
    }
    let grown = resident_pages().saturating_sub(before);
    assert!(grown < 64, "{grown} pages more than before");
    Ok(Outcome::Pass)
}

/// Pages of this process in memory.
fn resident_pages() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.expect("a number of pages")
}

/// F98: each has what the listener's settings say, and queues of its own.
fn connections_of_one_listener_are_alike() -> TestResult {
    let settings = Settings::new().send_depth(4).recv_depth(4).segments(1);
    let listener = Listener::bind_with(any_port(), settings)?;
    let address = listener.local_addr().expect("it listens");
    let mut connections = Vec::new();
    let mut capabilities: Vec<QpCapabilities> = Vec::new();
    for _ in 0..3 {
        let (server, client) = thread::scope(|scope| {
            let accepting =
                scope.spawn(|| listener.incoming(Some(PATIENCE))?.prepare()?.establish());
            let client = rdmacm::Connector::new().connect(address);
            (accepting.join().expect("no panic"), client)
        });
        let server = server?;
        capabilities.push(server.capabilities());
        connections.push((server, client?));
    }
    assert_eq!(capabilities[0], capabilities[1]);
    assert_eq!(capabilities[0], capabilities[2]);

    // A message goes to one of them only.
    let (server, client) = &mut connections[1];
    let inbox = server.alloc(8)?;
    server.post_recv(1, inbox.slice(..)?)?;
    client.set_timeout(Some(PATIENCE));
    client.send(b"for one")?;
    server.set_timeout(Some(PATIENCE));
    assert_eq!(server.recv_completion()?.result()?.byte_len(), 7);
    let (other, _) = &mut connections[2];
    other.set_timeout(Some(QUIET));
    let nothing = other.recv_completion().expect_err("it was for another");
    assert_eq!(nothing.kind(), ErrorKind::TimedOut);
    Ok(Outcome::Pass)
}

/// F121: always, not only mostly.
fn a_thousand_queue_pairs() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let cq = pd.context().completion_queue(4).build()?;
    for _ in 0..1_000 {
        pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
    }
    Ok(Outcome::Pass)
}

/// F52: the kernel takes the device away when the last of its users has let go, which all can.
fn a_device_is_removed_under_its_users() -> TestResult {
    const NAME: &str = "rxe1";
    let added = rdma_link(&["add", NAME, "type", "rxe", "netdev", "dummy1"])?.wait()?;
    assert!(added.success(), "{added}");
    let devices = rdmacm::devices()?;
    let device = devices.iter().find(|device| device.name() == NAME);
    let context = device.expect("it was added").open()?;
    let channel = EventChannel::open()?;
    let id = listen(&channel, (environment::plain_addr(), 0).into())?;
    let pd = context.alloc_pd()?;
    let buffer = pd.alloc(4096, ANY_ACCESS)?;
    let cq = context.completion_queue(4).build()?;
    let qp = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;

    let mut removal = rdma_link(&["delete", NAME])?;
    thread::sleep(3 * QUIET);
    drop((buffer, qp, cq, pd, id));
    drop((channel, context));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match removal.try_wait()? {
            Some(status) => break status,
            None => assert!(Instant::now() < deadline, "the device is still in use"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    assert!(
        rdmacm::devices()?
            .iter()
            .all(|device| device.name() != NAME)
    );
    Ok(Outcome::Pass)
}

fn rdma_link(args: &[&str]) -> std::io::Result<Child> {
    let mut command = Command::new("rdma");
    command.arg("link").args(args).stdout(Stdio::null()).spawn()
}
