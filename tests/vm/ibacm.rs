//! A service in ibacm's place, at its socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{AddrInfo, AddrInfoQuery, Address};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![a_path_of_ibacms_is_taken, a_silent_ibacm_is_waited_for_once]
}

const SOCKET: &str = "/run/ibacm.sock";
/// A question for a route from one IP address to another, and a path as the answer.
const QUESTION_SIZE: usize = 16 + 2 * 72;
const ANSWER_SIZE: usize = 16 + 72;

fn a_path_of_ibacms_is_taken() -> TestResult {
    in_a_fresh_process("answers")
}

fn a_silent_ibacm_is_waited_for_once() -> TestResult {
    in_a_fresh_process("keeps_silent")
}

/// The library remembers that there is no ibacm; a fresh process knows nothing.
fn in_a_fresh_process(what: &str) -> TestResult {
    fs::create_dir_all("/run")?;
    let output = Command::new("/proc/self/exe")
        .args(["play_ibacm", what])
        .output()?;
    fs::remove_file(SOCKET)?;
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    Ok(Outcome::Pass)
}

/// Plays ibacm and asks it: `vm play_ibacm answers`, `vm play_ibacm keeps_silent`.
pub fn run(args: &[String]) -> ExitCode {
    let listener = UnixListener::bind(SOCKET).expect("the socket is free");
    match args.first().map(String::as_str) {
        Some("answers") => with_answer(&listener),
        _ => with_silence(&listener),
    }
    ExitCode::SUCCESS
}

fn look_up() -> Vec<AddrInfo> {
    let query = AddrInfoQuery::new()
        .node(environment::addr().to_string())
        .service("7471")
        .source(std::net::SocketAddr::from((environment::addr(), 0)));
    query.resolve().expect("addresses in text resolve")
}

fn with_answer(listener: &UnixListener) {
    let found = thread::scope(|scope| {
        scope.spawn(|| answer(listener.accept().expect("somebody asks").0));
        look_up()
    });
    let [ib, ip] = &found[..] else {
        panic!("not two answers: {found:?}");
    };
    let Some(Address::Ib(destination)) = ib.destination else {
        panic!("no GID: {ib:?}");
    };
    assert_eq!(destination.gid.0, [2; 16]);
    assert_eq!(destination.port(), 7471);
    assert_eq!(ib.connect_data.len(), 36);
    assert_eq!(ip.destination.map(|address| address.port()), Some(7471));
    assert_eq!((ip.route.len(), ib.route.len()), (1, 1));
}

fn answer(mut stream: UnixStream) {
    let mut question = [0; QUESTION_SIZE];
    stream
        .read_exact(&mut question)
        .expect("the question is whole");
    assert_eq!(question[..2], [1, 1]);
    let mut answer = [0; ANSWER_SIZE];
    answer[..2].copy_from_slice(&[1, 1]);
    answer[6..8].copy_from_slice(&(ANSWER_SIZE as u16).to_ne_bytes());
    answer[16..20].copy_from_slice(&0x2bu32.to_ne_bytes());
    answer[20..22].copy_from_slice(&0x10u16.to_ne_bytes());
    answer[32..48].fill(2);
    answer[48..64].fill(1);
    stream
        .write_all(&answer)
        .expect("somebody waits for the answer");
}

fn with_silence(listener: &UnixListener) {
    let start = Instant::now();
    assert_eq!(look_up().len(), 1);
    let first = start.elapsed();
    assert!(first >= Duration::from_secs(1), "gave up after {first:?}");
    for _ in 0..20 {
        assert_eq!(look_up().len(), 1);
    }
    listener.set_nonblocking(true).expect("it is a socket");
    listener.accept().expect("the first question came");
    let second = listener.accept().map(drop).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
}
