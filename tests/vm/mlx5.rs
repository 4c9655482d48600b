//! mlx5, which is a device made of software here, without a kernel below it (see `ci/mlx5`): which of
//! the other tests hold on it.

use rdmacm::Driver;

use crate::environment;
use crate::harness::Test;

/// Whether the device under test is one.
pub fn is_under_test() -> bool {
    environment::context().device().driver() == Driver::Mlx5
}

/// The tests that need no more than verbs; those that do not hold say why.
pub fn choose(others: Vec<Test>) -> Vec<Test> {
    let is_of_verbs = |test: &Test| VERBS.iter().any(|module| test.name().starts_with(module));
    let of_verbs = others.into_iter().filter(is_of_verbs);
    of_verbs.map(leave_out).collect()
}

/// The test, marked if it does not hold.
fn leave_out(test: Test) -> Test {
    let is_of = |names: &[&str]| names.iter().any(|name| test.name().starts_with(name));
    let found = LEFT_OUT.iter().find(|(_, names)| is_of(names));
    match found {
        Some((reason, _)) => test.left_out(reason),
        None => test,
    }
}

const VERBS: [&str; 2] = ["verbs::", "table::"];

/// Why tests do not hold, and which those are.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "there is no connection manager over the device made of software",
        &[
            "verbs::lists::",
            "verbs::memory_flush::flushes_over_a_connection",
            "verbs::requests::atomics_over_a_connection",
            "verbs::windows::a_queue_pair_takes_the_windows",
            "verbs::windows::windows_over_a_connection",
        ],
    ),
    (
        "there is no kernel below the device made of software that would add, change and remove it",
        &[
            "verbs::async_events::a_port_goes_down",
            "verbs::async_events::an_address_comes_and_goes",
            "verbs::removal::",
        ],
    ),
    (
        "a completion queue of mlx5 that overruns is broken",
        &[
            "verbs::async_events::an_overflow",
            "verbs::rings::a_batch_overflows",
            "verbs::rings::a_receive_that_overflows",
        ],
    ),
    (
        "mlx5 does not resize shared receive queues",
        &[
            "verbs::depths::a_resized_shared_queue",
            "verbs::depths::a_shared_queue_is_resized",
        ],
    ),
    (
        "a request of mlx5 holds the address itself, not the number of a handle",
        &["verbs::datagrams::a_handle_that_is_gone"],
    ),
    (
        "a bind of mlx5 does not tell the key that the window has, and cannot tell a wrong one",
        &["verbs::windows::a_window_that_no_bind_opened"],
    ),
    (
        "mlx5 has what is missing on rxe",
        &["verbs::queries::what_is_special"],
    ),
    (
        "what rxe does not do, mlx5 does",
        &["verbs::windows::rxe_keeps_peers"],
    ),
];
