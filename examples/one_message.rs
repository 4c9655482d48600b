//! The smallest whole client, for counting system calls: `one_message ADDRESS:PORT` connects,
//! sends a message, receives one, and ends.
//!
//! It begins at C's `main`, as the C library's `rdma_client` does. Rust's own start-up would add
//! some twenty calls (signal handlers, stack guards) that have nothing to do with RDMA.

#![no_main]

use std::ffi::{CStr, c_char, c_int};
use std::net::SocketAddr;

use rdmacm::{Connector, Result};

/// # Safety
///
/// Called by the C library with `argc` arguments in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    if argc != 2 {
        return 64;
    }
    // SAFETY: there is a second argument, and the C library's arguments are C strings.
    let server = unsafe { CStr::from_ptr(*argv.add(1)) };
    let server = server.to_str().ok().and_then(|server| server.parse().ok());
    match server.map(exchange) {
        Some(Ok(())) => 0,
        _ => 1,
    }
}

fn exchange(server: SocketAddr) -> Result<()> {
    let mut prepared = Connector::new().prepare(server)?;
    let inbox = prepared.alloc(64)?;
    prepared.post_recv(1, inbox.slice(..)?)?;
    let mut connection = prepared.establish()?;
    connection.send(b"hello")?;
    connection.recv_completion()?;
    connection.close()
}
