//! How the two sides meet: over TCP, at a port that both know.
//!
//! What to learn here: queue pairs that no connection manager brings together have to be told of
//! each other by other means, and in an order. The server is ready to receive before its client
//! hears of it, and the client is before it says that it is done. So no message comes too early.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use crate::args::Options;
use crate::report::Result;
use crate::wire::{Address, DONE, LENGTH};

/// Tells the peer our addresses and hears as many of its own. `connect` is called with these when it
/// is time to connect the queue pairs.
pub fn meet(
    options: &Options,
    own: &[Address],
    connect: impl FnOnce(&[Address]) -> Result<()>,
) -> Result<Vec<Address>> {
    match &options.server {
        Some(server) => {
            let stream = dial(server, options)?;
            ask(stream, own, connect)
        }
        None => {
            let stream = wait_for_client(options)?;
            answer(stream, own, connect)
        }
    }
}

fn dial(server: &str, options: &Options) -> Result<TcpStream> {
    let port = options.port;
    let stream = TcpStream::connect((server, port))
        .map_err(|error| format!("cannot connect to {server}:{port}: {error}"))?;
    be_patient(stream, options)
}

/// Takes one client. For that it waits as long as it takes.
fn wait_for_client(options: &Options) -> Result<TcpStream> {
    let port = options.port;
    // Where there is IPv6, the first is for both.
    let everywhere: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    let listener = TcpListener::bind(&everywhere[..])
        .map_err(|error| format!("cannot listen on port {port}: {error}"))?;
    let (stream, _) = listener.accept()?;
    be_patient(stream, options)
}

fn be_patient(stream: TcpStream, options: &Options) -> Result<TcpStream> {
    stream.set_read_timeout(options.patience())?;
    stream.set_write_timeout(options.patience())?;
    Ok(stream)
}

/// The client's side.
fn ask(
    mut stream: impl Read + Write,
    own: &[Address],
    connect: impl FnOnce(&[Address]) -> Result<()>,
) -> Result<Vec<Address>> {
    tell(&mut stream, own)?;
    let peers = hear(&mut stream, own.len())?;
    connect(&peers)?;
    stream.write_all(&DONE).map_err(lost)?;
    Ok(peers)
}

/// The server's side.
fn answer(
    mut stream: impl Read + Write,
    own: &[Address],
    connect: impl FnOnce(&[Address]) -> Result<()>,
) -> Result<Vec<Address>> {
    let peers = hear(&mut stream, own.len())?;
    connect(&peers)?;
    tell(&mut stream, own)?;
    let mut done = [0; DONE.len()];
    stream.read_exact(&mut done).map_err(lost)?;
    match done {
        DONE => Ok(peers),
        _ => Err("the client did not say that it is done".into()),
    }
}

/// All at once: some C programs take a part of an address for an error.
fn tell(stream: &mut impl Write, own: &[Address]) -> Result<()> {
    let messages: Vec<u8> = own.iter().flat_map(Address::encode).collect();
    Ok(stream.write_all(&messages).map_err(lost)?)
}

fn hear(stream: &mut impl Read, count: usize) -> Result<Vec<Address>> {
    let mut message = [0; LENGTH];
    let mut hear_one = || {
        stream.read_exact(&mut message).map_err(lost)?;
        Address::decode(&message)
    };
    (0..count).map(|_| hear_one()).collect()
}

fn lost(error: std::io::Error) -> String {
    use std::io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => "the peer is silent; giving up".to_owned(),
        UnexpectedEof => "the peer went away before the addresses were exchanged".to_owned(),
        _ => format!("the exchange of addresses failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn addresses(first: u32, count: u32) -> Vec<Address> {
        (first..first + count)
            .map(|qp_num| Address {
                qp_num,
                ..Address::NONE
            })
            .collect()
    }

    #[test]
    fn each_side_hears_the_other_and_connects_in_between() {
        for count in [1, 256] {
            let (one, other) = UnixStream::pair().unwrap();
            let (of_client, of_server) = (addresses(1, count), addresses(1000, count));
            let expected = of_server.clone();
            let client = thread::spawn(move || {
                let mut connected = Vec::new();
                let peers = ask(one, &of_client, |peers| {
                    connected = peers.to_vec();
                    Ok(())
                });
                assert_eq!(peers.unwrap(), connected);
                connected
            });
            let peers = answer(other, &of_server, |_| Ok(())).unwrap();
            assert_eq!(peers, addresses(1, count));
            assert_eq!(client.join().unwrap(), expected);
        }
    }

    #[test]
    fn a_side_that_cannot_connect_ends_the_meeting() {
        let (one, other) = UnixStream::pair().unwrap();
        let client = thread::spawn(move || ask(one, &addresses(1, 1), |_| Ok(())));
        let failed = answer(other, &addresses(2, 1), |_| Err("no way".into()));
        assert_eq!(failed.unwrap_err().to_string(), "no way");
        let error = client.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("went away"), "{error}");
    }

    /// What the server says to a client that sends these bytes and then keeps silent.
    fn answer_to(bytes: &[u8], is_open: bool) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(bytes).unwrap();
        if !is_open {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let patience = Some(Duration::from_millis(20));
        server.set_read_timeout(patience).unwrap();
        let answered = answer(server, &addresses(1, 1), |_| Ok(()));
        answered.unwrap_err().to_string()
    }

    #[test]
    fn clients_that_send_nonsense_are_turned_away() {
        let good = Address::NONE.encode();
        assert!(answer_to(b"GET / HTTP/1.1\r\n\r\n", false).contains("went away"));
        assert!(answer_to(&[b'x'; 3 * LENGTH], true).contains("no address"));
        assert!(answer_to(&good[..20], true).contains("silent"));
        assert!(answer_to(&good, true).contains("silent"));
        assert!(answer_to(&good, false).contains("went away"));
        assert!(answer_to(&[&good[..], b"done?"].concat(), true).contains("done"));
    }
}
