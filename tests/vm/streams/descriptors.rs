//! Where a process has no file descriptors left.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rdmacm::{RdmaStream, StreamSettings};

use super::basics::listen;
use super::hand_made::{HandMade, Key};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![a_listener_tells_that_there_are_none_left]
}

/// All descriptors but a few are in use, until it is dropped.
struct Exhausted {
    files: Vec<File>,
    limits: (u64, u64),
}

impl Exhausted {
    fn but(spare: usize) -> io::Result<Self> {
        let limits = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, 128, limits.1)?;
        let mut files = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        files.truncate(files.len() - spare);
        Ok(Self { files, limits })
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        self.files.clear();
        let (soft, hard) = self.limits;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit was allowed before");
    }
}

/// Whichever of a stream's descriptors is the one too many, the peer is rejected and who accepts hears
/// why. With some more, it goes on.
fn a_listener_tells_that_there_are_none_left() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    let mut spare = 0;
    loop {
        let peer = HandMade::prepare(address, Key::True)?;
        let exhausted = Exhausted::but(spare)?;
        peer.ask()?;
        let answer = peer.answer()?;
        let accepted = listener.accept_timeout(Duration::from_secs(10));
        drop(exhausted);
        match accepted {
            Ok(_) => break assert_eq!(answer, "ESTABLISHED"),
            Err(error) => {
                let own = error.get_ref().and_then(|error| error.downcast_ref());
                let errno = own.and_then(rdmacm::Error::errno);
                assert_eq!(errno, Some(libc::EMFILE), "{spare} are left: {error}");
            }
        }
        spare += 1;
    }
    // A stream has five, of which the event channel is one.
    assert!((3..10).contains(&spare), "{spare} are enough");
    let mut stream = RdmaStream::connect(address)?;
    let (mut accepted, _) = listener.accept_timeout(Duration::from_secs(10))?;
    stream.write_all(b"x")?;
    accepted.read_exact(&mut [0])?;
    Ok::<_, Box<dyn Error>>(Outcome::Pass)
}
