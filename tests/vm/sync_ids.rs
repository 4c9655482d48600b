//! Ids that wait, against the kernel: each call once, with a peer in another thread.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::{
    Access, AddrInfoQuery, ConnParam, Destination, ErrorKind, Event, EventChannel, GRH_LENGTH,
    PortSpace, QpAttr, Result, SendFlags, SrqAttr, SyncId,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, QUIET, any_port, assert_holds};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        each_call_of_a_connection_ends,
        an_endpoint_out_of_address_information_connects,
        datagrams_and_their_listener_end,
        each_accepted_connection_has_the_same_size,
        receives_come_from_a_shared_queue,
        a_rejection_ends_all_that_waits,
        both_disconnect_at_once,
        each_wait_ends_in_time,
        whoever_waits_is_woken_by_the_end_of_the_id,
        an_id_goes_over_to_a_channel_and_back,
    ]
}

fn attr() -> QpAttr<'static> {
    QpAttr::default().max_inline_data(32).signal_all(true)
}

fn new(port_space: PortSpace) -> Result<SyncId> {
    let mut id = SyncId::create(port_space)?;
    id.set_timeout(Some(PATIENCE));
    Ok(id)
}

fn listening(port_space: PortSpace) -> Result<(SyncId, SocketAddr)> {
    let mut listener = new(port_space)?;
    listener.set_request_attr(attr());
    listener.bind_addr(any_port())?;
    listener.listen(0)?;
    let address = listener
        .id()
        .local_addr()
        .expect("a listener has an address");
    Ok((listener, address))
}

/// An id that can connect.
fn resolved(port_space: PortSpace, peer: SocketAddr) -> Result<SyncId> {
    let mut id = new(port_space)?;
    id.resolve_addr(None, peer, PATIENCE)?;
    id.resolve_route(PATIENCE)?;
    id.create_qp(&attr())?;
    Ok(id)
}

fn accept(listener: &SyncId) -> Result<SyncId> {
    let mut id = listener.get_request()?;
    id.accept(&ConnParam::new())?;
    Ok(id)
}

/// Two connected ids: the one that asked and the one that accepted.
fn connected() -> Result<(SyncId, SyncId)> {
    let (listener, address) = listening(PortSpace::Tcp)?;
    thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(&listener));
        let mut active = resolved(PortSpace::Tcp, address)?;
        active.connect(&ConnParam::new())?;
        Ok((active, accepting.join().expect("no panic")?))
    })
}

/// Both ids end the connection, each waiting for the other.
fn part(mut active: SyncId, mut passive: SyncId) -> Result<()> {
    thread::scope(|scope| {
        let other = scope.spawn(|| passive.disconnect());
        active.disconnect()?;
        other.join().expect("no panic")
    })?;
    active.destroy()?;
    passive.destroy()
}

/// Sends a message from one id to the other.
fn pass(from: &mut SyncId, to: &mut SyncId, message: &[u8]) -> Result<()> {
    let inbox = to.alloc(64)?;
    to.post_recv(7, &[inbox.slice(..)?])?;
    from.post_send_inline(8, message, SendFlags::empty())?;
    assert_eq!(from.send_completion()?.wr_id(), 8);
    let received = to.recv_completion()?;
    let length = received.result()?.byte_len() as usize;
    assert_eq!((received.wr_id(), length), (7, message.len()));
    assert_holds(&inbox, 0, message);
    Ok(())
}

/// F97.
fn each_call_of_a_connection_ends() -> TestResult {
    let (mut active, mut passive) = connected()?;
    pass(&mut active, &mut passive, b"there")?;
    pass(&mut passive, &mut active, b"back")?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let shared = passive.alloc_with(64, access)?;
    let mut own = active.alloc(64)?;
    own.write(0, b"written")?;
    let (remote, all) = (shared.remote().at(8), SendFlags::empty());
    active.post_write(1, &[own.slice(..7)?], all, remote)?;
    active.post_write_inline(2, b"W", all, remote)?;
    active.post_read(3, &[own.slice(32..39)?], all, remote)?;
    for number in 1..=3 {
        let completion = active.send_completion()?;
        completion.result()?;
        assert_eq!(completion.wr_id(), number);
    }
    assert_holds(&own, 32, b"Written");
    part(active, passive)?;
    Ok(Outcome::Pass)
}

