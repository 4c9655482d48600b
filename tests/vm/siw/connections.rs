//! Connections over TCP: what a handshake carries, and how it ends.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    ConnParam, Connector, ErrorKind, Event, EventChannel, Gid, IdEvent, Listener, PortSpace,
    QpType, Result, Settings, Status, Step,
};

use super::assert_is_over;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Pair, Plan, any_port, expect, listen, pattern, request, resolve};

/// Clients that come at once.
const CROWD: u32 = 64;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        depths_are_seen_from_the_own_side,
        private_data_has_its_length,
        a_closed_port_refuses_at_once,
        a_rejection_is_a_reset,
        a_port_of_tcp_is_taken,
        a_crowd_comes_at_once: 180 s,
        both_sides_hear_of_the_end_at_once,
        datagrams_are_refused,
    ]
}

fn content(event: &Event) -> &IdEvent {
    event.content().expect("an event of an id")
}

/// F71, siw: the peer's side of the agreement is not taken for the own.
fn depths_are_seen_from_the_own_side() -> TestResult {
    let plan = Plan {
        asked: ConnParam::new().responder_resources(3).initiator_depth(7),
        answered: ConnParam::new().responder_resources(9).initiator_depth(2),
        ..Plan::default()
    };
    let channel = EventChannel::open()?;
    let listener = listen(&channel, plan.address)?;
    let client = plan.ask(listener.local_addr().expect("it listens"))?;
    let request = request(&channel)?;
    let offered = request.connection();
    assert_eq!(
        (offered.responder_resources, offered.initiator_depth),
        (7, 3)
    );
    let server = plan.end(request.into_id(), channel)?;
    server.id.accept(&plan.answered)?;
    let established = expect(&client.channel, "ESTABLISHED")?;
    let agreed = content(&established).connection();
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (2, 7));
    Ok(Outcome::Pass)
}

/// F68, F69, siw: private data is as long as it was sent, and may be longer than elsewhere. The
/// kernel would take more, and lose or mangle it.
fn private_data_has_its_length() -> TestResult {
    let lengths = [(0, 251), (1, 196), (56, 1), (57, 0), (196, 57), (251, 251)];
    for (asked, answered) in lengths {
        let (question, answer) = (pattern(1, asked), pattern(2, answered));
        let plan = Plan {
            asked: ConnParam::new().private_data(&question)?,
            answered: ConnParam::new().private_data(&answer)?,
            ..Plan::default()
        };
        let channel = EventChannel::open()?;
        let listener = listen(&channel, plan.address)?;
        let client = plan.ask(listener.local_addr().expect("it listens"))?;
        assert_eq!(client.id.max_private_data(Step::Connect), 251);
        let request = request(&channel)?;
        assert_eq!(request.connection().private_data, question);
        let server = plan.end(request.into_id(), channel)?;
        for step in [Step::Accept, Step::Reject] {
            assert_eq!(server.id.max_private_data(step), 251);
        }
        server.id.accept(&plan.answered)?;
        let established = expect(&client.channel, "ESTABLISHED")?;
        assert_eq!(content(&established).connection().private_data, answer);
    }
    let plan = Plan {
        asked: ConnParam::new().private_data(&pattern(1, 252))?,
        ..Plan::default()
    };
    let error = plan.connect().expect_err("it would get lost");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(Outcome::Pass)
}

/// F67, siw: nobody listens, and connecting itself says so.
fn a_closed_port_refuses_at_once() -> TestResult {
    let free = TcpListener::bind(any_port())?.local_addr()?;
    let error = Plan::default().ask(free).expect_err("nobody listens");
    assert_eq!(error.errno(), Some(libc::ECONNREFUSED), "{error}");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    Ok(Outcome::Pass)
}

