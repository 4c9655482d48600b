//! The bytes of `-T v`: each is one more than the one before, through all transfers of the program.

/// What was sent and received so far.
#[derive(Debug, Default)]
pub struct Verification {
    next_sent: u8,
    next_received: u8,
    /// Bytes that were as expected.
    received: u64,
}

impl Verification {
    /// Makes bytes to send.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next_sent;
            self.next_sent = self.next_sent.wrapping_add(1);
        }
    }

    /// Checks bytes that came.
    ///
    /// # Errors
    ///
    /// The number of the first byte that is another.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), String> {
        for byte in bytes {
            if *byte != self.next_received {
                return Err(format!("data verification failed byte {}", self.received));
            }
            self.next_received = self.next_received.wrapping_add(1);
            self.received += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_found() {
        let mut sent = [0; 600];
        let (mut here, mut there) = (Verification::default(), Verification::default());
        here.fill(&mut sent);
        there.check(&sent[..300]).unwrap();
        sent[310] ^= 1;
        let error = there.check(&sent[300..]).unwrap_err();
        assert_eq!(error, "data verification failed byte 310");
    }
}
