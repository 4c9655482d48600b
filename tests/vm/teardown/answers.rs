//! What is destroyed answers clearly: to a second destroy, and to every use.

use std::time::Duration;

use rdmacm::{
    Access, CmId, ConnParam, Connector, Error, ErrorKind, EventChannel, PostError, QpAttr,
    QpModify, QpState, Result,
};

use super::kit::{Kit, Part};
use super::order::Checked;
use crate::environment;
use crate::exchange;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        second_destroy_of_a_queue_pair,
        use_of_a_destroyed_queue_pair,
        new_queue_pair_after_a_destroyed_one,
        second_destroy_of_an_id,
        use_of_a_destroyed_id,
        use_of_a_connection_whose_id_is_destroyed,
        objects_in_use_are_busy,
    ]
}

/// Asserts the answer of something that is destroyed.
fn assert_destroyed<T>(what: &str, result: Result<T>) {
    let Err(error) = result else {
        panic!("{what} worked");
    };
    assert_eq!(error.kind(), ErrorKind::Destroyed, "{what}: {error}");
    assert!(
        error.to_string().contains("was destroyed"),
        "{what}: {error}"
    );
}

fn second_destroy_of_a_queue_pair() -> TestResult {
    let mut made = Checked::default();
    let mut kit = Kit::complete(&mut made)?;
    let (id, qp) = kit.take_active();
    assert!(id.destroy_qp()?, "the first time");
    assert!(!id.destroy_qp()?, "the second time");
    assert!(!qp.destroy()?, "by the other handle");
    id.destroy()?;
    assert!(!id.destroy_qp()?, "after the id");
    assert!(!qp.destroy()?, "after the id");
    Ok(Outcome::Pass)
}

fn use_of_a_destroyed_queue_pair() -> TestResult {
    let mut made = Checked::default();
    let mut kit = Kit::complete(&mut made)?;
    let (id, mut qp) = kit.take_active();
    assert!(qp.destroy()?);
    assert_destroyed("query_state", qp.query_state());
    assert_destroyed("modify", qp.modify(&QpModify::to(QpState::Error)));
    assert_eq!(qp.recv_half().post(1, &[]), Err(PostError::Destroyed));
    let mut batch = qp.send_half().batch();
    batch.send(1).inline(&[])?;
    assert_eq!(batch.submit(), Err(PostError::Destroyed));
    // Without its queue pair the id can still end the connection.
    id.disconnect()?;
    Ok(Outcome::Pass)
}

/// An id that can connect, with its channel.
fn resolved_id() -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open()?;
    let id = pair::resolve(&channel, (environment::addr(), 1).into())?;
    Ok((channel, id))
}

fn new_queue_pair_after_a_destroyed_one() -> TestResult {
    let (_channel, id) = resolved_id()?;
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(8).build()?;
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);

    let first = id.create_qp(&attr)?;
    let refused = id
        .create_qp(&attr)
        .map(drop)
        .expect_err("a second queue pair");
    assert_eq!(refused.kind(), ErrorKind::InvalidState, "{refused}");

    assert!(first.destroy()?);
    let refused = id.connect(&ConnParam::new()).expect_err("no queue pair");
    assert_eq!(refused.kind(), ErrorKind::InvalidState, "{refused}");

    let second = id.create_qp(&attr)?;
    assert_eq!(second.query_state()?, QpState::Init);
    assert!(
        !first.destroy()?,
        "the first handle does not reach the second queue pair"
    );
    assert_destroyed("query_state", first.query_state());
    assert!(id.destroy_qp()?);
    assert!(!second.destroy()?);
    Ok(Outcome::Pass)
}

fn second_destroy_of_an_id() -> TestResult {
    let (_channel, id) = resolved_id()?;
    let other = id.clone();
    id.destroy()?;
    assert_destroyed("destroy", id.destroy());
    assert_destroyed("destroy by another handle", other.destroy());
    Ok(Outcome::Pass)
}

fn use_of_a_destroyed_id() -> TestResult {
    let mut made = Checked::default();
    let mut kit = Kit::complete(&mut made)?;
    let (id, _qp) = kit.take_active();
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(8).build()?;
    let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    id.destroy()?;

    let address = (environment::addr(), 0);
    let second = Duration::from_secs(1);
    assert_destroyed("bind_addr", id.bind_addr(address));
    assert_destroyed("resolve_addr", id.resolve_addr(None, address, second));
    assert_destroyed("resolve_route", id.resolve_route(second));
    assert_destroyed("listen", id.listen(1));
    assert_destroyed("connect", id.connect(&ConnParam::new()));
    assert_destroyed("accept", id.accept(&ConnParam::new()));
    assert_destroyed("reject", id.reject(b""));
    assert_destroyed("disconnect", id.disconnect());
    assert_destroyed("migrate", id.migrate(&EventChannel::open()?));
    assert_destroyed("create_qp", id.create_qp(&attr));
    assert_destroyed("context", id.context());
    assert_destroyed("port", id.port());
    assert_destroyed("protection_domain", id.protection_domain());

    // Events of the id that are still held lead to the same answer.
    let events = kit.parts.iter().filter_map(|part| match part {
        Part::Event(event) if *event.id() == id => Some(event),
        _ => None,
    });
    let answers: Vec<_> = events.map(|event| event.id().destroy()).collect();
    assert!(answers.len() >= 3, "{answers:?}");
    for answer in answers {
        assert_destroyed("destroy by an event", answer);
    }
    Ok(Outcome::Pass)
}

fn use_of_a_connection_whose_id_is_destroyed() -> TestResult {
    let server = exchange::Server::start(exchange::ONE_ROUND)?;
    let mut connection = Connector::new().connect(server.address())?;
    connection.set_timeout(Some(Duration::from_secs(5)));
    let inbox = connection.alloc(8)?;
    connection.id().clone().destroy()?;

    let posted = connection
        .post_recv(1, inbox.slice(..)?)
        .map_err(Error::from);
    assert_destroyed("post_recv", posted);
    assert_destroyed("send", connection.send(b"hello"));
    assert_destroyed("recv", connection.recv_completion());
    assert_destroyed("disconnect", connection.id().disconnect());
    assert_destroyed("close", connection.close());
    Ok(Outcome::Pass)
}

fn objects_in_use_are_busy() -> TestResult {
    let (_channel, id) = resolved_id()?;
    let pd = id.context()?.alloc_pd()?;
    let cq = pd.context().completion_queue(8).build()?;
    let memory = pd.alloc(64, Access::LOCAL_WRITE)?;
    let qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;

    for (what, result) in [("destroy_cq", cq.destroy()), ("dealloc_pd", pd.dealloc())] {
        let error = result.expect_err(what);
        assert_eq!(
            (error.operation(), error.errno()),
            (what, Some(libc::EBUSY))
        );
        assert!(
            error.to_string().contains("another object still uses this"),
            "{error}"
        );
    }
    // They were destroyed in name only, and go with their last user: the harness counts.
    assert_eq!(qp.query_state()?, QpState::Init);
    drop(memory);
    Ok(Outcome::Pass)
}
