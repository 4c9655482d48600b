//! What a datagram says.

/// Bytes of a message; what follows it in a datagram means nothing.
pub const LENGTH: u32 = 16;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A new client, which is told its number.
    Login,
    /// A measurement begins.
    Start,
    /// A transfer without an answer.
    Data,
    /// A transfer that is echoed.
    Echo,
    /// The measurement is over; the answer says how many transfers came.
    End,
}

/// The beginning of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// As a number; any other than the known ones is one that the server takes for data.
    pub purpose: u8,
    pub client: u8,
    /// Tells the answers to different messages apart.
    pub number: u8,
    /// The answer to [`Purpose::End`].
    pub count: u32,
}

impl Message {
    pub fn new(purpose: Purpose, client: u8, number: u8) -> Self {
        Self {
            purpose: purpose as u8,
            client,
            number,
            count: 0,
        }
    }

    /// Puts the message to the beginning of a datagram.
    pub fn write(&self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&[self.purpose, self.client, self.number, 0]);
        datagram[4..8].copy_from_slice(&self.count.to_be_bytes());
    }

    /// The message of a datagram. `None`: it is too short for one.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let ([purpose, client, number, _], rest) = datagram.split_first_chunk()?;
        Some(Self {
            purpose: *purpose,
            client: *client,
            number: *number,
            count: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_c_program_has_them() {
        let message = Message {
            count: 0x0102_0304,
            ..Message::new(Purpose::End, 7, 9)
        };
        let mut datagram = [0xaa; LENGTH as usize];
        message.write(&mut datagram);
        assert_eq!(datagram[..8], [4, 7, 9, 0, 1, 2, 3, 4]);
        assert_eq!(Message::read(&datagram), Some(message));
        assert_eq!(Message::read(&datagram[..7]), None);
    }
}
