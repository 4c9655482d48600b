//! Many connections at once.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use rdmacm::{
    Buffer, CmId, ConnParam, ConnectRequest, Connection, Connector, Context, Cq, Event,
    EventChannel, Incoming, Listener, Pd, PortSpace, Qp, QpAttr, Result,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Plan, QUIET, any_port, listen, next_completion, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        fifty_connections_on_one_channel,
        a_storm_of_clients: 180 s,
        requests_beyond_the_backlog_come_later,
    ]
}

const CROWD: usize = 50;

/// One thread and one channel for both ends of all connections. All clients share a completion
/// queue, and so do all servers.
fn fifty_connections_on_one_channel() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let mut crowd = Crowd::new(&environment::context())?;
    crowd.connect(
        &channel,
        listener.local_addr().expect("a listener has an address"),
    )?;
    crowd.send_a_message_each()?;
    crowd.disconnect(&channel)?;
    Ok(Outcome::Pass)
}

struct Crowd {
    pd: Pd,
    sent: Cq,
    received: Cq,
    /// Eight bytes for each connection's message.
    inbox: Buffer,
    clients: Vec<(CmId, Option<Qp>)>,
    servers: Vec<(CmId, Qp)>,
}

impl Crowd {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.default_pd()?;
        let room = 4 * CROWD as u32;
        let (sent, received) = (
            context.completion_queue(room),
            context.completion_queue(room),
        );
        let channels = [context.completion_channel()?, context.completion_channel()?];
        Ok(Self {
            sent: sent.channel(&channels[0]).build()?,
            received: received.channel(&channels[1]).build()?,
            inbox: pd.alloc(8 * CROWD, crate::pair::ANY_ACCESS)?,
            clients: Vec::new(),
            servers: Vec::new(),
            pd,
        })
    }

    /// Starts all clients, then goes wherever the events lead until all are connected.
    fn connect(&mut self, channel: &EventChannel, peer: std::net::SocketAddr) -> Result<()> {
        for _ in 0..CROWD {
            let id = channel.create_id(PortSpace::Tcp)?;
            id.resolve_addr(None, peer, PATIENCE)?;
            self.clients.push((id, None));
        }
        let mut established = 0;
        while established < 2 * CROWD {
            match channel.next_event(Some(PATIENCE))? {
                Event::AddressResolved(event) => event.id().resolve_route(PATIENCE)?,
                Event::RouteResolved(event) => self.ask(event.id())?,
                Event::ConnectRequest(request) => self.answer(request)?,
                Event::Established(_) => established += 1,
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    /// Asks for a connection; the private data says which client asks.
    fn ask(&mut self, id: &CmId) -> Result<()> {
        let number = self.clients.iter().position(|(client, _)| client == id);
        let number = number.expect("only clients resolve");
        self.clients[number].1 = Some(id.create_qp(&self.attr())?);
        id.connect(&ConnParam::new().private_data(&[number as u8])?)
    }

    fn answer(&mut self, request: ConnectRequest) -> Result<()> {
        let number = usize::from(request.connection().private_data[0]);
        let id = request.into_id();
        let mut qp = id.create_qp(&self.attr())?;
        let place = self.inbox.slice(8 * number..8 * number + 8)?;
        qp.recv_half().post(number as u64, &[place])?;
        id.accept(&ConnParam::new())?;
        self.servers.push((id, qp));
        Ok(())
    }

    fn attr(&self) -> QpAttr<'_> {
        QpAttr::new(&self.pd)
            .send_cq(&self.sent)
            .recv_cq(&self.received)
            .max_send_wr(1)
            .max_recv_wr(1)
            .max_inline_data(8)
    }

    fn send_a_message_each(&mut self) -> Result<()> {
        for (number, (_, qp)) in self.clients.iter_mut().enumerate() {
            let qp = qp.as_mut().expect("connected");
            let mut batch = qp.send_half().batch();
            let message = number.to_be_bytes();
            batch.send(number as u64).signaled().inline(&message)?;
            batch.submit()?;
        }
        let mut arrived = BTreeSet::new();
        for _ in 0..CROWD {
            next_completion(&mut self.sent)?.result()?;
            let received = next_completion(&mut self.received)?;
            received.result()?;
            let number = received.wr_id() as usize;
            let message = self.inbox.read_vec(8 * number, 8)?;
            assert_eq!(
                message,
                number.to_be_bytes(),
                "the message of client {number}"
            );
            arrived.insert(number);
        }
        assert_eq!(arrived.len(), CROWD);
        Ok(())
    }

    /// Disconnects from the clients' side, then answers from the servers'.
    fn disconnect(&self, channel: &EventChannel) -> Result<()> {
        let clients: Vec<&CmId> = self.clients.iter().map(|(id, _)| id).collect();
        let servers: Vec<&CmId> = self.servers.iter().map(|(id, _)| id).collect();
        for (leaving, told) in [(&clients, &servers), (&servers, &clients)] {
            leaving.iter().try_for_each(|id| id.disconnect())?;
            let mut ends = 0;
            while ends < told.len() {
                match channel.next_event(Some(PATIENCE))? {
                    Event::Disconnected(event) => {
                        assert!(told.contains(&event.id()), "{event:?}");
                        ends += 1;
                    }
                    Event::TimewaitExit(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        Ok(())
    }
}

/// F27: many clients at once; each is accepted, once.
fn a_storm_of_clients() -> TestResult {
    const CLIENTS: u8 = 128;
    const CLIENTS_PATIENCE: Duration = Duration::from_secs(120);
    let listener = Listener::bind(any_port())?;
    let address = listener.local_addr().expect("a listener has an address");
    let names = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|name| {
                // The last one waits until all others have been served.
                let connector = Connector::new().timeout(CLIENTS_PATIENCE);
                scope.spawn(move || introduce(connector.connect(address)?, name))
            })
            .collect();
        let accepted = (0..CLIENTS)
            .map(|_| meet(listener.incoming(Some(PATIENCE))?))
            .collect::<Result<Vec<_>>>();
        for client in clients {
            client.join().expect("no thread panics")?;
        }
        accepted
    })?;
    let distinct: BTreeSet<u8> = names.iter().copied().collect();
    assert_eq!(distinct, (0..CLIENTS).collect(), "{names:?}");
    let another = listener.incoming(Some(QUIET));
    assert!(another.is_err(), "{another:?}");
    Ok(Outcome::Pass)
}

fn introduce(mut connection: Connection, name: u8) -> Result<()> {
    connection.set_timeout(Some(PATIENCE));
    connection.send(&[name])
}

fn meet(incoming: Incoming) -> Result<u8> {
    let mut prepared = incoming.prepare()?;
    let inbox = prepared.alloc(1)?;
    prepared.post_recv(1, inbox.slice(..)?)?;
    let mut connection = prepared.establish()?;
    connection.set_timeout(Some(PATIENCE));
    connection.recv_completion()?.result()?;
    Ok(inbox.read_vec(0, 1)?[0])
}

/// The kernel keeps as many requests as the backlog says and drops others without a word. Their
/// senders repeat them after some seconds, and then they get in.
fn requests_beyond_the_backlog_come_later() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(any_port())?;
    listener.listen(2)?;
    let address = listener.local_addr().expect("a listener has an address");
    let clients = (0..3)
        .map(|_| Plan::default().ask(address))
        .collect::<Result<Vec<_>>>()?;
    thread::sleep(3 * QUIET);
    let early = [request(&channel)?, request(&channel)?];
    let more = channel.next_event(Some(QUIET));
    assert!(more.is_err(), "{more:?}");
    let late = channel.next_event(Some(Duration::from_secs(15)))?;
    let Event::ConnectRequest(late) = late else {
        panic!("{late:?}")
    };
    let ports: BTreeSet<_> = early
        .iter()
        .chain([&late])
        .map(|request| request.id().peer_addr())
        .collect();
    let asked = clients
        .iter()
        .map(|client| client.id.local_addr())
        .collect();
    assert_eq!(ports, asked);
    Ok(Outcome::Pass)
}
