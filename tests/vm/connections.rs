//! A server that answers, and clients whose system calls are counted.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdmacm::{
    CmId, ConnParam, Connector, Cq, ErrorKind, Event, EventChannel, Incoming, Listener, PortSpace,
    QpAttr, Result,
};

/// The message that is answered; the example `one_message` sends it.
const GREETING: &[u8] = b"hello";

/// How long a step of a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes what clients send and answers a greeting, until it is dropped.
pub struct EchoServer {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    /// Listens on a free port.
    pub fn start(ip: IpAddr) -> Result<Self> {
        let listener = Listener::bind((ip, 0))?;
        let addr = listener.local_addr().expect("a listener has an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&listener, &stopped));
        Ok(Self {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &Listener, stop: &AtomicBool) {
    let mut clients = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match listener.incoming(Some(Duration::from_millis(100))) {
            Ok(incoming) => clients.push(thread::spawn(move || serve_one(incoming))),
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

/// Serves a client until it goes away.
fn serve_one(incoming: Incoming) -> Result<()> {
    let mut prepared = incoming.prepare()?;
    let inbox = prepared.alloc(4096)?;
    for number in 0..32 {
        prepared.post_recv(number, inbox.slice(..64)?)?;
    }
    let mut connection = prepared.establish()?;
    loop {
        connection.recv_completion()?;
        // Other messages are of clients that have no receive for an answer.
        if inbox.read_vec(0, GREETING.len())? == GREETING {
            connection.send(b"hello to you")?;
        }
    }
}

/// Runs a program that is given the server's address first.
pub fn program(
    args: &[String],
    body: impl FnOnce(SocketAddr, &[String]) -> Result<()>,
) -> ExitCode {
    let Some(server) = args.first().and_then(|server| server.parse().ok()) else {
        eprintln!("the first argument is the server's address and port");
        return ExitCode::FAILURE;
    };
    match body(server, &args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Posts a batch of sends and waits for them.
pub fn send_batch(server: SocketAddr, sends: u64) -> Result<()> {
    let mut connection = Connector::new().connect(server)?;
    let mut batch = connection.batch();
    for number in 1..sends {
        batch.send(number).inline(b"one of many")?;
    }
    batch.send(sends).signaled().inline(b"the last")?;
    batch.submit()?;
    connection.send_completion()?;
    connection.close()
}

/// Makes `count` connections, then ends one after the other.
pub fn connect_many(server: SocketAddr, count: usize) -> Result<()> {
    let channel = EventChannel::open()?;
    let mut cq: Option<Cq> = None;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(connect(&channel, &mut cq, server)?);
    }
    for id in ids {
        id.disconnect()?;
        expect(&channel, |event| matches!(event, Event::Disconnected(_)))?;
        id.destroy()?;
    }
    Ok(())
}

fn connect(channel: &EventChannel, cq: &mut Option<Cq>, server: SocketAddr) -> Result<CmId> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, server, PATIENCE)?;
    expect(channel, |event| matches!(event, Event::AddressResolved(_)))?;
    id.resolve_route(PATIENCE)?;
    expect(channel, |event| matches!(event, Event::RouteResolved(_)))?;
    let pd = id.protection_domain()?;
    let cq = match cq {
        Some(cq) => cq,
        None => cq.insert(pd.context().completion_queue(64).build()?),
    };
    id.create_qp(
        &QpAttr::new(&pd)
            .send_cq(cq)
            .recv_cq(cq)
            .max_send_wr(1)
            .max_recv_wr(1),
    )?;
    id.connect(&ConnParam::new())?;
    expect(channel, |event| matches!(event, Event::Established(_)))?;
    Ok(id)
}

fn expect(channel: &EventChannel, wanted: impl Fn(&Event) -> bool) -> Result<()> {
    match channel.next_event(Some(PATIENCE))? {
        event if wanted(&event) => Ok(()),
        other => Err(other.into_error("connect")),
    }
}
