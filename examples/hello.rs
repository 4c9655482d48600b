//! One message there, one back: `hello` listens, `hello ADDRESS` connects to it.

use rdmacm::{Connector, Listener, Result};

const PORT: u16 = 7471;

fn main() -> Result<()> {
    let server = std::env::args().nth(1);
    let mut prepared = match &server {
        Some(server) => Connector::new().prepare((server.as_str(), PORT))?,
        None => Listener::bind(("0.0.0.0", PORT))?
            .incoming(None)?
            .prepare()?,
    };
    let inbox = prepared.alloc(4096)?;
    prepared.post_recv(1, inbox.slice(..)?)?;
    let mut connection = prepared.establish()?;
    if server.is_some() {
        // The side that connects speaks first: over iWARP it has to.
        connection.send(b"hello from the client")?;
    }
    let length = connection.recv_completion()?.result()?.byte_len();
    let message = inbox.read_vec(0, length as usize)?;
    println!("received: {}", String::from_utf8_lossy(&message));
    if server.is_none() {
        connection.send(b"hello from the server")?;
    }
    connection.close()
}
