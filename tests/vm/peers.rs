//! Peers in processes of their own, so that a test can kill them: `vm peer ROLE ADDRESS`.
//!
//! A peer prints one line when it has come as far as its role goes, and then does nothing more.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::Instant;

use rdmacm::{
    Access, Connection, Connector, EventChannel, Listener, RdmaDatagram, RemoteAddress, Result,
};

use crate::pair::{Plan, any_port, listen};

/// A peer that runs; dropping it kills it.
pub struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Listens and never looks at the requests. Prints its address.
    Listen,
    /// Accepts a connection and posts no receives. Prints its address.
    Accept,
    /// Accepts a connection and receives messages of up to 64 KiB. Prints its address.
    Receive,
    /// Accepts a connection and lets 64 KiB be written and read. Prints its address, and then where
    /// they are.
    Expose,
    /// Connects to an address.
    Connect,
    /// Asks for a connection and never looks at the answer.
    Ask,
    /// Sends datagrams back to where they came from. Prints its address.
    Echo,
}

impl Role {
    const ALL: [Self; 7] = [
        Self::Listen,
        Self::Accept,
        Self::Receive,
        Self::Expose,
        Self::Connect,
        Self::Ask,
        Self::Echo,
    ];
}

impl Peer {
    /// Starts a peer that listens, and tells its address.
    pub fn listening(role: Role) -> io::Result<(Self, SocketAddr)> {
        let mut peer = Self::start(role, any_port())?;
        let line = peer.line()?;
        let address = line.parse().map_err(|error| {
            io::Error::other(format!(
                "{line:?} is not the address of a {role:?} peer: {error}"
            ))
        })?;
        Ok((peer, address))
    }

    /// Starts a peer that turns to an address.
    pub fn start(role: Role, address: SocketAddr) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args(["peer", &format!("{role:?}"), &address.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, output })
    }

    /// Waits for the next line that the peer prints.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Waits until the peer tells where its memory is.
    pub fn place(&mut self) -> io::Result<RemoteAddress> {
        let line = self.line()?;
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        match numbers[..] {
            [address, rkey] => Ok(RemoteAddress {
                address,
                rkey: rkey as u32,
            }),
            _ => Err(io::Error::other(format!(
                "{line:?} is not a place in memory"
            ))),
        }
    }

    /// Kills the peer, tells when, and waits until it has ended.
    pub fn kill(mut self) -> io::Result<Instant> {
        let now = Instant::now();
        self.child.kill()?;
        self.child.wait()?;
        Ok(now)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of a peer.
pub fn run(args: &[String]) -> ExitCode {
    let [role, address] = args else {
        eprintln!("usage: vm peer ROLE ADDRESS");
        return ExitCode::FAILURE;
    };
    let role = Role::ALL
        .into_iter()
        .find(|known| format!("{known:?}") == *role);
    let (Some(role), Ok(address)) = (role, address.parse()) else {
        eprintln!("vm peer: no such role or address");
        return ExitCode::FAILURE;
    };
    match play(role, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm peer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays a role until the process is killed.
fn play(role: Role, address: SocketAddr) -> Result<()> {
    match role {
        Role::Listen => {
            let channel = EventChannel::open()?;
            let listener = listen(&channel, address)?;
            println!("{}", listener.local_addr().expect("it listens"));
            idle()
        }
        Role::Accept => {
            let _connection = accept(address)?;
            idle()
        }
        Role::Receive => receive(accept(address)?),
        Role::Expose => {
            let connection = accept(address)?;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            let exposed = connection.alloc_with(1 << 16, access)?;
            let RemoteAddress { address, rkey } = exposed.remote();
            println!("{address} {rkey}");
            idle()
        }
        Role::Connect => {
            let _connection = Connector::new().connect(address)?;
            println!("connected");
            idle()
        }
        Role::Ask => {
            let _asking = Plan::default().ask(address)?;
            println!("asked");
            idle()
        }
        Role::Echo => match echo(address) {
            Ok(never) => match never {},
            Err(error) => panic!("{error}"),
        },
    }
}

fn echo(address: SocketAddr) -> io::Result<Infallible> {
    let socket = RdmaDatagram::bind(address)?;
    println!("{}", socket.local_addr()?);
    let mut bytes = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes)?;
        socket.send_to(&bytes[..length], from)?;
    }
}

fn idle() -> Result<()> {
    loop {
        thread::park();
    }
}

fn accept(address: SocketAddr) -> Result<Connection> {
    let listener = Listener::bind(address)?;
    println!("{}", listener.local_addr().expect("it listens"));
    listener.accept()
}

fn receive(mut connection: Connection) -> Result<()> {
    let inbox = connection.alloc(1 << 16)?;
    for wr_id in 0..16 {
        connection.post_recv(wr_id, inbox.slice(..)?)?;
    }
    loop {
        let wr_id = connection.recv_completion()?.wr_id();
        connection.post_recv(wr_id, inbox.slice(..)?)?;
    }
}
