//! A client and a server that connect, send messages to and fro, and disconnect: the smallest
//! whole use of the library, for tests that trace it, make it fail, or kill it.
//!
//! The programs are `vm exchange client ADDRESS [ROUNDS LENGTH PAUSE]` and
//! `vm exchange server ...`, with the pause in milliseconds.
//! They print `done` and exit with 0, or print `failed: ` with the error and exit with 1.

use std::net::SocketAddr;
use std::panic;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdmacm::{Buffer, Connection, Connector, ErrorKind, Incoming, Listener, Result, Settings};

use crate::pair;

/// What stands before an error in a program's output.
pub const FAILED: &str = "failed: ";

/// How long a side waits for the other one. Longer than any test allows for noticing its end.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What is exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Messages from the client, each answered by one of the server's.
    pub rounds: u32,
    /// Length of the client's messages.
    pub length: usize,
    /// How long each side hesitates before it sends, so that the other one has to sleep.
    pub pause: Duration,
}

/// One message of a length that needs registered memory, and its answer, which does not.
pub const ONE_ROUND: Work = Work {
    rounds: 1,
    length: 1000,
    pause: Duration::ZERO,
};

impl Work {
    /// As arguments of the programs.
    pub fn to_args(self) -> [String; 3] {
        let pause = self.pause.as_millis();
        [
            self.rounds.to_string(),
            self.length.to_string(),
            pause.to_string(),
        ]
    }

    fn parse(args: &[String]) -> Option<Self> {
        let [rounds, length, pause] = args else {
            return args.is_empty().then_some(ONE_ROUND);
        };
        Some(Self {
            rounds: rounds.parse().ok()?,
            length: length.parse().ok()?,
            pause: Duration::from_millis(pause.parse().ok()?),
        })
    }
}

/// Runs the subcommand.
pub fn run(args: &[String]) -> ExitCode {
    let Some((role, address, work)) = parse(args) else {
        eprintln!("usage: vm exchange client|server ADDRESS [ROUNDS LENGTH PAUSE]");
        return ExitCode::from(64);
    };
    match role(address, work) {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{FAILED}{error}");
            ExitCode::FAILURE
        }
    }
}

type Role = fn(SocketAddr, Work) -> Result<()>;

fn parse(args: &[String]) -> Option<(Role, SocketAddr, Work)> {
    let role: Role = match args.first()?.as_str() {
        "client" => client,
        "server" => server,
        _ => return None,
    };
    Some((role, args.get(1)?.parse().ok()?, Work::parse(&args[2..])?))
}

/// Connects, sends each message and waits for its answer, and disconnects.
pub fn client(server: SocketAddr, work: Work) -> Result<()> {
    let mut prepared = Connector::new().settings(settings()).prepare(server)?;
    let inbox = prepared.alloc(ANSWER.len())?;
    prepared.post_recv(0, inbox.slice(..)?)?;
    let mut connection = prepared.establish()?;
    connection.set_timeout(Some(PATIENCE));
    for round in 0..work.rounds {
        thread::sleep(work.pause);
        connection.send(&message(round, work))?;
        let answer = receive(&mut connection, &inbox)?;
        assert_eq!(answer, ANSWER);
    }
    connection.id().disconnect()?;
    connection.close()
}

/// Listens, and serves one client.
fn server(address: SocketAddr, work: Work) -> Result<()> {
    let listener = listen(address)?;
    serve(listener.incoming(Some(PATIENCE))?, work)
}

/// A listener for [`serve`].
pub fn listen(address: SocketAddr) -> Result<Listener> {
    Listener::bind_with(address, settings())
}

