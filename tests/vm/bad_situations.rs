//! What goes wrong for users, in tables: each row is a situation, how it is made, the kind of the
//! error, and words that its message must contain, about the cause and about the remedy.

mod addresses;
mod answers;
mod connecting;
pub mod inherited;
pub mod machine;
mod memory;
mod namespaces;
mod peers_vanish;
pub mod processes;
pub mod restricted;
pub mod second_device;
mod sizes;

use std::fmt::Write;

use rdmacm::{CmId, ErrorKind, EventChannel, PortSpace, Result};

use crate::harness::{Outcome, Test, TestResult};
use crate::pair::{Plan, any_port, listen, resolve};

/// The tests of this folder.
pub fn tests() -> Vec<Test> {
    [
        addresses::tests(),
        connecting::tests(),
        answers::tests(),
        sizes::tests(),
        memory::tests(),
        second_device::tests(),
        restricted::tests(),
        namespaces::tests(),
        processes::tests(),
        inherited::tests(),
        peers_vanish::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// One thing that goes wrong.
struct Situation {
    name: &'static str,
    /// Makes it. The last call is the one whose error counts.
    make: fn() -> Result<()>,
    kind: ErrorKind,
    words: &'static [&'static str],
}

impl Situation {
    /// What is wrong with the error, if anything is.
    fn complaint(&self) -> Option<String> {
        let Err(error) = (self.make)() else {
            return Some("no error at all".to_owned());
        };
        complaint(self.kind, self.words, error.kind(), &error.to_string())
    }
}

/// Compares an error with what it should be.
fn complaint(kind: ErrorKind, words: &[&str], found: ErrorKind, text: &str) -> Option<String> {
    let mut complaint = String::new();
    if found != kind {
        let _ = write!(complaint, "{found:?} instead of {kind:?}; ");
    }
    for word in words.iter().filter(|word| !text.contains(*word)) {
        let _ = write!(complaint, "without {word:?}; ");
    }
    (!complaint.is_empty()).then(|| complaint + text)
}

/// Makes all the situations of a table and reports those whose error is not as it should be.
fn check(table: &[Situation]) -> TestResult {
    let complaints: Vec<String> = table
        .iter()
        .filter_map(|row| Some(format!("{}: {}", row.name, row.complaint()?)))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    Ok(Outcome::Pass)
}

/// An id that nothing was done with.
fn fresh_id() -> Result<CmId> {
    EventChannel::open()?.create_id(PortSpace::Tcp)
}

/// An id that is bound to the address under test.
fn bound_id() -> Result<CmId> {
    let id = fresh_id()?;
    id.bind_addr(any_port())?;
    Ok(id)
}

/// An id that listens on the address under test.
fn listening_id() -> Result<CmId> {
    listen(&EventChannel::open()?, any_port())
}

/// An id that is resolved up to the route, to the address under test.
fn resolved_id() -> Result<CmId> {
    resolve(&EventChannel::open()?, any_port())
}

/// A client that is resolved and has its queue pair.
fn ready_client() -> Result<crate::pair::End> {
    let channel = EventChannel::open()?;
    Plan::default().end(resolve(&channel, any_port())?, channel)
}
