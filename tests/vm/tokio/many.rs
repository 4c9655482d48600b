//! Many streams at once in one thread.

use std::io;
use std::sync::Arc;

use ::tokio::{spawn, try_join};
use nix::sys::resource::{Resource, setrlimit};
use rdmacm::StreamSettings;
use rdmacm::tokio::RdmaStream;

use super::{bind, echo, hear_echo, runtime};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![two_hundred_streams_in_one_thread: 120 s, many_clients_at_once_and_two_that_accept]
}

fn small() -> StreamSettings {
    StreamSettings::new()
        .receive_buffer(1 << 14)
        .send_buffer(1 << 14)
        .send_depth(32)
        .receive_depth(32)
}

fn two_hundred_streams_in_one_thread() -> TestResult {
    const STREAMS: usize = 200;
    setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192)?;
    runtime()?.block_on(async {
        let (listener, address) = bind(&small()).await?;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            let settings = small();
            let connect = RdmaStream::connect_with(address, &settings);
            let (active, (passive, _)) = try_join!(connect, listener.accept())?;
            clients.push(active);
            servers.push(spawn(echo(passive)));
        }
        // All are open before the first is used.
        let clients: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, active)| spawn(hear_echo(active, 20_000 + number, 500 + 97 * number)))
            .collect();
        for task in clients.into_iter().chain(servers) {
            task.await??;
        }
        Ok(Outcome::Pass)
    })
}

fn many_clients_at_once_and_two_that_accept() -> TestResult {
    const CLIENTS: usize = 50;
    setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192)?;
    runtime()?.block_on(async {
        let (listener, address) = bind(&small()).await?;
        let listener = Arc::new(listener);
        let servers = [(); 2].map(|()| {
            let listener = Arc::clone(&listener);
            spawn(async move {
                let mut served = Vec::new();
                for _ in 0..CLIENTS / 2 {
                    let (stream, _) = listener.accept().await?;
                    served.push(spawn(echo(stream)));
                }
                for stream in served {
                    stream.await??;
                }
                io::Result::Ok(())
            })
        });
        let clients = [(); CLIENTS].map(|()| {
            spawn(async move {
                let stream = RdmaStream::connect_with(address, &small()).await?;
                hear_echo(stream, 10_000, 3000).await
            })
        });
        for task in clients.into_iter().chain(servers) {
            task.await??;
        }
        Ok(Outcome::Pass)
    })
}