/// Answers each message, and waits until the client has disconnected. It is an error if it does so
/// earlier.
pub fn serve(incoming: Incoming, work: Work) -> Result<()> {
    let mut prepared = incoming.prepare()?;
    let inbox = prepared.alloc(work.length)?;
    prepared.post_recv(0, inbox.slice(..)?)?;
    let mut connection = prepared.establish()?;
    connection.set_timeout(Some(PATIENCE));
    for round in 0..work.rounds {
        let received = receive(&mut connection, &inbox)?;
        assert!(
            received == message(round, work),
            "message {round} is damaged"
        );
        thread::sleep(work.pause);
        let answered = connection.send(ANSWER);
        let is_last = round + 1 == work.rounds;
        match answered {
            // The client ends when it has the last answer, maybe before its device said so.
            Err(error) if is_last && error.kind() == ErrorKind::Disconnected => {}
            other => other?,
        }
    }
    await_end(&mut connection)?;
    connection.close()
}

/// What the server answers; short enough to go inline.
const ANSWER: &[u8] = b"received";

/// Waits for a message and posts the receive again.
fn receive(connection: &mut Connection, inbox: &Buffer) -> Result<Vec<u8>> {
    let length = connection.recv_completion()?.result()?.byte_len();
    let message = inbox.read_vec(0, length as usize)?;
    connection.post_recv(0, inbox.slice(..)?)?;
    Ok(message)
}

fn await_end(connection: &mut Connection) -> Result<()> {
    match connection.recv_completion() {
        Err(error) if error.kind() == ErrorKind::Disconnected => Ok(()),
        Err(error) => Err(error),
        Ok(completion) => panic!("a message too many: {completion:?}"),
    }
}

/// The bytes of one round's message, different in each.
fn message(round: u32, work: Work) -> Vec<u8> {
    pair::pattern(round.into(), work.length)
}

/// Small queues, and no busy waiting: the processor is the other side's as well.
fn settings() -> Settings {
    Settings::new()
        .send_depth(4)
        .recv_depth(4)
        .connect_timeout(PATIENCE)
        .spin(Duration::ZERO)
}

/// How a connection ended.
#[derive(Debug)]
pub struct End {
    /// When.
    pub at: Instant,
    /// With what.
    pub outcome: Result<()>,
}

impl End {
    /// An end that has just come.
    pub fn now(outcome: Result<()>) -> Self {
        let at = Instant::now();
        Self { at, outcome }
    }
}

/// A thread that serves one client after the other, until it is dropped.
pub struct Server {
    address: SocketAddr,
    ends: Receiver<End>,
    /// Closing the channel stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen. The first client is served already: with it came what stays as long as
    /// the listener does, such as the device's protection domain.
    pub fn start(work: Work) -> Result<Self> {
        let listener = listen(pair::any_port())?;
        let address = listener.local_addr().expect("a listener has an address");
        let (ended, ends) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || serve_all(&listener, work, &ended, &stopped));
        let server = Self {
            address,
            ends,
            stop: Some(stop),
            thread: Some(thread),
        };
        client(address, work)?;
        let end = server.next_end(PATIENCE).expect("the client was served");
        end.outcome.map(|()| server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ends of connections that were not asked for yet.
    pub fn ends(&self) -> Vec<End> {
        self.ends.try_iter().collect()
    }

    /// Waits for the end of a connection.
    pub fn next_end(&self, patience: Duration) -> Option<End> {
        self.ends.recv_timeout(patience).ok()
    }
}

/// Serves clients until nobody listens any more.
fn serve_all(listener: &Listener, work: Work, ended: &Sender<End>, stopped: &Receiver<()>) {
    /// How often the end is looked for.
    const INTERVAL: Duration = Duration::from_millis(50);
    while stopped.try_recv() != Err(TryRecvError::Disconnected) {
        let outcome = match listener.incoming(Some(INTERVAL)) {
            Err(error) if error.kind() == ErrorKind::TimedOut => continue,
            request => request.and_then(|request| serve(request, work)),
        };
        // After a failed assertion nobody asks for the ends.
        let _ = ended.send(End::now(outcome));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            panic::resume_unwind(panic);
        }
    }
}
