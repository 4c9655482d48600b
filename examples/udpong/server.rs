//! The server: counts what its clients send, and answers.

use std::net::SocketAddr;

use crate::Result;
use crate::args::Args;
use crate::message::{Message, Purpose};
use crate::socket::Socket;

/// Serves clients for ever.
pub fn run(args: &Args) -> Result<()> {
    let address = args.bind_to()?;
    let bound = Socket::bind(address, args.kind(), args.manner(), args.buffer_size);
    let socket = bound.map_err(|error| format!("binding to {address}: {error}"))?;
    let mut clients = Clients::default();
    let mut datagram = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut datagram)?;
        let datagram = &mut datagram[..length];
        if clients.answer(datagram, from) {
            socket.send_to(datagram, from)?;
        }
    }
}

/// How many transfers came of each client, by its number. They are used again.
struct Clients {
    received: [u32; 256],
    next: u8,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            received: [0; 256],
            next: 0,
        }
    }
}

impl Clients {
    /// Turns a datagram into its answer. False: there is none.
    fn answer(&mut self, datagram: &mut [u8], from: SocketAddr) -> bool {
        let Some(mut message) = Message::read(datagram) else {
            return false;
        };
        let is = |purpose: Purpose| message.purpose == purpose as u8;
        if is(Purpose::Login) {
            println!("client login from {}", from.ip());
            message.client = self.next;
            self.next = self.next.wrapping_add(1);
            self.received[usize::from(message.client)] = 0;
        } else if is(Purpose::Start) {
            self.received[usize::from(message.client)] = 0;
        } else if is(Purpose::End) {
            message.count = self.received[usize::from(message.client)];
        } else {
            let received = &mut self.received[usize::from(message.client)];
            *received = received.wrapping_add(1);
            if !is(Purpose::Echo) {
                return false;
            }
        }
        message.write(datagram);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::LENGTH;

    /// Sends a message to the clients' counts.
    fn say(clients: &mut Clients, message: Message) -> Option<Message> {
        let mut datagram = [0; LENGTH as usize];
        message.write(&mut datagram);
        let from = "10.10.0.1:5".parse().unwrap();
        clients
            .answer(&mut datagram, from)
            .then(|| Message::read(&datagram).unwrap())
    }

    #[test]
    fn clients_are_numbered_and_their_transfers_counted() {
        let mut clients = Clients::default();
        for number in [0, 1, 2] {
            let answer = say(&mut clients, Message::new(Purpose::Login, 9, 5)).unwrap();
            assert_eq!((answer.client, answer.number), (number, 5));
        }
        let of = |purpose| Message::new(purpose, 1, 6);
        assert!(say(&mut clients, of(Purpose::Start)).is_some());
        assert_eq!(say(&mut clients, of(Purpose::Data)), None);
        let unknown = Message {
            purpose: 77,
            ..of(Purpose::Data)
        };
        assert_eq!(say(&mut clients, unknown), None);
        let echo = of(Purpose::Echo);
        assert_eq!(say(&mut clients, echo), Some(echo));
        assert_eq!(say(&mut clients, of(Purpose::End)).unwrap().count, 3);
        say(&mut clients, of(Purpose::Start));
        assert_eq!(say(&mut clients, of(Purpose::End)).unwrap().count, 0);
    }

    #[test]
    fn what_is_too_short_has_no_answer() {
        let from = "10.10.0.1:5".parse().unwrap();
        assert!(!Clients::default().answer(&mut [0; 7], from));
    }
}
