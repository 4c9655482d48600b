//! Peers that are killed: every call that waits ends soon, and says that the connection was reset.

use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{RdmaStream, StreamSettings};

use super::basics::listen;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        while_idle,
        while_it_receives,
        while_it_receives_registered_memory,
        while_what_it_sent_is_lent,
        while_it_sends,
        in_ping_pong,
        while_both_read,
        while_polled,
        a_frozen_peer_does_not_keep_a_close,
    ]
}

/// How soon a call has to end.
pub const SOON: Duration = Duration::from_secs(1);

/// What the peer does until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Idle,
    /// Waits for data that does not come.
    Read,
    /// Reads all that comes.
    Drain,
    /// Writes for ever.
    Flood,
    /// Answers each message of 64 bytes.
    Answer,
}

const ROLES: [Role; 5] = [
    Role::Idle,
    Role::Read,
    Role::Drain,
    Role::Flood,
    Role::Answer,
];

/// The program of a peer: `vm stream-peer ROLE ADDRESS`.
pub fn run(args: &[String]) -> ExitCode {
    let [role, address] = args else {
        eprintln!("usage: vm stream-peer ROLE ADDRESS");
        return ExitCode::FAILURE;
    };
    let role = ROLES
        .into_iter()
        .find(|known| format!("{known:?}") == *role);
    let played = role
        .ok_or_else(|| io::Error::other("no such role"))
        .and_then(|role| play(role, address));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm stream-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play(role: Role, address: &str) -> io::Result<()> {
    let mut stream = RdmaStream::connect(address)?;
    println!("connected");
    let mut bytes = vec![0; 1 << 16];
    match role {
        Role::Idle => loop {
            thread::sleep(Duration::from_secs(100));
        },
        Role::Read | Role::Drain => while stream.read(&mut bytes)? > 0 {},
        Role::Flood => loop {
            stream.write_all(&bytes)?;
        },
        Role::Answer => loop {
            stream.read_exact(&mut bytes[..64])?;
            stream.write_all(&bytes[..64])?;
        },
    }
    Ok(())
}

/// A peer in a process of its own, killed when it is dropped.
pub struct Peer(Child);

impl Peer {
    pub fn kill(&mut self) -> io::Result<Instant> {
        let now = Instant::now();
        self.0.kill()?;
        self.0.wait()?;
        Ok(now)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn connected_with(role: Role) -> Result<(Peer, RdmaStream), Box<dyn Error>> {
    let (listener, address) = listen(&StreamSettings::new())?;
    let child = Command::new("/proc/self/exe")
        .args(["stream-peer", &format!("{role:?}"), &address.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut peer = Peer(child);
    let (stream, _) = listener.accept_timeout(Duration::from_secs(20))?;
    let output = peer.0.stdout.take().expect("piped");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    assert_eq!(line.trim(), "connected");
    Ok((peer, stream))
}

/// Does something over and over while the peer is killed, and looks how that ends.
fn kill_during(role: Role, act: impl FnMut(&RdmaStream) -> io::Result<()> + Send) -> TestResult {
    let (mut peer, stream) = connected_with(role)?;
    end_during(&stream, act, || peer.kill())?;
    Ok(Outcome::Pass)
}

/// Does something over and over while the connection is `struck`, which tells when that was, and looks
/// how it ends.
pub fn end_during(
    stream: &RdmaStream,
    mut act: impl FnMut(&RdmaStream) -> io::Result<()> + Send,
    strike: impl FnOnce() -> io::Result<Instant>,
) -> io::Result<()> {
    let (struck, ended, error) = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            loop {
                if let Err(error) = act(stream) {
                    return (Instant::now(), error);
                }
            }
        });
        thread::sleep(Duration::from_millis(300));
        assert!(!worker.is_finished(), "it ended before");
        let struck = strike()?;
        let (ended, error) = worker.join().expect("no panic");
        io::Result::Ok((struck, ended, error))
    })?;
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    let took = ended.saturating_duration_since(struck);
    assert!(took < SOON, "{took:?}");
    let mut stream = stream;
    let later = [
        stream.read(&mut vec![0; 1 << 20]).err(),
        stream.write(b"late").err(),
    ];
    // What came before the end may still be read.
    for error in later.into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    Ok(())
}

/// A read that finds the end must not take it for a good one.
pub fn some(read: io::Result<usize>) -> io::Result<()> {
    match read? {
        0 => Err(io::Error::other("a clean end")),
        _ => Ok(()),
    }
}

fn while_idle() -> TestResult {
    kill_during(Role::Idle, |mut stream| some(stream.read(&mut [0])))
}

fn while_it_receives() -> TestResult {
    let bytes = vec![1; 100_000];
    kill_during(Role::Drain, |mut stream| stream.write_all(&bytes))
}

/// The memory is free when the call has ended.
fn while_it_receives_registered_memory() -> TestResult {
    for role in [Role::Drain, Role::Idle] {
        let (mut peer, stream) = connected_with(role)?;
        let mut buffer = stream.register(1 << 20)?;
        let other = stream.register(1000)?;
        stream.write_all_registered(&other, ..)?;
        let (killed, ended, error) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                loop {
                    if let Err(error) = stream.write_all_registered(&buffer, ..) {
                        return (Instant::now(), error);
                    }
                }
            });
            thread::sleep(Duration::from_millis(300));
            assert!(!writer.is_finished(), "it ended before the peer was killed");
            let killed = peer.kill()?;
            let (ended, error) = writer.join().expect("no panic");
            Ok::<_, io::Error>((killed, ended, error))
        })?;
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        let took = ended.saturating_duration_since(killed);
        assert!(took < SOON, "{took:?}");
        let start = Instant::now();
        let _ = stream.wait_sent(&buffer);
        assert!(!buffer.is_busy());
        buffer.as_mut_slice()?.fill(1);
        let error = stream.write_registered(&buffer, ..).expect_err("it ended");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert!(!buffer.is_busy(), "nothing was written");
        assert!(start.elapsed() < SOON);
    }
    Ok(Outcome::Pass)
}