fn a_rejection_is_a_reset() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
    let reason = pattern(5, 251);
    request(&channel)?.into_id().reject(&reason)?;
    let rejected = expect(&client.channel, "REJECTED")?;
    let event = content(&rejected);
    assert_eq!(event.status(), Status::Errno(libc::ECONNRESET));
    assert_eq!(event.connection().private_data, reason);
    assert_is_over(&client.qp)?;
    Ok(Outcome::Pass)
}

/// F59, siw: ports are those of TCP.
fn a_port_of_tcp_is_taken() -> TestResult {
    let tcp = TcpListener::bind(any_port())?;
    let channel = EventChannel::open()?;
    let error = listen(&channel, tcp.local_addr()?).expect_err("TCP listens there");
    assert_eq!(error.errno(), Some(libc::EADDRINUSE), "{error}");
    drop(tcp);
    let listener = listen(&channel, any_port())?;
    let own = listener.local_addr().expect("it listens");
    let error = TcpListener::bind(own).expect_err("siw listens there");
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    Ok(Outcome::Pass)
}

/// F107: listening takes no time that a client would notice, though the kernel makes room for all that
/// the backlog allows, and each of many clients at once gets in.
///
/// No backlog is smaller than the crowd: siw's kernel does not survive one that overflows.
fn a_crowd_comes_at_once() -> TestResult {
    for backlog in [0, CROWD, 128] {
        let begin = Instant::now();
        let listener = Listener::bind_with(any_port(), Settings::new().backlog(backlog))?;
        let taken = begin.elapsed();
        assert!(taken < Duration::from_secs(1), "{backlog}: {taken:?}");
        let address = listener.local_addr().expect("it listens");
        let connect = || Connector::new().timeout(PATIENCE).connect(address);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CROWD).map(|_| scope.spawn(connect)).collect();
            let servers = (0..CROWD)
                .map(|_| listener.incoming(Some(PATIENCE))?.prepare()?.establish())
                .collect::<Result<Vec<_>>>();
            for client in clients {
                client.join().expect("no thread panics")?;
            }
            servers
        })?;
    }
    Ok(Outcome::Pass)
}

fn both_sides_hear_of_the_end_at_once() -> TestResult {
    let Pair { client, server } = Plan::default().connect()?;
    client.id.disconnect()?;
    expect(&client.channel, "DISCONNECTED")?;
    expect(&server.channel, "DISCONNECTED")?;
    client.id.disconnect()?;
    server.id.disconnect()?;
    Ok(Outcome::Pass)
}

/// There are no datagrams: neither queue pairs nor address handles.
fn datagrams_are_refused() -> TestResult {
    let channel = EventChannel::open()?;
    let id = resolve(&channel, any_port_of_a_listener(&channel)?)?;
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(4).build()?;
    for qp_type in [QpType::Ud, QpType::Uc, QpType::XrcSend] {
        let attr = rdmacm::QpAttr::new(&pd)
            .qp_type(qp_type)
            .send_cq(&cq)
            .recv_cq(&cq);
        let error = pd.create_qp(&attr).expect_err("there is no such type");
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
        assert_eq!(error.errno(), None, "found before the kernel is asked");
    }
    let path = rdmacm::Path {
        gid: Gid([0; 16]),
        source_gid_index: 0,
        port: 1,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        service_level: 0,
        lid: 0,
    };
    let error = pd.address_handle(&path).expect_err("there are none");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");

    let id = channel.create_id(PortSpace::Udp)?;
    let refused = id
        .resolve_addr(None, any_port(), PATIENCE)
        .and_then(|()| expect(&channel, "ADDR_RESOLVED"))
        .and_then(|_| {
            let attr = rdmacm::QpAttr::default().send_cq(&cq).recv_cq(&cq);
            id.create_qp(&attr)
        });
    let error = refused.expect_err("an id for datagrams leads nowhere");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    Ok(Outcome::Pass)
}

/// An address that somebody listens at, or did: resolving asks nobody.
fn any_port_of_a_listener(channel: &EventChannel) -> Result<SocketAddr> {
    let listener = listen(channel, any_port())?;
    Ok(listener.local_addr().expect("it listens"))
}
