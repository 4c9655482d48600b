//! How much private data a message carries.

use crate::device::Transport;
use crate::error::{Error, Result};

/// A message of the connection manager that carries private data.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The active side's request ([`CmId::connect`](super::CmId::connect)).
    Connect,
    /// The passive side's acceptance ([`CmId::accept`](super::CmId::accept)).
    Accept,
    /// The passive side's rejection ([`CmId::reject`](super::CmId::reject)).
    Reject,
}

/// The kernel's interface has a byte for the length.
pub(super) const LONGEST: usize = u8::MAX as usize;

/// With IP addresses a request begins with a header that tells them.
const IP_HEADER: usize = 36;

/// With iWARP it begins with the depths.
const MPA_HEADER: usize = 4;

/// A message, as far as its capacity depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub step: Step,
    pub is_datagram: bool,
    pub is_ib_address: bool,
    /// `None` where it is not known yet.
    pub transport: Option<Transport>,
}

impl Message {
    pub(super) fn capacity(self) -> usize {
        match self.transport {
            // iWARP would carry more, but the kernel puts four bytes of its own in front and counts
            // both together in a byte. What is longer gets lost, or comes as something else.
            Some(Transport::Iwarp) => return LONGEST - MPA_HEADER,
            Some(Transport::Other(_)) => return LONGEST,
            _ => {}
        }
        let header = if self.is_ib_address { 0 } else { IP_HEADER };
        match (self.step, self.is_datagram) {
            (Step::Connect, false) => 92 - header,
            (Step::Accept, false) => 196,
            (Step::Reject, false) => 148,
            (Step::Connect, true) => 216 - header,
            (Step::Accept | Step::Reject, true) => 136,
        }
    }

    /// Refuses more than the message can carry.
    pub(super) fn check(self, operation: &'static str, bytes: &[u8]) -> Result<()> {
        check_length(operation, bytes, self.capacity())
    }
}

pub(super) fn check_length(operation: &'static str, bytes: &[u8], limit: usize) -> Result<()> {
    if bytes.len() <= limit {
        return Ok(());
    }
    Err(Error::invalid(
        operation,
        format!(
            "{} bytes of private data; this message carries up to {limit}",
            bytes.len()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_messages() {
        let capacity = |step, is_datagram, is_ib_address, transport| {
            Message {
                step,
                is_datagram,
                is_ib_address,
                transport,
            }
            .capacity()
        };
        let roce = Some(Transport::Roce);
        assert_eq!(capacity(Step::Connect, false, false, roce), 56);
        assert_eq!(capacity(Step::Connect, false, true, roce), 92);
        assert_eq!(capacity(Step::Accept, false, false, None), 196);
        assert_eq!(capacity(Step::Reject, false, false, roce), 148);
        assert_eq!(capacity(Step::Connect, true, false, roce), 180);
        assert_eq!(capacity(Step::Connect, true, true, roce), 216);
        assert_eq!(capacity(Step::Accept, true, false, roce), 136);
        let iwarp = Some(Transport::Iwarp);
        assert_eq!(capacity(Step::Connect, false, false, iwarp), 251);
        assert_eq!(capacity(Step::Reject, false, false, iwarp), 251);
    }
}
