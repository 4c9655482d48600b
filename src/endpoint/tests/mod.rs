//! Endpoints on the scripted kernel.
//!
//! Each side has a thread, since the calls wait.

mod connections;
mod flushes;
mod sync_connections;
mod sync_meanwhile;
mod sync_steps;

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::device::Registry;
use crate::sys::twin::ADDRESS;

/// Long enough for any machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);
/// For waits that are to end in a timeout.
const SHORT: Duration = Duration::from_millis(5);

fn address() -> SocketAddr {
    SocketAddr::new(ADDRESS, 7471)
}

/// Runs one side on the twin in a thread of its own.
fn on_twin<T: Send + 'static>(
    registry: &'static Registry,
    side: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        registry.stand_in();
        side()
    })
}
