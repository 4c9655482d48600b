//! One question to a service on this machine, over a stream socket.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrLike, UnixAddr,
};

use super::{Deadline, Kernel, Linux};

/// Where a service is: at a TCP port of the loopback address that a file names, or without such a
/// file at a socket in the file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalService<'a> {
    pub port_file: &'a Path,
    pub socket: &'a Path,
}

/// A question and how its answer ends.
pub(crate) struct Question<'a> {
    pub request: &'a [u8],
    /// More bytes than this is no answer.
    pub max_answer: usize,
    /// Whether the bytes so far are the whole answer.
    pub is_whole: &'a dyn Fn(&[u8]) -> bool,
    /// How long it all may take.
    pub limit: Duration,
}

/// Remembers for a while that a service is not there or does not answer, so that it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Absence(Mutex<Option<Instant>>);

impl Absence {
    pub(crate) fn is_noted(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn note(&self, span: Duration) {
        *self.until() = Instant::now().checked_add(span);
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, asks, and reads the answer. A connection of its own for each question: one that is
/// kept would be shared with forked children, and a late answer would be taken for the next one.
pub(super) fn ask(service: LocalService<'_>, question: &Question<'_>) -> io::Result<Vec<u8>> {
    let deadline = Deadline::after(Some(question.limit));
    let socket = connect(service)?;
    send(socket.as_fd(), question.request, deadline)?;
    receive(socket.as_fd(), question, deadline)
}

fn connect(service: LocalService<'_>) -> io::Result<OwnedFd> {
    match port_in(service.port_file) {
        Some(port) => connect_to(AddressFamily::Inet, &SockaddrIn::new(127, 0, 0, 1, port)),
        // Mostly it is not there, which is found out with less than a socket.
        None if !service.socket.exists() => Err(io::ErrorKind::NotFound.into()),
        None => connect_to(AddressFamily::Unix, &UnixAddr::new(service.socket)?),
    }
}

/// The port in a file, if there is the file and it has one.
fn port_in(file: &Path) -> Option<u16> {
    let text = fs::read_to_string(file).ok()?;
    text.trim().parse().ok().filter(|port| *port != 0)
}

fn connect_to(family: AddressFamily, address: &dyn SockaddrLike) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(family, SockType::Stream, flags, None)?;
    match socket::connect(socket.as_raw_fd(), address) {
        // The socket is writable when the connection stands, or has failed: sending tells which.
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

fn send(socket: BorrowedFd<'_>, mut rest: &[u8], deadline: Deadline) -> io::Result<()> {
    while !rest.is_empty() {
        wait(socket, PollFlags::POLLOUT, deadline)?;
        // Without the flag a service that hangs up would kill this process.
        match socket::send(socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn receive(
    socket: BorrowedFd<'_>,
    question: &Question<'_>,
    deadline: Deadline,
) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; question.max_answer];
    let mut length = 0;
    while !(question.is_whole)(&answer[..length]) {
        wait(socket, PollFlags::POLLIN, deadline)?;
        match nix::unistd::read(socket, &mut answer[length..]) {
            // Hung up, or no room left.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => length += more,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    answer.truncate(length);
    Ok(answer)
}

/// Waits until the socket is ready or in error, which the next call on it tells.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, deadline: Deadline) -> io::Result<()> {
    loop {
        let remaining = deadline.remaining();
        let mut polled = [PollFd::new(socket, flags)];
        match Linux.poll(&mut polled, remaining) {
            Ok(()) if polled[0].any() != Some(false) => return Ok(()),
            Ok(()) if remaining == Some(Duration::ZERO) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn question(limit: Duration) -> Question<'static> {
        Question {
            request: b"question",
            max_answer: 16,
            is_whole: &|answer| answer.ends_with(b"."),
            limit,
        }
    }

    const NOWHERE: &str = "/nonexistent/rdmacm";

    fn at(socket: &Path) -> LocalService<'_> {
        LocalService {
            port_file: Path::new(NOWHERE),
            socket,
        }
    }

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("rdmacm-{name}-{}", std::process::id()))
    }

    /// A socket with a path of its own, which goes away with it.
    struct Service(UnixListener, PathBuf);

    impl Service {
        fn new(name: &str) -> Self {
            let path = temporary(name);
            Self(UnixListener::bind(&path).unwrap(), path)
        }

        /// Asks while one connection is served in another thread.
        fn serve(
            &self,
            limit: Duration,
            serve: impl FnOnce(&mut dyn ReadWrite) + Send,
        ) -> io::Result<Vec<u8>> {
            thread::scope(|scope| {
                scope.spawn(|| serve(&mut self.0.accept().unwrap().0));
                ask(at(&self.1), &question(limit))
            })
        }
    }

    impl Drop for Service {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.1);
        }
    }

    trait ReadWrite: Read + Write {}
    impl<T: Read + Write> ReadWrite for T {}

    fn answer_in_pieces(stream: &mut dyn ReadWrite) {
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"question");
        stream.write_all(b"an").unwrap();
        thread::sleep(Duration::from_millis(20));
        stream.write_all(b"swer.").unwrap();
    }

    #[test]
    fn an_answer_may_come_in_pieces() {
        let answer = Service::new("pieces").serve(PATIENCE, answer_in_pieces);
        assert_eq!(answer.unwrap(), b"answer.");
    }

    #[test]
    fn the_port_in_the_file_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let file = temporary("port");
        fs::write(&file, format!("{port}\n")).unwrap();
        let service = LocalService {
            port_file: &file,
            socket: Path::new(NOWHERE),
        };
        let answer = thread::scope(|scope| {
            scope.spawn(|| answer_in_pieces(&mut listener.accept().unwrap().0));
            ask(service, &question(PATIENCE))
        });
        assert_eq!(answer.unwrap(), b"answer.");
        drop(listener);
        let refused = ask(service, &question(PATIENCE)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        for no_port in ["", "0", "65536", "-1", "port"] {
            fs::write(&file, no_port).unwrap();
            assert_eq!(port_in(&file), None, "{no_port}");
        }
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn silence_ends_at_the_limit() {
        let limit = Duration::from_millis(50);
        let start = Instant::now();
        let service = Service::new("silence");
        // Nobody even accepts.
        let outcome = ask(at(&service.1), &question(limit));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= limit);
    }

    #[test]
    fn hanging_up_is_no_answer() {
        let service = Service::new("hang-up");
        let outcome = service.serve(PATIENCE, |stream| stream.write_all(b"an").unwrap());
        assert!(outcome.is_err());
    }

    #[test]
    fn an_endless_answer_is_none() {
        let service = Service::new("endless");
        let outcome = service.serve(
            PATIENCE,
            |stream| {
                while stream.write_all(&[0; 64]).is_ok() {}
            },
        );
        assert!(outcome.is_err());
    }

    #[test]
    fn a_missing_socket_is_told_at_once() {
        let missing = ask(at(Path::new(NOWHERE)), &question(PATIENCE)).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let too_long = "x".repeat(200);
        assert!(ask(at(Path::new(&too_long)), &question(PATIENCE)).is_err());
    }

    #[test]
    fn absence_is_forgotten_in_time() {
        let absence = Absence::default();
        assert!(!absence.is_noted());
        absence.note(Duration::from_secs(3600));
        assert!(absence.is_noted());
        absence.note(Duration::ZERO);
        assert!(!absence.is_noted());
    }
}