/// It stays, and the end comes behind it.
fn while_what_it_sent_is_lent() -> TestResult {
    let (mut peer, stream) = connected_with(Role::Flood)?;
    let lent = stream.lend()?;
    let mut before = vec![0xee; lent.len()];
    lent.copy_to(&mut before);
    assert!(before.iter().all(|byte| *byte == 0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| (&stream).read(&mut [0; 10]));
        thread::sleep(Duration::from_millis(100));
        let killed = peer.kill()?;
        thread::sleep(Duration::from_millis(200));
        assert!(!reader.is_finished(), "what is lent is not read by others");
        let mut after = vec![0xee; lent.len()];
        lent.copy_to(&mut after);
        assert!(before == after, "the memory changed");
        drop(lent);
        assert!(matches!(reader.join().expect("no panic"), Ok(1..)));
        let error = loop {
            match stream.lend() {
                Ok(lent) if lent.is_empty() => panic!("a clean end"),
                Ok(mut lent) => lent.consume(usize::MAX),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert!(killed.elapsed() < SOON);
        Ok::<_, io::Error>(())
    })?;
    Ok(Outcome::Pass)
}

fn while_it_sends() -> TestResult {
    let mut bytes = vec![0; 100_000];
    kill_during(Role::Flood, |mut stream| some(stream.read(&mut bytes)))
}

fn in_ping_pong() -> TestResult {
    kill_during(Role::Answer, |mut stream| {
        stream.write_all(&[3; 64])?;
        some(stream.read(&mut [0; 64]))
    })
}

fn while_both_read() -> TestResult {
    kill_during(Role::Read, |mut stream| some(stream.read(&mut [0])))
}

fn while_polled() -> TestResult {
    kill_during(Role::Idle, read_when_polled)
}

/// Reads without waiting; where there is nothing, waits for the descriptor.
pub fn read_when_polled(stream: &RdmaStream) -> io::Result<()> {
    when_polled(stream, |mut stream| some(stream.read(&mut [0])))
}

/// Makes an attempt without waiting; where there is nothing to do, waits for the descriptor.
pub fn when_polled(
    stream: &RdmaStream,
    attempt: impl FnOnce(&RdmaStream) -> io::Result<()>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    match attempt(stream) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::NONE)?;
            Ok(())
        }
        other => other,
    }
}

/// A peer that is stopped is no peer that is gone: what is written waits for it, but a close does not
/// for ever.
fn a_frozen_peer_does_not_keep_a_close() -> TestResult {
    let (mut peer, stream) = connected_with(Role::Drain)?;
    let pid = nix::unistd::Pid::from_raw(peer.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP)?;
    (&stream).write_all(&vec![1; 64 << 10])?;
    stream.set_linger(Duration::from_millis(500))?;
    let start = Instant::now();
    drop(stream);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    peer.kill()?;
    Ok(Outcome::Pass)
}