fn an_endpoint_out_of_address_information_connects() -> TestResult {
    let query = AddrInfoQuery::new()
        .node(environment::addr().to_string())
        .service("7479");
    let found = query.clone().passive().resolve()?;
    let listener = SyncId::create_ep(&found[0], Some(attr()))?;
    listener.listen(0)?;
    thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(&listener));
        let found = query.resolve()?;
        let mut active = SyncId::create_ep(&found[0], Some(attr()))?;
        active.connect(&ConnParam::new())?;
        part(active, accepting.join().expect("no panic")?)
    })?;
    Ok(Outcome::Pass)
}

/// F04.
fn datagrams_and_their_listener_end() -> TestResult {
    let (listener, address) = listening(PortSpace::Udp)?;
    let serving = thread::spawn(move || -> Result<()> {
        let mut id = listener.get_request()?;
        let inbox = id.alloc(64 + GRH_LENGTH)?;
        id.post_recv(1, &[inbox.slice(..)?])?;
        id.accept(&ConnParam::new())?;
        id.recv_completion()?.result()?;
        assert_holds(&inbox, GRH_LENGTH, b"datagram");
        id.destroy()?;
        listener.destroy()
    });
    let mut id = resolved(PortSpace::Udp, address)?;
    id.connect(&ConnParam::new())?;
    let peer = *id.datagram().expect("the peer told its queue pair");
    let handle = id.protection_domain()?.address_handle(&peer.path)?;
    let mut outbox = id.alloc(64)?;
    outbox.write(0, b"datagram")?;
    let to = Destination {
        handle: &handle,
        qp_num: peer.qp_num,
        qkey: peer.qkey,
    };
    id.post_datagram(2, &[outbox.slice(..8)?], SendFlags::empty(), to)?;
    id.send_completion()?.result()?;
    serving.join().expect("no panic")?;
    // There is no connection to wait for the end of.
    id.disconnect()?;
    id.destroy()?;
    Ok(Outcome::Pass)
}

