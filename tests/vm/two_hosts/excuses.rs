//! What runs of programs may fail of without fault of ours.

use super::programs::Makers;
use crate::interop::matrix::{self, Maker};
use crate::siw;

/// The excuses of programs.
#[derive(Debug, Clone, Copy)]
pub struct Excuses {
    may_interrupt: bool,
    may_miss_its_end: bool,
}

impl Excuses {
    /// Of programs of these makers, whose server may interrupt its client
    /// ([`until_heard`](matrix::until_heard)), over a wire that loses packets or does not.
    pub fn new(makers: Makers, may_interrupt: bool, loses_packets: bool) -> Self {
        let is_c_there = [makers.a, makers.b].contains(&Maker::C);
        Self {
            may_interrupt: may_interrupt && siw::is_under_test(),
            may_miss_its_end: loses_packets && is_c_there && !siw::is_under_test(),
        }
    }

    /// Whether what went wrong is excused.
    ///
    /// A C stream that closes waits until its last message is acknowledged, and looks at nothing else.
    /// Where the acknowledgement is lost and the peer, which has had the message, is gone, rxe sends it
    /// again without end: that is what its retry count of 7 means to it. One that has its last bytes
    /// still to read when the peer goes takes that for a loss.
    pub fn hold(self, said: &str) -> bool {
        self.may_interrupt && matrix::is_interrupted(said)
            || self.may_miss_its_end && MISSED.iter().any(|words| said.contains(words))
    }
}

const MISSED: [&str; 2] = [
    "it goes on after",
    "rpoll: Transport endpoint is not connected",
];
