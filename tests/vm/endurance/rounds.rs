//! Connections that are made and ended, one after the other: 2,000 in a full run.

use std::net::SocketAddr;
use std::thread;

use rdmacm::{
    CmId, ConnParam, Cq, ErrorKind, Event, EventChannel, Listener, Pd, PortSpace, Qp, QpAttr,
    Result, SyncId,
};

use super::{endure, sync};
use crate::environment;
use crate::exchange::{self, Work};
use crate::harness::{Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port, listen};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        rounds_of_ids: 400 s,
        rounds_of_endpoints: 400 s,
        rounds_of_waiting_ids: 400 s,
    ]
}

/// Both ends on one channel, with a completion queue for all.
struct Ids {
    channel: EventChannel,
    listener: CmId,
    pd: Pd,
    cq: Cq,
}

/// A connected id and its queue pair.
type End = (CmId, Qp);

impl Ids {
    fn new() -> Result<Self> {
        let channel = EventChannel::open()?;
        let pd = environment::context().alloc_pd()?;
        Ok(Self {
            listener: listen(&channel, any_port())?,
            cq: pd.context().completion_queue(16).build()?,
            channel,
            pd,
        })
    }

    fn connect(&self) -> Result<(End, End)> {
        let client = self.channel.create_id(PortSpace::Tcp)?;
        let peer = self.listener.local_addr().expect("it listens");
        client.resolve_addr(None, peer, PATIENCE)?;
        self.next(|event| matches!(event, Event::AddressResolved(_)))?;
        client.resolve_route(PATIENCE)?;
        self.next(|event| matches!(event, Event::RouteResolved(_)))?;
        let client_qp = self.queue_pair(&client)?;
        client.connect(&ConnParam::new())?;
        let asked = self.next(|event| matches!(event, Event::ConnectRequest(_)))?;
        let Event::ConnectRequest(request) = asked else {
            unreachable!("{asked:?}")
        };
        let server = request.into_id();
        let server_qp = self.queue_pair(&server)?;
        server.accept(&ConnParam::new())?;
        for _ in 0..2 {
            self.next(|event| matches!(event, Event::Established(_)))?;
        }
        Ok(((client, client_qp), (server, server_qp)))
    }

    fn queue_pair(&self, id: &CmId) -> Result<Qp> {
        let attr = QpAttr::new(&self.pd).send_cq(&self.cq).recv_cq(&self.cq);
        id.create_qp(&attr)
    }

    /// The next event, which is the one that is wanted.
    fn next(&self, wanted: fn(&Event) -> bool) -> Result<Event> {
        self.channel.expect("round", Some(PATIENCE), wanted)
    }

    /// One end says goodbye, and the other one answers.
    fn disconnect(&self, first: &CmId, second: &CmId) -> Result<()> {
        for (leaving, told) in [(first, second), (second, first)] {
            leaving.disconnect()?;
            let event = self.next(|event| matches!(event, Event::Disconnected(_)))?;
            assert_eq!(event.id(), told);
        }
        Ok(())
    }
}

/// Ends that are said by the client, by the server, and by nobody.
fn rounds_of_ids() -> TestResult {
    let ids = Ids::new()?;
    endure(1200, |number| {
        let (client, server) = ids.connect()?;
        match number % 3 {
            0 => ids.disconnect(&client.0, &server.0)?,
            1 => ids.disconnect(&server.0, &client.0)?,
            _ => {
                client.0.destroy()?;
                let event = ids.next(|event| matches!(event, Event::Disconnected(_)))?;
                assert_eq!(event.id(), &server.0);
            }
        }
        Ok(())
    })
}

/// Endpoints have a channel and a completion channel each, so that descriptors come and go as well.
fn rounds_of_endpoints() -> TestResult {
    const NO_MESSAGES: Work = Work {
        rounds: 0,
        ..exchange::ONE_ROUND
    };
    let listener = exchange::listen(any_port())?;
    let address = listener.local_addr().expect("it listens");
    with_server(
        || serve_until_closed(&listener, NO_MESSAGES),
        || endure(400, |_| Ok(exchange::client(address, NO_MESSAGES)?)),
        || listener.close(),
    )
}

fn serve_until_closed(listener: &Listener, work: Work) -> Result<()> {
    loop {
        match listener.incoming(None) {
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
            incoming => exchange::serve(incoming?, work)?,
        }
    }
}

fn rounds_of_waiting_ids() -> TestResult {
    let mut listener = SyncId::create(PortSpace::Tcp)?;
    listener.bind_addr(any_port())?;
    listener.set_request_attr(QpAttr::default());
    listener.listen(0)?;
    let address = listener.id().local_addr().expect("it listens");
    let end = listener.id().clone();
    with_server(
        || accept_until_destroyed(&listener),
        || endure(400, |_| Ok(wait_for_each_step(address)?)),
        || end.destroy(),
    )
}

fn accept_until_destroyed(listener: &SyncId) -> Result<()> {
    loop {
        let mut id = match listener.get_request() {
            Err(error) if error.kind() == ErrorKind::Destroyed => return Ok(()),
            request => request?,
        };
        id.set_timeout(Some(PATIENCE));
        id.accept(&ConnParam::new())?;
        id.disconnect()?;
    }
}

fn wait_for_each_step(address: SocketAddr) -> Result<()> {
    let mut id = sync::client(address)?;
    id.set_timeout(Some(PATIENCE));
    id.connect(&ConnParam::new())?;
    id.disconnect()?;
    id.destroy()
}

/// Runs a server in a thread beside the test, ends it, and returns what went wrong first.
fn with_server(
    server: impl FnOnce() -> Result<()> + Send,
    test: impl FnOnce() -> TestResult,
    end: impl FnOnce() -> Result<()>,
) -> TestResult {
    thread::scope(|scope| {
        let serving = scope.spawn(server);
        let outcome = test();
        end()?;
        serving.join().expect("the server does not panic")?;
        outcome
    })
}
