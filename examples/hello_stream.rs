//! A stream of bytes: the server reads a line and answers it.
//!
//! ```text
//! cargo run --example hello_stream                # the server
//! cargo run --example hello_stream -- 192.0.2.1   # the client, with the server's address
//! ```

use std::io::{BufRead, BufReader, Result, Write};

use rdmacm::{RdmaListener, RdmaStream};

const PORT: u16 = 7471;

fn main() -> Result<()> {
    let server = std::env::args().nth(1);
    let stream = match &server {
        Some(server) => RdmaStream::connect((server.as_str(), PORT))?,
        None => RdmaListener::bind(("0.0.0.0", PORT))?.accept()?.0,
    };
    // Reading and writing need no more than a shared reference.
    let mut writer = &stream;
    let mut line = String::new();
    if server.is_some() {
        writeln!(writer, "hello from the client")?;
    }
    BufReader::new(&stream).read_line(&mut line)?;
    println!("received: {}", line.trim_end());
    if server.is_none() {
        writeln!(writer, "hello from the server")?;
    }
    // Dropping the stream closes it, once the peer has what was written.
    Ok(())
}
