//! Other programs as peers.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that runs until it is dropped or ends by itself.
pub struct Program {
    command: String,
    child: Child,
    /// What it prints, read while it runs, so that it never waits for us.
    output: Option<Reader>,
    errors: Option<Reader>,
}

type Reader = JoinHandle<String>;

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub command: String,
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
}

impl Program {
    /// Starts a program.
    pub fn start(program: &str, args: &[&str]) -> Result<Self, Box<dyn Error>> {
        let command = format!("{program} {}", args.join(" "));
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command}: {error}"))?;
        Ok(Self {
            output: child.stdout.take().map(read_all),
            errors: child.stderr.take().map(read_all),
            command,
            child,
        })
    }

    /// Starts a program with `-p PORT` and waits until it listens there.
    pub fn serve(program: &str, port: u16, args: &[&str]) -> Result<Self, Box<dyn Error>> {
        let port_text = port.to_string();
        let args = [args, &["-p", &port_text]].concat();
        Self::start(program, &args)?.until_listening(port)
    }

    /// Waits until something listens on this port.
    pub fn until_listening(mut self, port: u16) -> Result<Self, Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if listens(port)? {
                return Ok(self);
            }
            if self.child.try_wait()?.is_some() {
                return Err(format!("it ended early: {}", self.wait(PATIENCE)?).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{} does not listen on port {port}", self.command).into())
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> Result<bool, Box<dyn Error>> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until the program ends by itself; kills it when it does not in time.
    pub fn wait(&mut self, patience: Duration) -> Result<Ended, Box<dyn Error>> {
        let deadline = Instant::now() + patience;
        while self.is_running()? {
            if Instant::now() >= deadline {
                self.child.kill()?;
                return Err(format!("it goes on after {patience:?}: {}", self.ended()?).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.ended()
    }

    fn ended(&mut self) -> Result<Ended, Box<dyn Error>> {
        let text = |reader: Option<Reader>| reader.and_then(|reader| reader.join().ok());
        Ok(Ended {
            command: self.command.clone(),
            status: self.child.wait()?,
            output: text(self.output.take()).unwrap_or_default(),
            errors: text(self.errors.take()).unwrap_or_default(),
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            status,
            output,
            errors,
        } = self;
        write!(f, "{command}: {status}\n{output}{errors}")
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> Reader {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The programs say nothing when they listen; the kernel does, if they listen on a device's address
/// or for TCP.
fn listens(port: u16) -> Result<bool, Box<dyn Error>> {
    Ok(listens_for_rdma(port)? || listens_for_tcp(port)?)
}

fn listens_for_rdma(port: u16) -> Result<bool, Box<dyn Error>> {
    let mut rdma = Command::new("rdma");
    let output = rdma.args(["resource", "show", "cm_id"]).output()?;
    let ids = String::from_utf8_lossy(&output.stdout);
    let port = format!(":{port} ");
    Ok(ids
        .lines()
        .any(|id| id.contains("LISTEN") && id.contains(&port)))
}

fn listens_for_tcp(port: u16) -> Result<bool, Box<dyn Error>> {
    // The columns are number, local address, remote address, state (0A is to listen).
    let port = format!(":{port:04X}");
    let listens = |socket: &str| {
        let mut columns = socket.split_whitespace().skip(1);
        let local = columns.next().unwrap_or_default();
        local.ends_with(&port) && columns.nth(1) == Some("0A")
    };
    let sockets = fs::read_to_string("/proc/net/tcp")? + &fs::read_to_string("/proc/net/tcp6")?;
    Ok(sockets.lines().any(listens))
}
