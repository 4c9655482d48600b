//! Tests of the library against a real kernel with an RDMA device made of software.
//!
//! The binary is meant to run inside a guest that `ci/vm` boots; elsewhere every test is reported
//! as ignored. Besides the tests it holds the programs that tests run as other processes, called
//! by name: `vm trace -- rping -c -a 10.10.0.1`.

mod addr_info;
mod bad_situations;
mod cm_behaviours;
mod connections;
mod copied;
mod counts;
mod device_test;
mod endurance;
mod environment;
mod exchange;
mod faults;
mod field_reports;
mod guide;
mod harness;
mod ibacm;
mod instructions;
mod interop;
mod loopback;
mod mlx5;
mod multicast;
mod pair;
mod peers;
mod programs;
mod raw_cm;
mod sample;
mod self_test;
mod siw;
mod streams;
mod subcommands;
mod sync_ids;
mod table;
mod teardown;
mod tokio;
mod trace_command;
mod tracer;
mod tracer_test;
mod traffic;
mod two_hosts;
mod verbs;
mod write_form;

use std::process::ExitCode;

use harness::Test;
use libtest_mimic::Arguments;
use rdmacm::Driver;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).and_then(|name| subcommands::find(name)) {
        Some(program) => program(&args[2..]),
        None => {
            let can_run = environment::is_guest();
            let tests = match can_run.then(|| environment::context().device().driver()) {
                Some(Driver::Siw) => siw::choose(tests()),
                Some(Driver::Mlx5) => mlx5::choose(tests()),
                _ => tests(),
            };
            harness::run(Arguments::from_args(), tests, can_run)
        }
    }
}

/// The tests of all modules, in the order in which they run.
fn tests() -> Vec<Test> {
    [
        self_test::tests(),
        tracer_test::tests(),
        device_test::tests(),
        traffic::tests(),
        cm_behaviours::tests(),
        verbs::tests(),
        write_form::tests(),
        table::tests(),
        addr_info::tests(),
        ibacm::tests(),
        sync_ids::tests(),
        bad_situations::tests(),
        teardown::tests(),
        faults::tests(),
        field_reports::tests(),
        counts::tests(),
        instructions::tests(),
        multicast::tests(),
        streams::tests(),
        tokio::tests(),
        guide::tests(),
        interop::tests(),
        loopback::tests(),
        // Loads modules again.
        endurance::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
