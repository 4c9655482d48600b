//! Programs inside the test binary, for tests that need another process.

use std::io::{self, Read};
use std::process::ExitCode;

use crate::{
    bad_situations, counts, endurance, environment, exchange, field_reports, ibacm, instructions,
    peers, raw_cm, sample, streams, teardown, trace_command, traffic, two_hosts, write_form,
};

/// A program: gets its arguments, without its name.
type Program = fn(&[String]) -> ExitCode;

/// The programs by name.
const PROGRAMS: &[(&str, Program)] = &[
    ("trace", trace_command::run),
    ("counts", counts::run),
    ("instructions", instructions::run),
    ("connections", counts::many_connections),
    ("batch_of_sends", counts::batch_of_sends),
    ("hold", hold),
    ("first_use", traffic::first_use::run),
    ("first_use_of_everything", endurance::first_use::run),
    ("peer", peers::run),
    ("situation", bad_situations::restricted::run),
    ("fork", bad_situations::processes::fork_with_a_connection),
    ("fork_with_objects", bad_situations::inherited::run),
    ("without", bad_situations::machine::run),
    ("exchange", exchange::run),
    ("stop_early", teardown::stop_early::run),
    ("shuffle", teardown::shuffle::run),
    ("race", teardown::race::run),
    ("sample", sample::run),
    ("two_hosts", two_hosts::run),
    ("fork_with_datagrams", streams::fork_with_datagrams),
    ("fork_with_streams", streams::fork_with_streams),
    ("fork_with_memory", field_reports::processes::run),
    ("play_ibacm", ibacm::run),
    ("stream-peer", streams::killed::run),
    ("without_ioctl", write_form::run),
    ("one_of_each", write_form::make_one_of_each),
];

/// The program with this name.
pub fn find(name: &str) -> Option<Program> {
    PROGRAMS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, program)| *program)
}

/// Holds a protection domain and a bound id, says `ready`, and waits for the end of its input.
fn hold(_args: &[String]) -> ExitCode {
    let _id = raw_cm::Id::bound_to(environment::addr()).expect("an id");
    let _pd = environment::context()
        .alloc_pd()
        .expect("a protection domain");
    println!("ready");
    let _ = io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}
