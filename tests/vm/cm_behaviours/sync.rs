//! Traffic between two ids that wait.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use rdmacm::{Access, AddrInfoQuery, ConnParam, QpAttr, RemoteAddress, Result, SendFlags, SyncId};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, assert_holds, pattern};

const ROUNDS: u64 = 10;
const LENGTH: usize = 1000;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![sync_traffic, rdma_read, rdma_write]
}

fn attr() -> QpAttr<'static> {
    QpAttr::default().max_send_wr(4).max_recv_wr(4)
}

/// Runs a server and a client, connected, each in a thread of its own.
fn between(
    server: impl FnOnce(&mut SyncId) -> Result<()> + Send,
    client: impl FnOnce(&mut SyncId) -> Result<()> + Send,
) -> std::result::Result<(), Box<dyn Error>> {
    let (address, told) = mpsc::channel::<SocketAddr>();
    thread::scope(|scope| {
        let serving = scope.spawn(move || -> Result<()> {
            let query = AddrInfoQuery::new()
                .node(environment::addr().to_string())
                .service("0");
            let listener = SyncId::create_ep(&query.passive().resolve()?[0], Some(attr()))?;
            listener.listen(0)?;
            address
                .send(listener.id().local_addr().expect("it listens"))
                .expect("the client runs");
            let mut id = listener.get_request()?;
            id.set_timeout(Some(PATIENCE));
            server(&mut id)?;
            id.disconnect()
        });
        let connecting = scope.spawn(move || -> Result<()> {
            let address = told.recv().expect("the server runs");
            let query = AddrInfoQuery::new()
                .node(address.ip().to_string())
                .service(address.port().to_string());
            let mut id = SyncId::create_ep(&query.resolve()?[0], Some(attr()))?;
            id.set_timeout(Some(PATIENCE));
            client(&mut id)?;
            id.disconnect()
        });
        serving.join().expect("the server does not panic")?;
        connecting.join().expect("the client does not panic")?;
        Ok(())
    })
}

/// Sends a message out of registered memory and waits for it.
fn send(id: &mut SyncId, message: &[u8]) -> Result<()> {
    let mut buffer = id.alloc(message.len())?;
    buffer.write(0, message)?;
    id.post_send(7, &[buffer.slice(..)?], SendFlags::SIGNALED)?;
    assert_eq!(
        id.send_completion()?.result()?.byte_len() as usize,
        message.len()
    );
    Ok(())
}

fn sync_traffic() -> TestResult {
    between(
        |id| {
            let inbox = id.alloc(LENGTH)?;
            id.post_recv(0, &[inbox.slice(..)?])?;
            id.accept(&ConnParam::new())?;
            for round in 0..ROUNDS {
                assert_eq!(id.recv_completion()?.wr_id(), round);
                assert_holds(&inbox, 0, &pattern(round, LENGTH));
                id.post_recv(round + 1, &[inbox.slice(..)?])?;
                send(id, &pattern(round + 1, LENGTH))?;
            }
            Ok(())
        },
        |id| {
            let inbox = id.alloc(LENGTH)?;
            id.post_recv(0, &[inbox.slice(..)?])?;
            id.connect(&ConnParam::new())?;
            for round in 0..ROUNDS {
                send(id, &pattern(round, LENGTH))?;
                assert_eq!(id.recv_completion()?.wr_id(), round);
                assert_holds(&inbox, 0, &pattern(round + 1, LENGTH));
                id.post_recv(round + 1, &[inbox.slice(..)?])?;
            }
            Ok(())
        },
    )?;
    Ok(Outcome::Pass)
}

/// Where the server's memory is, as it tells in its private data.
fn place(id: &SyncId) -> RemoteAddress {
    let told = &id
        .connection()
        .expect("the server has answered")
        .private_data;
    let (address, rkey) = told.split_at(8);
    RemoteAddress {
        address: u64::from_be_bytes(address.try_into().unwrap()),
        rkey: u32::from_be_bytes(rkey[..4].try_into().unwrap()),
    }
}

/// Accepts, telling where the peer may read or write, and waits for the peer's word that it has.
fn expose(id: &mut SyncId, access: Access, check: impl FnOnce(&rdmacm::Buffer)) -> Result<()> {
    let mut exposed = id.alloc_with(LENGTH, access)?;
    exposed.write(0, &pattern(1, LENGTH))?;
    let word = id.alloc(1)?;
    id.post_recv(1, &[word.slice(..)?])?;
    let RemoteAddress { address, rkey } = exposed.remote();
    let told = [&address.to_be_bytes()[..], &rkey.to_be_bytes()].concat();
    id.accept(&ConnParam::new().private_data(&told)?)?;
    id.recv_completion()?.result()?;
    check(&exposed);
    Ok(())
}

fn rdma_read() -> TestResult {
    between(
        |id| expose(id, Access::LOCAL_WRITE | Access::REMOTE_READ, |_| ()),
        |id| {
            id.connect(&ConnParam::new())?;
            let target = id.alloc(LENGTH)?;
            id.post_read(1, &[target.slice(..)?], SendFlags::SIGNALED, place(id))?;
            id.send_completion()?.result()?;
            assert_holds(&target, 0, &pattern(1, LENGTH));
            send(id, b"!")
        },
    )?;
    Ok(Outcome::Pass)
}

fn rdma_write() -> TestResult {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    between(
        |id| {
            expose(id, access, |exposed| {
                assert_holds(exposed, 0, &pattern(2, LENGTH))
            })
        },
        |id| {
            id.connect(&ConnParam::new())?;
            let mut source = id.alloc(LENGTH)?;
            source.write(0, &pattern(2, LENGTH))?;
            id.post_write(1, &[source.slice(..)?], SendFlags::SIGNALED, place(id))?;
            id.send_completion()?.result()?;
            send(id, b"!")
        },
    )?;
    Ok(Outcome::Pass)
}