/// F98.
fn each_accepted_connection_has_the_same_size() -> TestResult {
    let (mut listener, address) = listening(PortSpace::Tcp)?;
    listener.set_request_attr(attr().max_send_wr(4).max_recv_wr(4));
    let mut sizes = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..3 {
        let ends = thread::scope(|scope| -> Result<_> {
            let accepting = scope.spawn(|| accept(&listener));
            let mut active = resolved(PortSpace::Tcp, address)?;
            active.connect(&ConnParam::new())?;
            Ok((active, accepting.join().expect("no panic")?))
        });
        let (mut active, mut passive) = ends?;
        sizes.push(passive.qp()?.query()?.capabilities);
        pass(&mut active, &mut passive, b"one of three")?;
        kept.push((active, passive));
    }
    assert!(sizes[0].max_send_wr >= 4, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    for (active, passive) in kept {
        part(active, passive)?;
    }
    Ok(Outcome::Pass)
}

fn receives_come_from_a_shared_queue() -> TestResult {
    let listener = new(PortSpace::Tcp)?;
    listener.bind_addr(any_port())?;
    listener.listen(0)?;
    let address = listener
        .id()
        .local_addr()
        .expect("a listener has an address");
    let serving = thread::spawn(move || -> Result<SyncId> {
        let mut id = listener.get_request()?;
        id.create_srq(&SrqAttr::default())?;
        id.create_qp(&attr())?;
        id.accept(&ConnParam::new())?;
        Ok(id)
    });
    let mut active = resolved(PortSpace::Tcp, address)?;
    active.connect(&ConnParam::new())?;
    let mut passive = serving.join().expect("no panic")?;
    pass(&mut active, &mut passive, b"into the shared queue")?;
    pass(&mut passive, &mut active, b"answer")?;
    assert!(passive.destroy_qp()?);
    assert!(passive.destroy_srq()?);
    Ok(Outcome::Pass)
}

fn a_rejection_ends_all_that_waits() -> TestResult {
    let (listener, address) = listening(PortSpace::Tcp)?;
    let rejecting = thread::spawn(move || listener.get_request()?.reject(b"full"));
    let mut active = resolved(PortSpace::Tcp, address)?;
    let error = active.connect(&ConnParam::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    rejecting.join().expect("no panic")?;
    let told = active.connection().expect("the reason came along");
    assert_eq!(told.private_data[..4], *b"full");
    // Posts nothing, so that nothing can be flushed.
    let error = active.recv_completion().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    active.disconnect()?;
    Ok(Outcome::Pass)
}

fn both_disconnect_at_once() -> TestResult {
    for _ in 0..5 {
        let (active, passive) = connected()?;
        part(active, passive)?;
    }
    // The peer is gone.
    let (mut active, passive) = connected()?;
    drop(passive);
    active.disconnect()?;
    active.disconnect()?;
    Ok(Outcome::Pass)
}

fn each_wait_ends_in_time() -> TestResult {
    let (mut listener, address) = listening(PortSpace::Tcp)?;
    listener.set_timeout(Some(QUIET));
    let mut active = resolved(PortSpace::Tcp, address)?;
    active.set_timeout(Some(QUIET));
    let mut errors = vec![
        listener.get_request().unwrap_err(),
        active.connect(&ConnParam::new()).unwrap_err(),
    ];
    active.disconnect()?;
    drop(listener);
    drop(active);
    let (mut active, passive) = connected()?;
    active.set_timeout(Some(QUIET));
    errors.push(active.recv_completion().unwrap_err());
    errors.push(active.send_completion().unwrap_err());
    drop(passive);
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    Ok(Outcome::Pass)
}

/// Destroys an id while another thread waits with it.
fn end(
    mut id: SyncId,
    wait: impl FnOnce(&mut SyncId) -> Result<()> + Send + 'static,
) -> Result<ErrorKind> {
    id.set_timeout(None);
    let handle = id.id().clone();
    let waiting = thread::spawn(move || wait(&mut id).map_err(|error| error.kind()));
    thread::sleep(Duration::from_millis(50));
    handle.destroy()?;
    Ok(waiting.join().expect("no panic").unwrap_err())
}

fn whoever_waits_is_woken_by_the_end_of_the_id() -> TestResult {
    let (listener, _) = listening(PortSpace::Tcp)?;
    let requests = end(listener, |id| id.get_request().map(drop))?;
    let (listener, address) = listening(PortSpace::Tcp)?;
    let active = resolved(PortSpace::Tcp, address)?;
    let connecting = end(active, |id| id.connect(&ConnParam::new()))?;
    drop(listener);
    let (active, passive) = connected()?;
    let receiving = end(active, |id| id.recv_completion().map(drop))?;
    drop(passive);
    assert_eq!([requests, connecting, receiving], [ErrorKind::Destroyed; 3]);
    Ok(Outcome::Pass)
}

/// F30, F31.
fn an_id_goes_over_to_a_channel_and_back() -> TestResult {
    let (active, mut passive) = connected()?;
    let channel = EventChannel::open()?;
    let (id, queues) = active.into_id(&channel)?;
    // What connect waited for does not come again.
    assert!(channel.try_next_event()?.is_none());
    passive.id().disconnect()?;
    let event = channel.next_event(Some(PATIENCE))?;
    assert!(matches!(event, Event::Disconnected(_)), "{event:?}");
    // With the event still held.
    let back = SyncId::from_id(id)?;
    back.id().disconnect()?;
    passive.disconnect()?;
    drop(event);
    back.destroy()?;
    drop(queues);
    Ok(Outcome::Pass)
}
