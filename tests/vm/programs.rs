//! Other programs as peers.

use std::error::Error;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that serves until it is dropped or ends by itself.
pub struct Server(Child);

impl Server {
    /// Starts a program with `-p PORT` and waits until it listens there.
    pub fn start(program: &str, port: u16, args: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(program);
        command
            .args(args)
            .args(["-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self(command.spawn()?);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if listens(port)? {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{program} does not listen on port {port}").into())
    }

    /// Waits until the program ends by itself.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus, Box<dyn Error>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => return Err("the server goes on".into()),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs say nothing when they listen; the kernel does.
fn listens(port: u16) -> Result<bool, Box<dyn Error>> {
    let mut rdma = Command::new("rdma");
    let output = rdma.args(["resource", "show", "cm_id"]).output()?;
    let ids = String::from_utf8_lossy(&output.stdout);
    let port = format!(":{port} ");
    Ok(ids
        .lines()
        .any(|id| id.contains("LISTEN") && id.contains(&port)))
}
